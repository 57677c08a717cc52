"""Numbers in OpenCL C: types, literals, and arithmetic that is rounded after every instruction.

f16 and bf16 are stored in two bytes and computed in float, whose 24 bits are enough that rounding twice is rounding once.
Integers wrap, so they are added and multiplied as unsigned ones; complex numbers are vectors of two.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from feinsum.elementwise import MATH
from feinsum.languages.tensor.numbers import rounded
from feinsum.languages.tensor.types import BF16, F16, F64, Boolean, TensorScalar

_COMPUTED: Final = {
    "i8": "char", "i16": "short", "i32": "int", "i64": "long", "index": "long", "bf16": "float", "f16": "float",
    "f32": "float", "f64": "double", "c32": "float2", "c64": "double2",
}  # fmt: skip
_STORED: Final = {**_COMPUTED, "bf16": "ushort", "f16": "half", "c32": "float", "c64": "double"}
COMPARISONS: Final = {"eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_SIGNS: Final = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}


def c_type_of(type_: TensorScalar | Boolean) -> str:
    """The type of variables."""
    return "int" if isinstance(type_, Boolean) else _COMPUTED[type_.name]


def pointer_type(type_: TensorScalar) -> str:
    """The C type that pointers to elements point to, for complex numbers that of their parts."""
    return _STORED[type_.name]


def stored_parts(type_: TensorScalar) -> int:
    """How many stored values an element has."""
    return 2 if type_.is_complex else 1


def literal(value: Any, type_: TensorScalar | Boolean) -> str:
    """A constant.

    >>> literal(1.5, TensorScalar("f32")), literal(-2, TensorScalar("i64")), literal(True, Boolean())
    ('0x1.8000000000000p+0f', '(-2L)', '1')
    >>> literal(1e300, TensorScalar("f32"))
    'INFINITY'
    """
    if isinstance(type_, Boolean):
        return str(int(value))
    if type_.is_integer:
        integer = int(np.array(value).astype(f"int{8 * type_.size_bytes}"))
        text = f"{integer}{'L' if type_.size_bytes == 8 else ''}"
        return f"({text})" if integer < 0 else text
    if type_.is_complex:
        part = type_.component
        return f"({c_type_of(type_)})({literal(value.real, part)}, {literal(value.imag, part)})"
    number = float(rounded(value, type_))
    if math.isinf(number):  # a constant beyond its type
        return "INFINITY" if number > 0 else "(-INFINITY)"
    text = number.hex() + ("" if type_ == F64 else "f")
    return f"({text})" if text.startswith("-") else text


def rounding(expression: str, type_: TensorScalar | Boolean) -> str:
    """A float as a number of a narrower type."""
    if type_ == F16:
        return f"round_f16({expression})"
    return f"round_bf16({expression})" if type_ == BF16 else expression


def arithmetic_expression(
    name: str, type_: TensorScalar | Boolean, operands: list[str], result: TensorScalar | Boolean
) -> str:
    """The expression of an instruction on scalars of a type."""
    if isinstance(type_, Boolean):
        return f"!{operands[0]}" if name == "not" else f"({operands[0]} {_SIGNS[name]} {operands[1]})"
    if type_.is_integer:
        return _of_integers(name, type_, operands)
    if type_.is_complex:
        return _complex_expression(name, type_, operands)
    return rounding(_of_floats(name, operands), result)


def _of_integers(name: str, type_: TensorScalar, operands: list[str]) -> str:
    a, b = operands[0], operands[-1]
    c, wide = c_type_of(type_), "ulong" if type_.size_bytes == 8 else "uint"
    if name in ("add", "sub", "mul"):
        return f"({c})(({wide}){a} {_SIGNS[name]} ({wide}){b})"
    if name in ("and", "or", "xor"):
        return f"({c})({a} {_SIGNS[name]} {b})"
    if name in ("div", "rem"):
        return f"{name}_{type_.name.replace('index', 'i64')}({a}, {b})"
    return {
        "min": f"min(({c}){a}, ({c}){b})",
        "max": f"max(({c}){a}, ({c}){b})",
        "shl": f"({c})(({wide}){a} << {b})",
        "shr": f"({c})({a} >> {b})",
        "abs": f"({c})abs({a})",
        "neg": f"({c})(0 - ({wide}){a})",
        "not": f"({c})~{a}",
    }[name]


def _of_floats(name: str, operands: list[str]) -> str:
    a, b = operands[0], operands[-1]
    if name in _SIGNS:
        return f"({a} {_SIGNS[name]} {b})"
    if name == "neg":
        return f"(-{a})"
    function = MATH[name].opencl if name in MATH else {"rem": "fmod"}.get(name, name)
    return f"{function}({', '.join(operands)})"


def _complex_expression(name: str, type_: TensorScalar, operands: list[str]) -> str:
    a, b = operands[0], operands[-1]
    if name in ("add", "sub"):
        return f"({a} {_SIGNS[name]} {b})"
    return {
        "mul": f"mul_{type_.name}({a}, {b})",
        "div": f"div_{type_.name}({a}, {b})",
        "neg": f"(-{a})",
        "abs": f"hypot({a}.x, {a}.y)",
        "conj": f"({c_type_of(type_)})({a}.x, -{a}.y)",
        "re": f"{a}.x",
        "im": f"{a}.y",
        "exp": f"exp_{type_.name}({a})",
        "native_exp": f"exp_{type_.name}({a})",
    }[name]


def comparison(condition: str, type_: TensorScalar | Boolean, a: str, b: str) -> str:
    """Whether two numbers compare."""
    if isinstance(type_, TensorScalar) and type_.is_complex:
        equal = f"({a}.x == {b}.x && {a}.y == {b}.y)"
        return equal if condition == "eq" else f"!{equal}"
    return f"({a} {COMPARISONS[condition]} {b})"


def conversion(expression: str, source: TensorScalar, result: TensorScalar) -> str:
    """A number as one of another type."""
    if source == result:
        return expression
    if result.is_complex:
        c, part = c_type_of(result), c_type_of(result.component)
        if source.is_complex:
            return f"({c})(({part}){expression}.x, ({part}){expression}.y)"
        return f"({c})(({part}){expression}, 0)"
    if result in (F16, BF16):
        return f"round_{result}{'_of_double' if _is_wide(source) else ''}({expression})"
    if result.is_integer and not source.is_integer and result.size_bytes < 4:
        return f"({c_type_of(result)})(int){expression}"
    return f"({c_type_of(result)}){expression}"


def _is_wide(source: TensorScalar) -> bool:
    """Whether a float does not hold the numbers of a type, so that rounding to one would be rounding twice."""
    return source == F64 or (source.is_integer and source.size_bytes > 2)


def zero(type_: TensorScalar | Boolean) -> str:
    """The constant 0."""
    return literal(0 if not (isinstance(type_, TensorScalar) and type_.is_complex) else 0j, type_)


def needs_double(type_: TensorScalar) -> bool:
    return type_ == F64 or type_.name == "c64"


PREAMBLE: Final[dict[str, str]] = {
    "round_f16": """
