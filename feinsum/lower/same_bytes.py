"""Copies that code generation leaves out: an array of complex numbers has the same bytes as an array of their parts.

``row[i, 0] = real(A[i]); row[i, 1] = imag(A[i])`` says in loopy's terms that ``row`` is A; where it stands in a launch of
its own, that launch is dropped, and the others are given A for ``row``.
"""

from __future__ import annotations

import loopy as lp
from loopy.kernel.array import FixedStrideArrayDimTag
from loopy.symbolic import CoefficientCollector
from pymbolic.primitives import Subscript, Variable
from pytools.tag import Tag, tag_dataclass


@tag_dataclass
class SameBytes(Tag):  # type: ignore[misc]  # pytools is not typed for strict checking
    """A tag of instructions that copy an array byte by byte, in order.

    :ivar kept: the argument of the kernel, which is to stand for both.
    :ivar copy: the temporary in global memory.
    """

    kept: str
    copy: str


def runs_through(kernel: lp.LoopKernel, element: object, loops: dict[str, int | str]) -> bool:
    """Whether some loops, the outermost first, go through all of an argument of the kernel in the order of its memory.

    :param element: what they read or write in each iteration.
    :param loops: their lengths.
    """
    if not isinstance(element, Subscript) or element.aggregate.name not in kernel.arg_dict:
        return False
    array = kernel.arg_dict[element.aggregate.name]
    if array.offset or not all(isinstance(tag, FixedStrideArrayDimTag) for tag in array.dim_tags):
        return False
    address = sum(entry * tag.stride for entry, tag in zip(element.index_tuple, array.dim_tags, strict=True))
    step: object = 1
    steps = {}
    for loop, length in reversed(loops.items()):
        steps[Variable(loop)] = step
        step = step * (Variable(length) if isinstance(length, str) else length)  # type: ignore[operator]
    try:
        found = CoefficientCollector(list(loops))(address)
    except (NotImplementedError, RuntimeError):  # not linear in them
        return False
    return bool(found == steps)


def without_copies(kernel: lp.LoopKernel, launches: dict[str, frozenset[str]]) -> tuple[list[str], dict[str, str]]:
    """The launches that are more than copies of bytes, and the argument that stands for each array copied.

    :param launches: the instructions of each.
    """
    needed: list[str] = []
    stands_for: dict[str, str] = {}
    for name, insn_ids in launches.items():
        tags = [kernel.id_to_insn[insn_id].tags_of_type(SameBytes) for insn_id in insn_ids]
        found = {tag.copy: tag.kept for own in tags for tag in own}
        # Two outputs with a common value: one has it, and the other gets a copy.
        if all(tags) and all(stands_for.get(copy, kept) == kept for copy, kept in found.items()):
            stands_for |= found
        else:
            needed.append(name)
    return needed, stands_for
