"""Asynchronous copies, ``cp.async``, and exchange between lanes, ``shfl.sync``, of NVIDIA devices as inline PTX.

After the PTX ISA, sections "Data Movement and Conversion Instructions: Asynchronous copy", non-bulk, and "shfl.sync".
"""

from __future__ import annotations

from feinsum.devices.vendors.vendor import AsyncCopies, Shuffles

_WIDEST_BYTES, _LANES = 16, 32


def _copy(size: int, to: str, begin: str, there: str) -> str:
    # Whole sectors bypass the first-level cache; smaller pieces, of which several make a sector, do not.
    cache = "cg" if size == _WIDEST_BYTES else "ca"
    # A __local pointer is an address of the shared window already; converting it with cvta would be wrong.
    return (
        f'asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size}, %2;"'
        f' : : "r"((uint)(size_t)({to})), "l"((size_t)({begin})), "r"((int)({there})));'
    )


CP_ASYNC = AsyncCopies(
    "cp-async-16",
    "feinsum_copy",
    _WIDEST_BYTES,
    _copy,
    commit='asm volatile("cp.async.commit_group;" ::: "memory");',
    wait='asm volatile("cp.async.wait_group {left};" ::: "memory");',
    keep_loads='asm volatile("" ::: "memory");',
)


def _functions(kind: str) -> dict[str, str]:
    """The functions that exchange values of 32 and of 64 bits, by name."""
    return {
        f"shfl_{kind}_32": f"""
uint shfl_{kind}_32(uint x, uint by, uint limits)
{{
    uint y;
    asm volatile("shfl.sync.{kind}.b32 %0, %1, %2, %3, 0xffffffff;" : "=r"(y) : "r"(x), "r"(by), "r"(limits));
    return y;
}}
""",
        f"shfl_{kind}_64": f"""
ulong shfl_{kind}_64(ulong x, uint by, uint limits)
{{
    return (ulong)shfl_{kind}_32((uint)(x >> 32), by, limits) << 32 | shfl_{kind}_32((uint)x, by, limits);
}}
""",
    }


def _call(kind: str, lanes: int, bits: int, value: str, by: str) -> str:
    # The last operand: the mask of a segment, and its last lane, or its first for shfl.up.
    limits = ((_LANES - lanes) << 8) | (0 if kind == "up" else _LANES - 1)
    return f"shfl_{kind}_{bits}({value}, (uint)({by}), {limits}u)"


SHFL_SYNC = Shuffles(
    "shfl-sync",
    _LANES,
    {name: text for kind in ("idx", "up", "bfly") for name, text in _functions(kind).items()},
    _call,
)
