"""Inline PTX of NVIDIA devices: ``D = A B + D`` by one sub-group of 32, and what else OpenCL C has no word for.

Which lane holds which element follows the PTX ISA (chapter "Warp Level Matrix Multiply-Accumulate Instructions"); with
g = lane / 4 and t = lane mod 4, register i holds

    A[g + 8 (i mod 2), t + 4 (i div 2)]     B[t + 4 i, g]     D[g + 8 (i div 2), 2 t + i mod 2]

for m = 16; for m = 8 register i of A holds A[g, t + 4 i].  Units for numbers of two bytes take two of them in a register:
those of columns ``t + 4 i`` of A and rows ``t + 4 i`` of B with i = 0 and 1, and with i = 2 and 3.  The unit takes them for
other columns, but for the same of A and B, and sums do not depend on their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

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
    def number(self) -> str:
        """The type of `dtype` in the words of numpy."""
        return "float64" if self.dtype == "double" else "float32"

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

HALF_UNITS = tuple(
    MatrixUnit(
        f"{name}-mma-m16n8k16", 16, 8, 16, "float", f"mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32", (8, 0)
    )
    for name in ("f16", "bf16")
)
"""Units for numbers of two bytes, which work-items hold in registers of four; sums are of four bytes."""

INSTRUCTIONS = {"shfl-sync": (7, 0), "cp-async-16": (8, 0), **{unit.name: unit.since for unit in HALF_UNITS}}
"""Other inline PTX, and the compute capability that brought it."""


def candidates(compute_capability: tuple[int, ...]) -> tuple[str, ...]:
    """Names of what a device of this capability should be able to do; whether its driver builds it is to be tried."""
    units = [unit.name for unit in MATRIX_UNITS if compute_capability >= unit.since]
    return (*units, *(name for name, since in INSTRUCTIONS.items() if compute_capability >= since))


@lru_cache(maxsize=64)
def matrix_unit(name: str) -> MatrixUnit:
    """The matrix unit called `name`, e.g. ``"fp64-mma-m16n8k16"``."""
    return next(unit for unit in (*MATRIX_UNITS, *HALF_UNITS) if unit.name == name)


BOUNDED_NAME = "feinsum_bounded"
BOUNDED = """static inline float feinsum_bounded(float x)
{
#if FEINSUM_COMPUTE_CAPABILITY >= 86
  float bounded;
  asm("min.xorsign.abs.f32 %0, %1, %2;" : "=f"(bounded) : "f"(x), "f"(0x1.ffcp127f));
  return bounded;
#else
  return fmin(fmax(x, -0x1.ffcp127f), 0x1.ffcp127f);
#endif
}"""
"""The OpenCL C function that replaces infinities, NaN and numbers near the largest by the largest of 11 bits.

