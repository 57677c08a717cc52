"""Code that is the same from run to run: loopy opens the loops over groups and work-items in the order of their names.

``set_up_hw_parallel_loops`` of loopy 2025.2 (``loopy/codegen/loop.py``) takes these loops out of a set of names, which
Python orders by a hash that differs in every process, ``PYTHONHASHSEED``.  The dimensions of the domain that is done stand
in this order, and isl gives the conditions of an ``if`` in the order of the dimensions: ``if (i <= 9 && j <= 9)`` in one
process is ``if (j <= 9 && i <= 9)`` in another, the same kernel as source that no compiler's cache knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopy.kernel.data import HardwareConcurrentTag, VectorizeTag
from loopy.schedule import get_insn_ids_for_block_at

from feinsum.effects import Replaced


def _build_loop_nest_in_order(set_up: Callable[..., Any]) -> Callable[..., Any]:
    """Loopy's function, which takes the last of the remaining names and calls itself with the others."""

    def in_order(codegen_state: Any, schedule_index: int, next_func: Any, hw_inames_left: list[str] | None = None) -> Any:
        if hw_inames_left is None:
            kernel = codegen_state.kernel
            insns = get_insn_ids_for_block_at(kernel.linearization, schedule_index)
            shared = {
                x for i in insns for x in kernel.insn_inames(i) if kernel.iname_tags_of_type(x, HardwareConcurrentTag)
            }
            hw_inames_left = sorted(x for x in shared if not kernel.iname_tags_of_type(x, VectorizeTag))
        return set_up(codegen_state, schedule_index, next_func, hw_inames_left)

    return in_order


any_order_paused = Replaced("loopy.codegen.loop:set_up_hw_parallel_loops", _build_loop_nest_in_order)
"""Inside, the conditions of the code that loopy generates have the same order in every process."""
