"""Functions of vectors of float32 in OpenCL C of our own, for CPUs whose runtimes take longer; all of them keep what is no
number by comparisons, which ``clamp`` does not."""

from __future__ import annotations

import re
from typing import Final

from feinsum.elementwise import Function

ERF: Final = "feinsum_erf_float"
"""The error function, followed by the width of its vectors, if its argument is one; see :func:`_erf`."""
EXP: Final = "feinsum_exp_float"
"""The exponential function, likewise; see :func:`_exp`."""
QUOTIENTS: Final = "feinsum_quotients_float"
"""A vector divided by a number, of which it takes the inverse; likewise, see :func:`_quotients`."""
INVERSE: Final = "feinsum_inverse_float"
"""The inverse of a number, of :data:`INVERSE_TYPE`; see :func:`_quotients`."""
INVERSE_TYPE: Final = "float3"
_ERF_END: Final = 3.832
"""Beyond it erf is taken to be what it is there, which in float32 is 1."""
_ERF: Final = (
    0.369006753,
    -0.184138373,
    0.136761546,
    -0.110668875,
    0.0908277407,
    -0.0730739981,
    0.055993028,
    -0.039756909,
    0.0275292397,
    -0.0197624713,
    0.0110341106,
    -0.00314963399,
    0.00222742767,
    -0.00315911183,
    0.00128986989,
)
"""erf(x)/x as a polynomial in ``2 x**2/3.832**2 - 1``, lowest power first: a least-squares fit, weighted until all relative
errors were alike, 7.7e-8.  In these powers the coefficients add up to 1.13, so that sums lose little."""
_EXP_ENDS: Final = (-104.0, 90.0)
"""Beyond them exp is 0 and infinite in float32."""
_EXP: Final = (1.0, 1.0, 0.500000358, 0.16666615, 0.0416612774, 0.00833609793, 0.00141042634, 0.000196118533)
"""exp(r) of ``abs(r) <= log(2)``, lowest power first: a fit as that of erf, with relative errors of 1.5e-8."""
_TWICE_LOG_2: Final = (1.3862943649291992, -3.809308646296472e-09)
"""2 log(2) in two parts: multiples of the first are subtracted without an error."""
_ROUNDING: Final = 1.5 * 2**23
"""Numbers of float32 that are added to it become integers, in its last bits."""
_BIAS: Final = 127
"""The bias of the exponent of a float32, which begins at bit 23."""


def name_in_c(function: Function, scalar: str, width: int) -> str:
    """The name of a function of reals in C; for vectors, of some `width`, our own if there is one for that type."""
    return f"feinsum_{function.name}_float{width}" if function.own and width and scalar == "float" else function.opencl


def own_functions(code: str) -> list[tuple[str, str]]:
    """The names of those functions of this module that some C calls, each with its definition, in order."""
    called = sorted(set(re.findall(rf"\b({ERF}|{EXP}|{QUOTIENTS})(\d*)\(", code)))
    found = [(f"{name}{width}", _define_function(name, f"float{width}")) for name, width in called]
    return [(INVERSE, _INVERSE), *found] if f"{INVERSE}(" in code else found


def _define_function(name: str, vector: str) -> str:
    lines = {ERF: _erf, EXP: _exp, QUOTIENTS: _quotients}[name](vector)
    more = f", {INVERSE_TYPE} inverse" if name == QUOTIENTS else ""
    body = "\n  ".join(lines)
    return f"static inline {vector} {name}{vector.removeprefix('float')}({vector} x{more})\n{{\n  {body}\n}}"


def _clamped(vector: str, low: float, high: float) -> list[str]:
    return [f"x = ({vector}) {high}f < x ? ({vector}) {high}f : x;", f"x = ({vector}) {low}f > x ? ({vector}) {low}f : x;"]


def _horner_sum(vector: str, name: str, argument: str, coefficients: tuple[float, ...]) -> list[str]:
    """A polynomial by Horner's rule."""
    *others, last = coefficients
    lines = [f"{vector} {name} = {last!r}f;"]
    return lines + [f"{name} = fma({name}, {argument}, ({vector}) {c!r}f);" for c in reversed(others)]


def _erf(vector: str) -> list[str]:
    """erf takes two thirds of the time of that of Intel's runtime, and errs by at most 7 units in the last place, of the 16
    that OpenCL allows: a polynomial, ``x p(x**2)``, of x between the ends, where it is 1 and -1.  Even and odd powers are
    two sums that do not wait for each other.
    """
    return [
        *_clamped(vector, -_ERF_END, _ERF_END),
        f"{vector} s = fma(x * x, ({vector}) {2 / _ERF_END**2!r}f, ({vector}) -1.0f), t = s * s;",
        *_horner_sum(vector, "p", "t", _ERF[0::2]),
        *_horner_sum(vector, "q", "t", _ERF[1::2]),
        "return x * fma(s, q, p);",
    ]


def _exp(vector: str) -> list[str]:
    """exp errs by at most 1.6 units in the last place, of the 3 that OpenCL allows, numbers below the normal ones included.

    The argument is reduced as by W. J. Cody and W. Waite, "Software Manual for the Elementary Functions" (1980), chapter 6,
    by multiples 2n of log(2) though: the value is ``p(r) 2**n 2**n``, whose parts are numbers wherever it is one itself.
    """
    high, low = _TWICE_LOG_2
    rounding = f"({vector}) {_ROUNDING + _BIAS}f"
    return [
        *_clamped(vector, *_EXP_ENDS),
        f"const {vector} m = fma(x, ({vector}) {1 / (high + low)!r}f, {rounding}), n = m - {rounding};",
        f"const {vector} r = fma(n, ({vector}) {-low!r}f, fma(n, ({vector}) {-high!r}f, x));",
        *_horner_sum(vector, "p", "r", _EXP),
        f"const {vector} scale = as_{vector}(as_{vector.replace('float', 'int')}(m) << 23);",
        "return p * scale * scale;",
    ]


_INVERSE: Final = f"""\
static inline {INVERSE_TYPE} {INVERSE}(float y)
{{
  const float scale = fabs(y) < 0x1p-100f ? 0x1p+64f : fabs(y) > 0x1p+100f ? 0x1p-64f : 1.0f, scaled = y * scale;
  float first = 1.0f / scaled, lacks = fma(-scaled, first, 1.0f);
  if (lacks < 0.0f) {{
    first = as_float(as_int(first) - 1);
    lacks = fma(-scaled, first, 1.0f);
  }}
  return ({INVERSE_TYPE})(scale, first, (lacks > 0.0f ? lacks : 0x1p-40f) * first);
}}"""
"""A power of two, and the inverse of the number times it, in two parts: the second part is what the first one lacks, which
is towards zero, so that nothing infinite is subtracted from itself."""


def _quotients(vector: str) -> list[str]:
    """Quotients are those of a division but for few that err by half a unit more than they have to, for which OpenCL allows
    2.5.  Both sides are multiplied by a power of two before, or inverses of the least and greatest numbers were none.
    """
    return ["x *= inverse.s0;", "return fma(x, inverse.s1, x * inverse.s2);"]