float round_f16(float x) { ushort bits; vstore_half_rte(x, 0, (half *)&bits); return vload_half(0, (half *)&bits); }
""",
    "round_f16_of_double": """
float round_f16_of_double(double x)
{ ushort bits; vstore_half_rte(x, 0, (half *)&bits); return vload_half(0, (half *)&bits); }
""",
    "round_bf16": """
float round_bf16(float x)
{
    uint const bits = as_uint(x);
    return isnan(x) ? as_float((bits & 0xffff0000u) | 0x400000u)
                    : as_float((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}
""",
    "round_bf16_of_double": """
float round_bf16_of_double(double x)
{
    float single = (float)x;
    if (isfinite(single) && (double)single != x)
        single = as_float((as_uint(single) - (fabs((double)single) > fabs(x) ? 1u : 0u)) | 1u);
    return round_bf16(single);
}
""",
    **{
        f"{name}_{type_}": f"""
{c} {name}_{type_}({c} a, {c} b) {{ return b == 0 ? 0 : b == -1 ? {special} : a {sign} b; }}
"""
        for type_, c in (("i8", "char"), ("i16", "short"), ("i32", "int"), ("i64", "long"))
        for name, sign, special in (("div", "/", f"({c})(0 - (ulong)a)"), ("rem", "%", "0"))
    },
    **{
        f"mul_{type_}": f"""
{c} mul_{type_}({c} a, {c} b) {{ return ({c})(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }}
"""
        for type_, c in (("c32", "float2"), ("c64", "double2"))
    },
    **{
        f"div_{type_}": f"""
/* Smith, Algorithm 116, CACM 1962 */
{c} div_{type_}({c} a, {c} b)
{{
    if (fabs(b.x) >= fabs(b.y)) {{
        if (b.x == 0 && b.y == 0) return ({c})(a.x / fabs(b.x), a.y / fabs(b.x));
        {p} const r = b.y / b.x, d = b.x + b.y * r;
        return ({c})((a.x + a.y * r) / d, (a.y - a.x * r) / d);
    }}
    {p} const r = b.x / b.y, d = b.y + b.x * r;
    return ({c})((a.x * r + a.y) / d, (a.y * r - a.x) / d);
}}
"""
        for type_, c, p in (("c32", "float2", "float"), ("c64", "double2", "double"))
    },
    **{
        f"exp_{type_}": f"""
{c} exp_{type_}({c} a)
{{
    {p} const e = exp(a.x);
    return a.y == 0 ? ({c})(e, a.y) : ({c})(e * cos(a.y), e * sin(a.y));
}}
"""
        for type_, c, p in (("c32", "float2", "float"), ("c64", "double2", "double"))
    },
}  # fmt: skip
"""Functions that expressions call, by name; a kernel gets those whose names are in it, and those that these call."""