The first bits of a number have to be finite: what is left of an infinity is infinite then, and makes the products with
the first bits of the other operand infinite, or NaN with zero, as IEEE 754 asks.  Were the first bits infinite, the rest
would be NaN.  ``min.xorsign.abs`` is one instruction where a minimum and a maximum are two; a compute capability of 8.6 has
it, and :func:`feinsum.devices.opencl.build_program` tells sources the capability.  On an H100 a split product takes 1.012
times as long as without (geometric mean of six contractions, at most 1.05; 2026-11-26)."""


def first_bits(x: str, *, rounded: bool) -> str:
    """An expression of OpenCL C for the first 11 bits of the float32 `x`, see :data:`BOUNDED`.

    :param rounded: whether to the nearest; else the others are cut off, which takes an instruction less.
    """
    bits = f"as_uint(feinsum_bounded({x}))"
    return f"as_float({f'({bits} + 0x1000u)' if rounded else bits} & 0xffffe000u)"


def split_error(unit: MatrixUnit, terms: int) -> float:
    """The error of a sum of so many products on a unit, in units of the roundoff u = 2^-24 of float32 times Σ |a| |b|.

    With the last bits of a" and b", 2 u and 6 u are cut off, and the product a" b" is 8 u.  The unit aligns the products
    of a step to the largest and cuts off what is beyond two further bits, u / 2 for each product, and cuts the result,
    2 u; each step is added to D, u.  The two bits were found on compute capability 8.0 by M. Fasi, N. Higham, M. Mikaitis
    and S. Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7 (2021); a test holds any device
    to the bound.  Units for float64 leave the rounding of the result.
    """
    if unit.dtype == "double":
        return 1.0
    return 2 + 6 + 8 + min(terms, unit.k) / 2 + 2 + -(-terms // unit.k)


def tile_error(unit: MatrixUnit, terms: int, depth: int) -> float:
    """The same where the unit itself adds up the products of a tile, so many deep, before the tile's sum is added to D.

    Each of the three products of a step cuts off u / 2 for each of its products and 2 u of the sum so far.
    """
    steps = -(-min(terms, depth) // unit.k)
    return 2 + 6 + 8 + 3 * steps * (unit.k / 2 + 2) + -(-terms // depth)


def product_name(unit: MatrixUnit, *, summed: bool = False) -> str:
    """The name of :func:`product_function`."""
    kind = "mma" if unit.dtype == "double" else f"{unit.name.partition('-')[0]}_mma" if unit in HALF_UNITS else "split_mma"
    summing = "summed_" if summed and kind == "split_mma" else ""  # the others sum by themselves in any case
    return f"feinsum_{summing}{kind}_m{unit.m}n{unit.n}k{unit.k}"


def product_function(unit: MatrixUnit, *, summed: bool = False) -> str:
    """The OpenCL C function ``D + A B`` of fragments; D comes back as its value and through pointers.

    That of split numbers calls :data:`BOUNDED`.

    :param summed: whether the unit adds split numbers to D, not the ordinary adder.
    """
    na, nb, nd = unit.registers
    inputs = [f"{unit.dtype} {name}{i}" for name, count in (("d", nd), ("a", na), ("b", nb)) for i in range(count)]
    outputs = [f"{unit.dtype} *r{i}" for i in range(1, nd)]
    if unit in HALF_UNITS:
        body = _product_of_halves(unit)
    else:
        body = _product(unit) if unit.dtype == "double" else _product_of_split_numbers(unit, summed=summed)
    stores = " ".join(f"*r{i} = d{i};" for i in range(1, nd))
    lines = "\n  ".join([*body, stores, "return d0;"])
    name = product_name(unit, summed=summed)
    return f"static inline {unit.dtype} {name}({', '.join(inputs + outputs)})\n{{\n  {lines}\n}}"


def _product(unit: MatrixUnit, d: str = "d", a: str = "a", b: str = "b") -> list[str]:
    # Not volatile: the compiler may order it among other arithmetic, as its results are its only effect.
    return [unit.statement(d, a, b).replace("asm volatile", "asm")]


def _product_of_split_numbers(unit: MatrixUnit, *, summed: bool) -> list[str]:
    """A B of float32 by three products of the numbers that the unit takes, the smallest first."""
    na, nb, nd = unit.registers
    numbers = [*(f"a{i}" for i in range(na)), *(f"b{i}" for i in range(nb))]
    # A is rounded once for many products; B is read anew for each.  The unit ignores bits of the rest beyond 11.
    first = [f"float high_a{i} = {first_bits(f'a{i}', rounded=True)};" for i in range(na)]
    first += [f"float high_b{i} = {first_bits(f'b{i}', rounded=False)};" for i in range(nb)]
    rest = [f"float low_{x} = {x} - high_{x};" for x in numbers]
    pairs = (("low_a", "high_b"), ("high_a", "low_b"), ("high_a", "high_b"))
    products = [line for a, b in pairs for line in _product(unit, "d" if summed else "sum", a, b)]
    if summed:
        return [*first, *rest, *products]
    sums = ", ".join(f"sum{i} = 0.0f" for i in range(nd))
    added = " ".join(f"d{i} += sum{i};" for i in range(nd))
    return [*first, *rest, f"float {sums};", *products, added]


def _product_of_halves(unit: MatrixUnit) -> list[str]:
    """A B of numbers that have two bytes; two of them become a register of the unit."""
    na, nb, nd = unit.registers
    f16 = unit.name.startswith("f16")

    def pair(name: str, low: str, high: str) -> str:
        if not f16:
            return f"uint {name} = (as_uint({low}) >> 16) | (as_uint({high}) & 0xffff0000u);"
        return f'uint {name}; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"({name}) : "f"({high}), "f"({low}));'

    # register i of A holds rows g + 8 (i mod 2) of columns 2 (i div 2) and the next
    lines = [pair(f"pa{i}", f"a{i % 2 + 4 * (i // 2)}", f"a{i % 2 + 4 * (i // 2) + 2}") for i in range(na // 2)]
    lines += [pair(f"pb{i}", f"b{2 * i}", f"b{2 * i + 1}") for i in range(nb // 2)]
    slots = [f"%{k}" for k in range(nd + na // 2 + nb // 2)]
    groups = (slots[:nd], slots[nd : nd + na // 2], slots[nd + na // 2 :], slots[:nd])
    text = f"{unit.instruction} " + ", ".join("{" + ", ".join(group) + "}" for group in groups) + ";"
    outputs = ", ".join(f'"+f"(d{i})' for i in range(nd))
    inputs = ", ".join(f'"r"({name})' for name in [f"pa{i}" for i in range(na // 2)] + [f"pb{i}" for i in range(nb // 2)])
    return [*lines, f'asm("{text}" : {outputs} : {inputs});']


def product_source(unit: MatrixUnit) -> str:
    """A kernel ``product(A, B, D)`` for one work-group of 32: D += A B, all row-major."""
    na, nb, nd = unit.registers
    rows = 2 if unit.m == 16 else 1
    loads = [f"{unit.dtype} a{i} = A[(g + {8 * (i % rows)}) * {unit.k} + t + {4 * (i // rows)}];" for i in range(na)]
    loads += [f"{unit.dtype} b{i} = B[(t + {4 * i}) * {unit.n} + g];" for i in range(nb)]
    places = [f"D[(g + {8 * (i // 2)}) * {unit.n} + 2 * t + {i % 2}]" for i in range(nd)]
    product, function = unit.statement("d", "a", "b"), ""
    if unit in HALF_UNITS:
        numbers = [f"{x}{i}" for x, count in (("d", nd), ("a", na), ("b", nb)) for i in range(count)]
        numbers += [f"&d{i}" for i in range(1, nd)]
        product, function = f"d0 = {product_name(unit)}({', '.join(numbers)});", f"{product_function(unit)}\n"
    lines = [
        *loads,
        *(f"{unit.dtype} d{i} = {place};" for i, place in enumerate(places)),
        product,
        *(f"{place} = d{i};" for i, place in enumerate(places)),
    ]
    parameters = f"global const {unit.dtype} *A, global const {unit.dtype} *B, global {unit.dtype} *D"
    return function + _kernel("product", parameters, lines)


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
