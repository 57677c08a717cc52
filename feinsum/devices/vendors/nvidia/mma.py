"""Matrix units of NVIDIA devices: ``mma.sync`` as inline PTX, ``D = A B + D`` by one sub-group of 32.

Which lane holds which element follows the PTX ISA, section "Warp-level matrix instructions: Matrix multiply-accumulate
operation using mma instruction"; with g = lane / 4 and t = lane mod 4, register i holds

    A[g + 8 (i mod 2), t + 4 (i div 2)]     B[t + 4 i, g]     D[g + 8 (i div 2), 2 t + i mod 2]

for m = 16; for m = 8 register i of A holds A[g, t + 4 i].  Units for numbers of two bytes take two of them in a register:
those of columns ``t + 4 i`` of A and rows ``t + 4 i`` of B with i = 0 and 1, and with i = 2 and 3.  The unit takes them for
other columns, but for the same of A and B, and sums do not depend on their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from feinsum.devices.vendors.units import FragmentLayout, LayoutDigit, MatrixUnit

SUB_GROUP = 32
_A_LANES = (LayoutDigit(4, 0, 1), LayoutDigit(8, 1, 0))
_B_LANES = (LayoutDigit(4, 1, 0), LayoutDigit(8, 0, 1))
_D_LANES = (LayoutDigit(4, 0, 2), LayoutDigit(8, 1, 0))

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


@dataclass(frozen=True)
class Mma(MatrixUnit):
    """One shape of ``mma.sync``, for float64.

    :ivar instruction: the name of the instruction in PTX.
    :ivar since: the compute capability that introduced it.
    """

    instruction: str = ""
    since: tuple[int, int] = (8, 0)

    def statement(self, d: str, a: str, b: str) -> str:
        # Not volatile: the compiler may order it among other arithmetic, as its results are its only effect.
        na, nb, _ = self.registers
        return self._assembly("+d", d, "d", [f"({a}{i})" for i in range(na)], [f"({b}{i})" for i in range(nb)])

    def called(self, kind: str = "") -> str:
        return f"feinsum_mma_m{self.m}n{self.n}k{self.k}"

    def _cut(self, terms: int) -> float:
        """The error by what units for float32 cut off the products and sums of their steps: see :meth:`SplitMma.error`."""
        return min(terms, self.k) / 2 + 2 + -(-terms // self.k)

    def _assembly(self, accumulated: str, d: str, operand: str, a: Sequence[str], b: Sequence[str]) -> str:
        """The statement for registers with these constraints; `a` and `b` are expressions."""
        nd = self.d.length
        slots = [f"%{k}" for k in range(nd + len(a) + len(b))]
        groups = (slots[:nd], slots[nd : nd + len(a)], slots[nd + len(a) :], slots[:nd])
        text = f"{self.instruction} " + ", ".join("{" + ", ".join(group) + "}" for group in groups) + ";"
        outputs = ", ".join(f'"{accumulated}"({d}{i})' for i in range(nd))
        inputs = ", ".join(f'"{operand}"({expression})' for expression in (*a, *b))
        return f'asm("{text}" : {outputs} : {inputs});'


class SplitMma(Mma):
    """A unit for tf32, of 11 significant bits; it multiplies numbers of float32 that are split in two.

    With ``a = a' + a"``, a' the first 11 bits, rounded in A and cut in B, ``A" B' + A' B" + A' B'`` is added: H. Ootomo and
    R. Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak
    performance", IJHPCA 36 (2022), section 3.
    """

    splits = True
    kinds = ("", "summed", "bits", "whole", "split")

    @property
    def helpers(self) -> Mapping[str, str]:
        return {BOUNDED_NAME: BOUNDED}

    def statement(self, d: str, a: str, b: str) -> str:
        na, nb, _ = self.registers
        bits = [[f"as_uint({name}{i})" for i in range(count)] for name, count in ((a, na), (b, nb))]
        return self._assembly("+f", d, "r", bits[0], bits[1])

    def error(self, terms: int) -> float:
        """The error in units of the roundoff u = 2^-24 of float32.

        Cutting the last bits off a" and b" costs 2 u and 6 u, and leaving out a" b" costs 8 u.  The unit aligns the
        products of a step to the largest and cuts off all but two further bits, u / 2 for each product; it cuts the
        result, 2 u; and each step is added to D, u.  The two bits were found on compute capability 8.0 by M. Fasi, N.
        Higham, M. Mikaitis and S. Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7 (2021); a
        test holds any device to the bound.
        """
        return 2 + 6 + 8 + self._cut(terms)

    def tile_error(self, terms: int, depth: int) -> float:
        """The error: each of a step's three products cuts off u / 2 of each of its terms, and 2 u of the sum so far."""
        steps = -(-min(terms, depth) // self.k)
        return 2 + 6 + 8 + 3 * steps * (self.k / 2 + 2) + -(-terms // depth)

    def sum_error(self, terms: int, kind: str) -> float:
        """The error of two sums, of the first bits and of the rests.

        From the rest of a rounded number 2 u are cut off, from that of a cut number 6 u; the product of two rests is 4 u,
        or 8 u where B is cut as it is read.  Each step cuts off u / 2 of each of its products, and 2 u of the sum so far.
        The sum of the smaller products errs by less than a five-hundredth of that; adding it last costs u.
        """
        rests = 2 + 2 + 4 if kind == "split" else 2 + 6 + 8
        return rests + (1 + 1 / 500) * -(-terms // self.k) * (self.k / 2 + 2) + 1

    def called(self, kind: str = "") -> str:
        names = {"": "split_mma", "summed": "summed_split_mma", "whole": "summing_mma", "split": "summing_mma"}
        if kind == "bits":
            return "feinsum_first_bits"
        return f"feinsum_{names[kind]}_m{self.m}n{self.n}k{self.k}{'_split' if kind == 'split' else ''}"

    def arguments(self, kind: str = "") -> tuple[list[str], list[str]]:
        if kind in ("", "summed"):
            return super().arguments(kind)
        if kind == "bits":
            return ["x"], [self._first_bits("x", rounded=True)]
        na, nb, nd = self.registers
        of_b = (("high_b", nb), ("low_b", nb)) if kind == "split" else (("b", nb),)
        inputs = [f"{x}{i}" for x, count in (("sum", nd), ("rest", nd), ("a", na), *of_b) for i in range(count)]
        return inputs, inputs[: 2 * nd]

    def body(self, kind: str = "") -> list[str]:
        if kind == "bits":
            return []
        return self._summing(kind) if kind in ("whole", "split") else self._multiplying(kind)

    def _first_bits(self, x: str, *, rounded: bool) -> str:
        """An expression of OpenCL C for the first 11 bits of the float32 `x`, see :data:`BOUNDED`.

        :param rounded: whether to the nearest; else the others are cut off, which takes an instruction less.
        """
        bits = f"as_uint({BOUNDED_NAME}({x}))"
        return f"as_float({f'({bits} + 0x1000u)' if rounded else bits} & 0xffffe000u)"

    def _multiplying(self, kind: str) -> list[str]:
        """The three products, the smallest first."""
        na, nb, nd = self.registers
        numbers = [*(f"a{i}" for i in range(na)), *(f"b{i}" for i in range(nb))]
        # A is rounded once for many products; B is read anew for each.  The unit ignores bits of the rest beyond 11.
        first = [f"float high_{x} = {self._first_bits(x, rounded=x.startswith('a'))};" for x in numbers]
        rest = [f"float low_{x} = {x} - high_{x};" for x in numbers]
        pairs = (("low_a", "high_b"), ("high_a", "low_b"), ("high_a", "high_b"))
        products = [self.statement("d" if kind == "summed" else "sum", a, b) for a, b in pairs]
        if kind == "summed":
            return [*first, *rest, *products]
        sums = ", ".join(f"sum{i} = 0.0f" for i in range(nd))
        added = " ".join(f"d{i} += sum{i};" for i in range(nd))
        return [*first, *rest, f"float {sums};", *products, added]

    def _summing(self, kind: str) -> list[str]:
        """The products in two sums; rounding B too would take an instruction more, each time it is read."""
        na, nb, _ = self.registers
        highs = {f"a{i}": f"{self.called('bits')}(a{i})" for i in range(na)}
        if kind == "whole":
            highs |= {f"b{i}": self._first_bits(f"b{i}", rounded=False) for i in range(nb)}
        split = [f"float high_{x} = {high}, low_{x} = {x} - high_{x};" for x, high in highs.items()]
        terms = (("rest", "low_a", "high_b"), ("sum", "high_a", "high_b"), ("rest", "high_a", "low_b"))
        return [*split, *(self.statement(d, a, b) for d, a, b in terms)]


class PackedMma(Mma):
    """A unit for numbers of two bytes, which work-items hold in registers of four; sums are of four bytes."""

    def called(self, kind: str = "") -> str:
        return f"feinsum_{self.name.partition('-')[0]}_mma_m{self.m}n{self.n}k{self.k}"

    def error(self, terms: int) -> float:
        """The error in units of float32's roundoff: products are exact, and sums are cut as those of :class:`SplitMma`."""
        return self._cut(terms)

    def statement(self, d: str, a: str, b: str) -> str:
        """Two numbers become a register of the unit, in variables pa and pb."""
        na, nb, _ = self.registers
        # register i of A holds rows g + 8 (i mod 2) of columns 2 (i div 2) and the next
        pairs = [("a", i, a, i % 2 + 4 * (i // 2), i % 2 + 4 * (i // 2) + 2) for i in range(na // 2)]
        pairs += [("b", i, b, 2 * i, 2 * i + 1) for i in range(nb // 2)]
        lines = [self._pair(f"p{x}{i}", f"{name}{low}", f"{name}{high}") for x, i, name, low, high in pairs]
        packed = [[f"p{x}{i}" for i in range(count // 2)] for x, count in (("a", na), ("b", nb))]
        return "\n  ".join([*lines, self._assembly("+f", d, "r", packed[0], packed[1])])

    def _pair(self, name: str, low: str, high: str) -> str:
        if self.operand == "bfloat16":
            return f"uint {name} = (as_uint({low}) >> 16) | (as_uint({high}) & 0xffff0000u);"
        return f'uint {name}; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"({name}) : "f"({high}), "f"({low}));'


def _mma(kind: type[Mma], label: str, m: int, k: int, operand: str, types: str, since: tuple[int, int]) -> Mma:
    """A unit of 8 columns: its layouts as the module says."""
    rows = (LayoutDigit(2, 8, 0),) if m == 16 else ()
    deep = k // 4
    return kind(
        f"{label}-mma-m{m}n8k{k}",
        m,
        8,
        k,
        operand,
        "double" if operand == "float64" else "float",
        a=FragmentLayout(_A_LANES, (*rows, LayoutDigit(deep, 0, 4))),
        b=FragmentLayout(_B_LANES, (LayoutDigit(deep, 4, 0),)),
        d=FragmentLayout(_D_LANES, (LayoutDigit(2, 0, 1), *rows)),
        lanes=SUB_GROUP,
        instruction=f"mma.sync.aligned.m{m}n8k{k}.row.col.{types}",
        since=since,
    )


MATRIX_UNITS: tuple[Mma, ...] = (
    *(_mma(Mma, "fp64", 16, k, "float64", "f64.f64.f64.f64", (9, 0)) for k in (16, 8, 4)),
    _mma(Mma, "fp64", 8, 4, "float64", "f64.f64.f64.f64", (8, 0)),
    _mma(SplitMma, "tf32", 16, 8, "float32", "f32.tf32.tf32.f32", (8, 0)),
)
HALF_UNITS: tuple[Mma, ...] = tuple(
    _mma(PackedMma, label, 16, 16, operand, f"f32.{label}.{label}.f32", (8, 0))
    for label, operand in (("f16", "float16"), ("bf16", "bfloat16"))
)
"""Units for numbers of two bytes, which profiles list among the instructions."""
