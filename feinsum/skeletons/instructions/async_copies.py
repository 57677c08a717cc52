"""Copies from global to local memory that no work-item waits for.

See :class:`feinsum.devices.vendors.vendor.AsyncCopies`.
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

from feinsum.devices.vendors import known_vendors
from feinsum.devices.vendors.vendor import AsyncCopies, Vendor
from feinsum.errors import TransformError

WIDEST_BYTES = 16
"""The most bytes that skeletons copy at once."""
_DTYPES: dict[np.dtype[Any], str] = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


def copies_for(vendor: Vendor | None) -> AsyncCopies:
    """The copies of a vendor.

    :raises TransformError: if it has none, or none as wide as skeletons make them.
    """
    if vendor is None or vendor.copies is None or vendor.copies.widest_bytes < WIDEST_BYTES:
        raise TransformError(f"the device's vendor has no asynchronous copies of {WIDEST_BYTES} bytes")
    return vendor.copies


def register_async_copies(t_unit: lp.TranslationUnit, copies: AsyncCopies, dtype: np.dtype[Any]) -> lp.TranslationUnit:
    """Let kernels of `t_unit` copy numbers of a type: see :func:`copy_asynchronously`.

    :raises TransformError: for other types than float32 and float64.
    """
    if dtype not in _DTYPES:
        raise TransformError(f"numbers of {dtype} are not copied asynchronously, those of float32 and float64 are")
    for width in _widths(dtype):
        name = _name(copies, dtype, width)
        if name not in t_unit.callables_table:
            t_unit = lp.register_callable(t_unit, name, _AsyncCopy(name))
    return t_unit


def copy_asynchronously(
    copies: AsyncCopies, place: Any, value: Any, there: Any, dtype: np.dtype[Any], width: int = 1, **kwargs: Any
) -> CallInstruction:
    """The instruction that begins to copy an element of an array to local memory, or several in a row.

    Before: ``tile[i] = A[j] if there else 0``; after: ``feinsum_copy_float64(&tile[i], &A[j], 8 if there else 0)``.

    :param value: an element of an array in global memory, or the call of a rule that is one.
    :param width: 1, 2, or as many as make 16 bytes; both places are multiples of the bytes of so many.
    :param there: an expression of 1 and 0; where it is 0 nothing is read, so j may be anywhere.
    :param kwargs: what every instruction of loopy takes.
    """
    return CallInstruction(
        (place,), Call(Variable(_name(copies, dtype, width)), (value, there * (dtype.itemsize * width))), **kwargs
    )


def copy_in_rows(
    copies: AsyncCopies, to: str, begin: str, size: str, places: Sequence[tuple[str, Any]], **kwargs: Any
) -> CInstruction:
    """The instruction that begins to copy 16 bytes to local memory, zeros in place of those that are not there.

    :param to: a pointer to local memory, as an expression of C in terms of the names of `places`, as are the others; both
        pointers are multiples of 16 bytes.
    :param begin: a pointer to global memory; where no byte is there it may lead anywhere.
    :param size: how many bytes there are.
    :param places: names and their values, as expressions of loopy.
    """
    return CInstruction(tuple(places), copies.copy(WIDEST_BYTES, to, begin, size), **kwargs)


def commit_copies(copies: AsyncCopies, **kwargs: Any) -> CInstruction:
    """The instruction that closes a group of copies."""
    return CInstruction((), copies.commit, **kwargs)


def wait_for_copies(copies: AsyncCopies, left: int, **kwargs: Any) -> CInstruction:
    """The instruction that waits until at most so many groups of a work-item's copies are under way."""
    return CInstruction((), copies.wait.format(left=left), **kwargs)


def keep_loads_before(copies: AsyncCopies, **kwargs: Any) -> CInstruction:
    """An instruction of no code; the compiler, which would put each load next to what needs it, moves none past it."""
    return CInstruction((), copies.keep_loads, **kwargs)


def _widths(dtype: np.dtype[Any]) -> tuple[int, ...]:
    return 1, 2, WIDEST_BYTES // dtype.itemsize


def _name(copies: AsyncCopies, dtype: np.dtype[Any], width: int) -> str:
    name = f"{copies.function}_{dtype.name}"
    return name if width == 1 else f"{name}x{width}"


def _parsed(name: str) -> tuple[AsyncCopies, np.dtype[Any], int]:
    """The copies, type and width of the numbers that a function copies."""
    known = [vendor.copies for vendor in known_vendors.VENDORS if vendor.copies is not None]
    found = ((copies, dtype, width) for copies in known for dtype in _DTYPES for width in _widths(dtype))
    return next(each for each in found if _name(*each) == name)


class _AsyncCopy(lp.ScalarCallable):  # type: ignore[misc]
    """The copy as loopy sees it: an element in, an element out, and how many bytes of it there are."""

    def with_types(self, arg_id_to_dtype: Mapping[Any, Any], clbl_inf_ctx: Any) -> tuple[Any, Any]:
        number = NumpyType(_parsed(self.name)[1])
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
        copies, dtype, width = _parsed(self.name)
        kind, size = _DTYPES[dtype], width * dtype.itemsize
        # Nothing may use the copies before they were waited for, which is said there, so other accesses may pass this one.
        text = (
            f"static inline void {self.name}(__local {kind} *to, __global {kind} const *from, int bytes)\n{{\n"
            f"  {copies.copy(size, 'to', 'from', 'bytes')}\n}}"
        )
        yield f"61_{self.name}", text
