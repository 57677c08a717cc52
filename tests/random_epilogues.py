"""Random epilogues as hypothesis draws them, for any einsum: text, and the arrays that it reads."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from hypothesis import strategies as st

import feinsum as fe
from feinsum.elementwise import MATH, NAMED

_UNARY = [name for name, row in MATH.items() if row.arity == 1] + ["gelu", "gelu_tanh", "silu", "relu", "sigmoid"]
_COMPLEX_UNARY = [name for name, row in NAMED.items() if "c" in row.kinds]


@st.composite
def epilogues(draw: st.DrawFn, e: fe.BatchedEinsum) -> fe.BatchedEinsum:
    """The einsum with an epilogue of its own for each row, one for all, or one output of all."""
    arrays: dict[str, fe.Array] = {}
    same = len(set(e.dtypes)) == 1 and draw(st.booleans())
    if same and e.b > 1 and draw(st.booleans()):
        sums = tuple(f"v{row}" for row in range(e.b))
        text = draw(_expression(e, e.dtypes[0], arrays, sums, depth=3))
        text = " - ".join([f"({text})", *(own for own in sums if not re.search(rf"\b{own}\b(?!\[)", text))])
        return e.then(text, **{name: a for name, a in arrays.items() if f"{name}[" in text or name in text.split()})
    texts = [draw(_expression(e, e.dtypes[row], arrays, ("v",), depth=3)) for row in range(1 if same else e.b)]
    used = {name: a for name, a in arrays.items() if any(f"{name}[" in t or name in t.split() for t in texts)}
    return e.then(texts[0] if same else texts, **used)


@st.composite
def _expression(
    draw: st.DrawFn,
    e: fe.BatchedEinsum,
    dtype: np.dtype[Any],
    arrays: dict[str, fe.Array],
    sums: tuple[str, ...],
    depth: int,
) -> str:
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(_leaf(e, dtype, arrays, sums))

    def inner() -> str:
        return draw(_expression(e, dtype, arrays, sums, depth - 1))

    kind = draw(st.sampled_from(["binary", "binary", "binary", "unary", "choice", "update"]))
    if kind == "update":
        return f"s_{dtype}*({inner()}) + t_{dtype}*out"
    if kind == "unary" and dtype.kind in "fc":
        return f"{draw(st.sampled_from(_UNARY if dtype.kind == 'f' else _COMPLEX_UNARY))}({inner()})"
    if kind == "choice" and dtype.kind != "c":
        return f"where({inner()} < {inner()}, {inner()}, {inner()})"
    signs = ["+", "-", "*", *(["/"] if dtype.kind in "fc" else [])]
    return f"({inner()}) {draw(st.sampled_from(signs))} ({inner()})"


@st.composite
def _leaf(
    draw: st.DrawFn, e: fe.BatchedEinsum, dtype: np.dtype[Any], arrays: dict[str, fe.Array], sums: tuple[str, ...]
) -> str:
    kind = draw(st.sampled_from(["v", "v", "v", "out", "s", "2", "read", "read", "operand"]))
    if kind == "2":
        return "2" if dtype.kind in "iu" else draw(st.sampled_from(["2", "0.5", "0"]))
    if kind == "operand":  # an operand may be read again, if its indices are the output's
        for a, letters in e.array_uses:
            if set(letters) <= set(e.indexing.output) and np.result_type(a.dtype, dtype) == dtype:
                return f"{a.name}[{', '.join(letters)}]" if letters else a.name
    if kind == "v":
        return draw(st.sampled_from(sums))
    if kind in ("out", "s"):
        return f"s_{dtype}" if kind == "s" else kind
    output = e.indexing.output
    letters = [x for x in output if draw(st.booleans())]
    if draw(st.booleans()):
        letters = draw(st.permutations(letters))
    name = f"z{len(arrays)}_{''.join(letters)}"
    arrays[name] = fe.array(name, tuple(e.index_sizes[x] for x in letters), dtype)
    return f"{name}[{', '.join(letters)}]" if letters else f" {name} "
