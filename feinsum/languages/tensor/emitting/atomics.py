"""Atomics: functions that add to an element while others do, by what the device has for its size.

    32-bit and 64-bit integers      atomic_add, atom_add
    f32, f64, parts of c32, c64     compare and swap of the bits
    8 and 16 bits                   compare and swap of the aligned word around them

All are relaxed.  Atomic stores are stores: each of up to eight bytes, aligned, is one access, and a complex number is two.
"""

from __future__ import annotations

from typing import Final

_FLOATING: Final = """
void atomic_add_{type}_{space}(volatile __{space} {c} *p, {c} v)
{{
    volatile __{space} {bits} *const word = (volatile __{space} {bits} *)p;
    {bits} old = *word, seen;
    while ((seen = {swap}(word, old, as_{bits}(as_{c}(old) + v))) != old)
        old = seen;
}}
"""
_NARROW: Final = """
void atomic_add_{type}_{space}(volatile __{space} {c} *p, {v} v)
{{
    size_t const place = (size_t)p;
    volatile __{space} uint *const word = (volatile __{space} uint *)(place & ~(size_t)3);
    uint const shift = 8 * (uint)(place & 3), mask = {mask}u << shift;
    uint old = *word, seen, sum;
    while (true) {{
        {u} const bits = ({u})(old >> shift);
        sum = (old & ~mask) | ((uint)({u}){add} << shift);
        if ((seen = atomic_cmpxchg(word, old, sum)) == old)
            return;
        old = seen;
    }}
}}
"""
_INTEGER: Final = """
void atomic_add_{type}_{space}(volatile __{space} {c} *p, {c} v) {{ {add}(p, v); }}
"""


def function(type_: str, space: str) -> str:
    """The function that adds to an element of a type in an address space: ``atomic_add_TYPE_SPACE(pointer, value)``."""
    match type_:
        case "i32":
            return _INTEGER.format(type=type_, space=space, c="int", add="atomic_add")
        case "i64":
            return _INTEGER.format(type=type_, space=space, c="long", add="atom_add")
        case "f32":
            return _FLOATING.format(type=type_, space=space, c="float", bits="uint", swap="atomic_cmpxchg")
        case "f64":
            return _FLOATING.format(type=type_, space=space, c="double", bits="ulong", swap="atom_cmpxchg")
        case "i8":
            return _NARROW.format(
                type=type_, space=space, c="char", v="char", u="uchar", mask="0xff", add="(bits + (uint)v)"
            )
        case "i16":
            return _NARROW.format(
                type=type_, space=space, c="short", v="short", u="ushort", mask="0xffff", add="(bits + (uint)v)"
            )
        case "f16":
            return _NARROW.format(type=type_, space=space, c="half", v="float", u="ushort", mask="0xffff",
                                  add="bits_of_f16(f16_of_bits(bits) + v)")  # fmt: skip
        case _:
            return _NARROW.format(type=type_, space=space, c="ushort", v="float", u="ushort", mask="0xffff",
                                  add="bits_of_bf16(round_bf16(as_float((uint)bits << 16) + v))")  # fmt: skip


HELPERS: Final = {
    "bits_of_f16": """
ushort bits_of_f16(float x) { ushort bits; vstore_half_rte(x, 0, (half *)&bits); return bits; }
""",
    "f16_of_bits": """
float f16_of_bits(ushort bits) { return vload_half(0, (half *)&bits); }
""",
    "bits_of_bf16": """
ushort bits_of_bf16(float x) { return (ushort)(as_uint(x) >> 16); }
""",
}
WIDE: Final = frozenset({"i64", "f64"})
"""Types whose additions need 64-bit atomics."""
