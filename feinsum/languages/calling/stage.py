"""Stages: the einsums of programs for which :func:`feinsum.generate` makes kernels.

A stage fixes the lengths that the program states and those that its calls repeat.  The steps of a contraction of arrays
(:class:`feinsum.contract.contraction_plan.PlannedStep`) treat lengths otherwise, as each call may bring others.
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
"""Result axes at least this long are long axes of the einsum, so that one kernel serves all lengths; shorter lengths are
compiled in, which saves a sixth of the time of a product on a CPU."""


@dataclass(frozen=True)
class EinsumStage(Generic[T]):
    """An einsum to be launched.

    :ivar einsum: the einsum with its epilogue; axes whose lengths the program does not state are long.
    :ivar operands: the object of the program that each array of the einsum stands for, by name.
    """

    einsum: BatchedEinsum
    operands: Mapping[str, T]

    @cached_property
    def open(self) -> tuple[str, ...]:
        """The indices whose lengths come with a call, save the number of instances, which is never compiled in."""
        return tuple(x for x, axis in self.einsum.index_sizes.items() if isinstance(axis, str) and axis != INSTANCES)

    def kernel(self, request: BuildRequest, sizes: Mapping[str, int], looped: str = "") -> Kernel:
        """The kernel for any lengths of long axes.

        :param sizes: expected lengths by axis; axes that the einsum does not have are ignored.
        :param looped: letters over which it is to loop, see :func:`feinsum.generate`.
        """
        expected = {axis: size for axis, size in sizes.items() if axis in self.einsum.long_axes}
        return generate(self.einsum, request.device, request.database, expected, request.tune, looped=looped)

    def kernel_at(self, request: BuildRequest, lengths: Mapping[str, int]) -> Kernel:
        """The kernel with lengths of a call compiled in: short ones of the result, and all those of sums.

        A kernel divides a sum among groups, and among blocks that stay in a cache, only if it knows the length.

        :param lengths: the length of each index.
        """
        output = self.einsum.indexing.output
        e = self.einsum.with_sizes({x: lengths[x] for x in self.open if lengths[x] < LONG_AXIS or x not in output})
        return EinsumStage(e, self.operands).kernel(request, e.sizes_from(lengths))
