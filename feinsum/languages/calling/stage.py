"""Stages: the einsums of programs that :func:`feinsum.generate` makes kernels for.

The steps of a contraction of arrays (:class:`feinsum.contract.contraction_plan.PlannedStep`) have a rule of their own on
lengths: each call may bring others, where a program is made once for what it says and what its calls repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from feinsum.einsum import BatchedEinsum
from feinsum.generate import generate
from feinsum.languages.calling.protocols import INSTANCES, BuildRequest

if TYPE_CHECKING:
    from feinsum.kernel.kernel import Kernel

T = TypeVar("T")
LONG_AXIS: Final = 1 << 15
"""Lengths of results from here on are long axes of einsums, so that one kernel serves all of them; to know shorter ones
saves a sixth of the time of a product on a CPU."""


@dataclass(frozen=True)
class EinsumStage(Generic[T]):
    """An einsum to be launched.

    :ivar einsum: with its epilogue; axes whose lengths the text of the program does not say are long.
    :ivar operands: what each of its arrays is in the program, by name.
    """

    einsum: BatchedEinsum
    operands: Mapping[str, T]

    @cached_property
    def open(self) -> tuple[str, ...]:
        """The letters of lengths that a call brings, save the number of instances, which is never compiled in."""
        return tuple(x for x, axis in self.einsum.index_sizes.items() if isinstance(axis, str) and axis != INSTANCES)

    def kernel(self, request: BuildRequest, sizes: Mapping[str, int], looped: str = "") -> Kernel:
        """The kernel for any lengths of long axes.

        :param sizes: lengths that are expected, by axis; those of other axes are left out.
        :param looped: letters over which it is to loop, see :func:`feinsum.generate`.
        """
        expected = {axis: size for axis, size in sizes.items() if axis in self.einsum.long_axes}
        return generate(self.einsum, request.device, request.database, expected, request.tune, looped=looped)

    def kernel_at(self, request: BuildRequest, lengths: Mapping[str, int]) -> Kernel:
        """The kernel with the lengths of a call compiled in, as far as kernels are to know them.

        Those of sums always are: a kernel divides a sum among groups, and among blocks that stay in a cache, only where it
        knows the length.

        :param lengths: of each index.
        """
        output = self.einsum.indexing.output
        e = self.einsum.with_sizes({x: lengths[x] for x in self.open if lengths[x] < LONG_AXIS or x not in output})
        return EinsumStage(e, self.operands).kernel(request, e.sizes_from(lengths))
