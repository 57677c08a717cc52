"""Passes: from a function to one that does the same, in the order of :data:`PASSES`; each can be printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from feinsum.languages.tensor.ir import TensorFunction
from feinsum.languages.tensor.passes.barriers import insert_barriers
from feinsum.languages.tensor.passes.constants import fold_constants
from feinsum.languages.tensor.passes.dead_code import remove_dead_code
from feinsum.languages.tensor.passes.storage import end_lifetimes, place_allocas
from feinsum.languages.tensor.rewriting import with_unique_names

PASSES: Final[dict[str, Callable[[TensorFunction], TensorFunction]]] = {
    "names": with_unique_names,
    "constants": fold_constants,
    "dead-code": remove_dead_code,
    "lifetimes": end_lifetimes,
    "storage": place_allocas,
    "barriers": insert_barriers,
}
"""The passes that need to know nothing of the device."""
