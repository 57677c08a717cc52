"""Problems: the questions that a space answers, and the types of its answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from feinsum.cost import Work
from feinsum.einsum import BatchedEinsum

if TYPE_CHECKING:
    from feinsum.devices import DeviceProfile

Value = int | float | str | bool
Configuration = Mapping[str, Any]
"""One point of a space: parameter -> a value that JSON can hold."""
Choices = Mapping[str, Sequence[Value]]


@dataclass(frozen=True)
class Problem:
    """The question that a space answers: an einsum in the letters of its pattern, the lengths expected, and the device.

    :ivar einsum: the batched einsum.
    :ivar sizes: the length of every index, long axes at the lengths expected in use.
    :ivar device: what the device can do; a space knows no other hardware numbers.
    """

    einsum: BatchedEinsum
    sizes: Mapping[str, int]
    device: DeviceProfile

    @cached_property
    def itemsize(self) -> int:
        """Bytes of the widest number involved."""
        return max(dtype.itemsize for dtype in (*self.einsum.dtypes, *(a.dtype for a in self.einsum.arrays)))

    @cached_property
    def lengths(self) -> dict[str, int]:
        """The lengths expected of the long axes, as :meth:`BatchedEinsum.resolve` takes them."""
        return self.einsum.sizes_from(self.sizes)

    @cached_property
    def least_bytes(self) -> int:
        """The bytes that must move at least, see :meth:`BatchedEinsum.min_bytes`."""
        return self.einsum.min_bytes(self.lengths)

    def count(self, letters: str) -> int:
        """The number of points spanned by some indices."""
        return math.prod(self.sizes[letter] for letter in letters)

    def is_long(self, letter: str) -> bool:
        """Whether the length of an index is unknown until the kernel is called."""
        return not isinstance(self.einsum.index_sizes[letter], int)

    @property
    def lanes(self) -> int:
        """The lanes of the widest vectors of a CPU, of the widest numbers involved."""
        return max(2, min(16, (self.device.simd_bytes or 16) // self.itemsize))

    def work_of_numbers(self, work: Work) -> Work:
        """The work of a loop nest on the numbers of this einsum, where `work` takes them for real.

        Complex numbers take four times the operations, and compilers for CPUs make no vectors of them.
        """
        if all(dtype.kind != "c" for dtype in self.einsum.dtypes):
            return work
        return replace(work, flops=4 * work.flops, lanes=1 if self.device.simd_bytes else work.lanes)

    def divisors(self, letter: str) -> list[int]:
        """The lengths that divide that of an index, ascending; none of one that is long."""
        if self.is_long(letter):
            return []
        length = self.sizes[letter]
        small = [n for n in range(1, math.isqrt(length) + 1) if length % n == 0]
        return sorted({*small, *(length // n for n in small)})

    def exceeds(self, *, work_items: int | tuple[int, ...] = 1, local_bytes: int = 0, private_bytes: int = 0) -> str | None:
        """Why the device cannot hold a work-group of this kind, or None: the one check against its limits.

        :param work_items: work-items of a group, along each axis if a tuple.
        :param local_bytes: local memory of a group.
        :param private_bytes: private memory of a work-item that has to stay in registers to be worth it.
        """
        axes = (work_items,) if isinstance(work_items, int) else work_items
        if math.prod(axes) > self.device.max_work_group_size:
            return f"{math.prod(axes)} work-items exceed the {self.device.max_work_group_size} of a work-group"
        for axis, (items, most) in enumerate(zip(axes, self.device.max_work_item_sizes, strict=False)):
            if items > most:
                return f"{items} work-items exceed the {most} along axis {axis}"
        most = max(self.device.local_memory_bytes, self.device.static_local_memory_bytes)
        if local_bytes > most:
            return f"{local_bytes} bytes of local memory exceed the {most} there are"
        registers = self.device.max_registers_per_work_item
        if registers is not None and private_bytes > 4 * registers:
            return f"{private_bytes} bytes of a work-item exceed the {4 * registers} that stay in registers"
        return None
