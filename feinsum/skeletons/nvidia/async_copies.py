"""Copies from global to local memory that no work-item waits for, by ``cp.async`` of NVIDIA devices.

Copies pass through no register, and several tiles may be under way at once: a group of copies is *committed*, and later
waited for by the number of groups that may still be under way.  After the PTX ISA, section "Data Movement and Conversion
Instructions: Asynchronous copy", non-bulk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import loopy as lp
import numpy as np
from constantdict import constantdict
from loopy.expression import dtype_to_type_context
from loopy.kernel.instruction import CallInstruction, CInstruction
from loopy.types import NumpyType
from pymbolic.mapper.stringifier import PREC_NONE
from pymbolic.primitives import Call, Variable

from feinsum.errors import TransformError

WIDEST_BYTES = 16
_DTYPES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


def register_async_copies(t_unit: lp.TranslationUnit, dtype: np.dtype[Any]) -> lp.TranslationUnit:
    """Let kernels of `t_unit` copy numbers of a type: see :func:`copy_asynchronously`.

    :raises TransformError: for other types than float32 and float64.
    """
    if dtype not in _DTYPES:
        raise TransformError(f"numbers of {dtype} are not copied asynchronously, those of float32 and float64 are")
    for width in (1, 2, WIDEST_BYTES // dtype.itemsize):
        name = _name(dtype, width)
        if name not in t_unit.callables_table:
            t_unit = lp.register_callable(t_unit, name, _Copy(name))
    return t_unit


def copy_asynchronously(
    place: Any, value: Any, there: Any, dtype: np.dtype[Any], width: int = 1, **kwargs: Any
) -> CallInstruction:
    """The instruction that begins to copy an element of an array to local memory, or several in a row.

    Before: ``tile[i] = A[j] if there else 0``; after: ``feinsum_copy_float64(&tile[i], &A[j], 8 if there else 0)``.

    :param value: an element of an array in global memory, or the call of a rule that is one.
    :param width: 1, 2, or as many as make 16 bytes; both places are multiples of the bytes of so many.
    :param there: an expression of 1 and 0; where it is 0 nothing is read, so j may be anywhere.
    :param kwargs: what every instruction of loopy takes.
    """
    return CallInstruction(
        (place,), Call(Variable(_name(dtype, width)), (value, there * (dtype.itemsize * width))), **kwargs
    )


def copy_in_rows(to: str, begin: str, size: str, places: Sequence[tuple[str, Any]], **kwargs: Any) -> CInstruction:
    """The instruction that begins to copy 16 bytes to local memory, zeros in place of those that are not there.

    :param to: a pointer to local memory, as an expression of C in terms of the names of `places`, as are the others; both
        pointers are multiples of 16 bytes.
    :param begin: a pointer to global memory; where no byte is there it may lead anywhere.
    :param size: how many bytes there are.
    :param places: names and their values, as expressions of loopy.
    """
    return CInstruction(tuple(places), _statement(WIDEST_BYTES, to, begin, size), **kwargs)


def commit_copies(**kwargs: Any) -> CInstruction:
    """The instruction that closes a group of copies."""
    return CInstruction((), 'asm volatile("cp.async.commit_group;" ::: "memory");', **kwargs)


def wait_for_copies(left: int, **kwargs: Any) -> CInstruction:
    """The instruction that waits until at most so many groups of a work-item's copies are under way."""
    return CInstruction((), f'asm volatile("cp.async.wait_group {left};" ::: "memory");', **kwargs)


def keep_loads_before(**kwargs: Any) -> CInstruction:
    """An instruction of no code; the compiler, which would put each load next to what needs it, moves none past it."""
    return CInstruction((), 'asm volatile("" ::: "memory");', **kwargs)


def _statement(size: int, to: str, begin: str, there: str) -> str:
    # Whole sectors pass by the first level of cache; smaller pieces, of which several make a sector, do not.
    cache = "cg" if size == WIDEST_BYTES else "ca"
    # A __local pointer is an address of the shared window already; converting it with cvta would be wrong.
    return (
        f'asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size}, %2;"'
        f' : : "r"((uint)(size_t)({to})), "l"((size_t)({begin})), "r"((int)({there})));'
    )


def _name(dtype: np.dtype[Any], width: int) -> str:
    return f"feinsum_copy_{dtype.name}" if width == 1 else f"feinsum_copy_{dtype.name}x{width}"


def _parsed(name: str) -> tuple[np.dtype[Any], int]:
    """Type and width of the numbers that a function copies."""
    kind, _, width = name.removeprefix("feinsum_copy_").partition("x")
    return np.dtype(kind), int(width or 1)


class _Copy(lp.ScalarCallable):  # type: ignore[misc]
    """The copy as loopy sees it: an element in, an element out, and how many bytes of it there are."""

    def with_types(self, arg_id_to_dtype: Mapping[Any, Any], clbl_inf_ctx: Any) -> tuple[Any, Any]:
        number = NumpyType(_parsed(self.name)[0])
        if arg_id_to_dtype.get(0, number) != number:
            raise TransformError(f"'{self.name}' copies {number} and got {arg_id_to_dtype[0]}")
        types = {0: number, 1: NumpyType(np.dtype(np.int32)), -1: number}
        return self.copy(name_in_target=self.name, arg_id_to_dtype=constantdict(types)), clbl_inf_ctx

    def emit_call_insn(self, insn: Any, target: Any, expression_to_code_mapper: Any) -> tuple[Any, bool]:
        def code(expression: Any, dtype: Any) -> Any:
            return expression_to_code_mapper(expression, PREC_NONE, dtype_to_type_context(target, dtype), dtype).expr

        value, size = insn.expression.parameters
        number, integer = self.arg_id_to_dtype[0], self.arg_id_to_dtype[1]
        addresses = (Variable("&")(code(x, number)) for x in (insn.assignees[0], value))
        return Variable(self.name_in_target)(*addresses, code(size, integer)), False

    def generate_preambles(self, target: Any) -> Iterator[tuple[str, str]]:
        dtype, width = _parsed(self.name)
        kind, size = _DTYPES[dtype], width * dtype.itemsize
        # Nothing may use the copies before they were waited for, which is said there, so other accesses may pass this one.
        text = (
            f"static inline void {self.name}(__local {kind} *to, __global {kind} const *from, int bytes)\n{{\n"
            f"  {_statement(size, 'to', 'from', 'bytes')}\n}}"
        )
        yield f"61_{self.name}", text
