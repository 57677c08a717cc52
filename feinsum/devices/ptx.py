"""Inline PTX of NVIDIA devices: ``D = A B + D`` by one sub-group of 32, and what else OpenCL C has no word for.

Which lane holds which element follows the PTX ISA (chapter "Warp Level Matrix Multiply-Accumulate Instructions"); with
g = lane / 4 and t = lane mod 4, register i holds

    A[g + 8 (i mod 2), t + 4 (i div 2)]     B[t + 4 i, g]     D[g + 8 (i div 2), 2 t + i mod 2]

for m = 16; for m = 8 register i of A holds A[g, t + 4 i].
"""

from __future__ import annotations

from dataclasses import dataclass

SUB_GROUP = 32
SCHEDULERS = 4
"""Of a multiprocessor; each issues instructions of every fourth sub-group."""


@dataclass(frozen=True)
class MatrixUnit:
    """One shape of ``mma.sync``: (m, k) times (k, n), with `dtype` in memory and in the accumulator.

    :param since: the compute capability that brought it.
    """

    name: str
    m: int
    n: int
    k: int
    dtype: str
    instruction: str
    since: tuple[int, int]

    @property
    def registers(self) -> tuple[int, int, int]:
        """Registers of a lane for A, B and D."""
        return self.m * self.k // SUB_GROUP, self.k * self.n // SUB_GROUP, self.m * self.n // SUB_GROUP

    @property
    def flops(self) -> int:
        """Operations of one instruction of a sub-group."""
        return 2 * self.m * self.n * self.k

    def statement(self, d: str, a: str, b: str) -> str:
        """The OpenCL C statement ``D += A B`` on scalar variables: register i of A is the variable ``{a}{i}``."""
        na, nb, nd = self.registers
        accumulate, operand, cast = ("+d", "d", "") if self.dtype == "double" else ("+f", "r", "as_uint")
        slots = [f"%{k}" for k in range(nd + na + nb)]
        groups = (slots[:nd], slots[nd : nd + na], slots[nd + na :], slots[:nd])
        text = f"{self.instruction} " + ", ".join("{" + ", ".join(group) + "}" for group in groups) + ";"
        outputs = ", ".join(f'"{accumulate}"({d}{i})' for i in range(nd))
        names = [f"{a}{i}" for i in range(na)] + [f"{b}{i}" for i in range(nb)]
        inputs = ", ".join(f'"{operand}"({cast}({name}))' for name in names)
        return f'asm volatile("{text}" : {outputs} : {inputs});'


def _fp64(m: int, k: int, since: tuple[int, int]) -> MatrixUnit:
    shape = f"m{m}n8k{k}"
    instruction = f"mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64"
    return MatrixUnit(f"fp64-mma-{shape}", m, 8, k, "double", instruction, since)


MATRIX_UNITS = (
    _fp64(16, 16, (9, 0)),
    _fp64(16, 8, (9, 0)),
    _fp64(16, 4, (9, 0)),
    _fp64(8, 4, (8, 0)),
    MatrixUnit("tf32-mma-m16n8k8", 16, 8, 8, "float", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", (8, 0)),
)

INSTRUCTIONS = {"shfl-sync": (7, 0), "cp-async-16": (8, 0)}
"""Other inline PTX, and the compute capability that brought it."""


def candidates(compute_capability: tuple[int, ...]) -> tuple[str, ...]:
    """Names of what a device of this capability should be able to do; whether its driver builds it is to be tried."""
    units = [unit.name for unit in MATRIX_UNITS if compute_capability >= unit.since]
    return (*units, *(name for name, since in INSTRUCTIONS.items() if compute_capability >= since))


def matrix_unit(name: str) -> MatrixUnit:
    """The matrix unit called `name`, e.g. ``"fp64-mma-m16n8k16"``."""
    return next(unit for unit in MATRIX_UNITS if unit.name == name)


def product_source(unit: MatrixUnit) -> str:
    """A kernel ``product(A, B, D)`` for one work-group of 32: D += A B, all row-major."""
    na, nb, nd = unit.registers
    rows = 2 if unit.m == 16 else 1
    loads = [f"{unit.dtype} a{i} = A[(g + {8 * (i % rows)}) * {unit.k} + t + {4 * (i // rows)}];" for i in range(na)]
    loads += [f"{unit.dtype} b{i} = B[(t + {4 * i}) * {unit.n} + g];" for i in range(nb)]
    places = [f"D[(g + {8 * (i // 2)}) * {unit.n} + 2 * t + {i % 2}]" for i in range(nd)]
    lines = [
        *loads,
        *(f"{unit.dtype} d{i} = {place};" for i, place in enumerate(places)),
        unit.statement("d", "a", "b"),
        *(f"{place} = d{i};" for i, place in enumerate(places)),
    ]
    return _kernel("product", f"global const {unit.dtype} *A, global const {unit.dtype} *B, global {unit.dtype} *D", lines)


def rate_source(unit: MatrixUnit, chains: int) -> str:
    """A kernel ``rate(out, a, b, n)``: n times `chains` independent products by every sub-group."""
    na, nb, nd = unit.registers
    lines = [f"{unit.dtype} a{i} = a * (t + {i + 1});" for i in range(na)]
    lines += [f"{unit.dtype} b{i} = b * (g + {i + 1});" for i in range(nb)]
    lines += [f"{unit.dtype} d{c}_{i} = 0;" for c in range(chains) for i in range(nd)]
    lines += ["for (int i = 0; i < n; ++i) {", *(unit.statement(f"d{c}_", "a", "b") for c in range(chains)), "}"]
    total = " + ".join(f"d{c}_{i}" for c in range(chains) for i in range(nd))
    lines.append(f"out[get_global_id(0)] = {total};")
    return _kernel("rate", f"global {unit.dtype} *out, {unit.dtype} a, {unit.dtype} b, int n", lines)


def exchange_source(instruction: str) -> str:
    """A kernel ``exchange(x, y)`` for one work-group of 32, of float4: ``y[lane] = x[lane ^ 1]`` by `instruction`."""
    lane = "uint lane = get_local_id(0);"
    if instruction == "shfl-sync":
        move = 'asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=r"(q{0}) : "r"(as_uint(v.s{0})));'
        lines = [lane, "float4 v = x[lane];", "uint q0, q1, q2, q3;", *(move.format(i) for i in range(4))]
        return _kernel("exchange", _EXCHANGED, [*lines, "y[lane] = as_float4((uint4)(q0, q1, q2, q3));"])
    lines = [
        f"__local float4 tile[{SUB_GROUP}];",
        lane,
        # A __local pointer is an address of the shared window already; converting it with cvta would be wrong.
        'asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"',
        '    : : "r"((uint)(size_t)(tile + lane)), "l"((size_t)(x + lane)) : "memory");',
        'asm volatile("cp.async.commit_group;" : : : "memory");',
        'asm volatile("cp.async.wait_group 0;" : : : "memory");',
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "y[lane] = tile[lane ^ 1];",
    ]
    return _kernel("exchange", _EXCHANGED, lines)


_EXCHANGED = "global const float4 *x, global float4 *y"


def _kernel(name: str, parameters: str, lines: list[str]) -> str:
    place = "uint g = (get_local_id(0) % 32) / 4, t = get_local_id(0) % 4;"
    pragma = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" if "double" in parameters else ""
    body = "\n".join(f"  {line}" for line in ([place] if name != "exchange" else []) + lines)
    return f"{pragma}kernel void {name}({parameters}) {{\n{body}\n}}\n"
