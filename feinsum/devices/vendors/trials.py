"""Kernels that try the instructions of a vendor: small ones whose results are known, and one that measures a rate."""

from __future__ import annotations

from collections.abc import Sequence

from feinsum.devices.vendors.units import MatrixUnit
from feinsum.devices.vendors.vendor import AsyncCopies, Shuffles

_EXCHANGE = "exchange(global const float4 *x, global float4 *y)"


def product_source(unit: MatrixUnit) -> str:
    """A kernel ``product(A, B, D)`` for one work-group of a sub-group: D += A B, all row-major."""
    (na, nb, nd), dtype = unit.registers, unit.dtype

    def place(name: str, register: int) -> str:
        layout, columns = {"A": (unit.a, unit.k), "B": (unit.b, unit.n), "D": (unit.d, unit.n)}[name]
        row, column = layout.text("lane", register)
        return f"{name}[({row}) * {columns} + {column}]"

    numbers = [f"{x}{i}" for x, count in (("d", nd), ("a", na), ("b", nb)) for i in range(count)]
    lines = [f"{dtype} {number} = {place(number[0].upper(), int(number[1:]))};" for number in numbers]
    lines.append(f"d0 = {unit.called()}({', '.join([*numbers, *(f'&d{i}' for i in range(1, nd))])});")
    lines += [f"{place('D', i)} = d{i};" for i in range(nd)]
    parameters = f"global const {dtype} *A, global const {dtype} *B, global {dtype} *D"
    return _kernel(f"product({parameters})", unit.lanes, lines, (*unit.helpers.values(), unit.function()), unit.attribute)


def rate_source(unit: MatrixUnit, chains: int) -> str:
    """A kernel ``rate(out, a, b, n)``: n times `chains` independent products by every sub-group."""
    na, nb, nd = unit.registers
    lines = [f"{unit.dtype} a{i} = a * (lane % 4 + {i + 1});" for i in range(na)]
    lines += [f"{unit.dtype} b{i} = b * (lane / 4 + {i + 1});" for i in range(nb)]
    lines += [f"{unit.dtype} d{c}_{i} = 0;" for c in range(chains) for i in range(nd)]
    steps = (f"{{ {unit.statement(f'd{c}_', 'a', 'b')} }}" for c in range(chains))
    total = " + ".join(f"d{c}_{i}" for c in range(chains) for i in range(nd))
    lines += ["for (int i = 0; i < n; ++i) {", *steps, "}", f"out[get_global_id(0)] = {total};"]
    parameters = f"global {unit.dtype} *out, {unit.dtype} a, {unit.dtype} b, int n"
    return _kernel(f"rate({parameters})", unit.lanes, lines, tuple(unit.helpers.values()), unit.attribute)


def shuffled_source(shuffles: Shuffles, lanes: int) -> str:
    """A kernel ``exchange(x, y)`` for one work-group of a sub-group, of float4: ``y[lane] = x[lane ^ 1]``."""
    moved = [shuffles.call("bfly", lanes, 32, f"as_uint(v.s{i})", "1") for i in range(4)]
    lines = ["float4 v = x[lane];", f"y[lane] = as_float4((uint4)({', '.join(moved)}));"]
    return _kernel(_EXCHANGE, lanes, lines, tuple(shuffles.functions.values()))


def copied_source(copies: AsyncCopies, lanes: int) -> str:
    """A kernel like :func:`shuffled_source`, by asynchronous copies to local memory."""
    lines = [
        f"__local float4 tile[{lanes}];",
        copies.copy(16, "tile + lane", "x + lane", "16"),
        copies.commit,
        copies.wait.format(left=0),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "y[lane] = tile[lane ^ 1];",
    ]
    return _kernel(_EXCHANGE, lanes, lines)


def _kernel(declared: str, lanes: int, lines: Sequence[str], functions: Sequence[str] = (), attribute: str = "") -> str:
    pragma = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable" if "double" in declared else ""
    body = "\n".join(f"  {line}" for line in (f"uint lane = get_local_id(0) % {lanes};", *lines))
    return "\n".join([pragma, *functions, f"kernel {attribute} void {declared} {{", body, "}\n"])
