"""The protocol of a vendor: what devices of one maker can do beyond OpenCL C, as data and as the text of instructions.

Whether a device's driver builds an instruction is tried by the probe; a profile then lists its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from feinsum.devices.vendors.units import MatrixUnit

if TYPE_CHECKING:
    import pyopencl as cl

    from feinsum.devices.profile import DeviceProfile


class AsyncCopies(Protocol):
    """Copies from global to local memory that no work-item waits for.

    They pass through no register, and several tiles may be under way at once: a group of copies is *committed*, and later
    waited for by the number of groups that may still be under way.

    :ivar name: in the instructions of a profile.
    :ivar widest_bytes: the most bytes of one copy; places of this many are multiples of them.
    :ivar commit: the statement that closes a group of copies.
    :ivar keep_loads: a statement of no code past which the compiler moves no load.
    """

    name: str
    widest_bytes: int
    commit: str
    keep_loads: str

    def function(self, dtype: str) -> str:
        """The beginning of the names of functions that copy numbers of a type of numpy; no other vendor has it."""
        ...

    def copy(self, size: int, to: str, begin: str, there: str) -> str:
        """The statement that begins to copy `there` bytes to local memory, and zeros for the rest of `size` bytes.

        :param to: a pointer to local memory, as an expression of C, and `begin` one to global memory.
        """
        ...

    def wait(self, left: int) -> str:
        """The statement that waits until at most `left` groups of a work-item's copies are under way."""
        ...


class Shuffles(Protocol):
    """Exchange of values between the lanes of a sub-group, from register to register.

    :ivar name: in the instructions of a profile.
    :ivar most_lanes: of the largest sub-group that exchanges them; smaller ones are powers of two.
    :ivar functions: the OpenCL C functions that :meth:`call` calls, by name.
    """

    name: str
    most_lanes: int
    functions: Mapping[str, str]

    def call(self, kind: str, lanes: int, bits: int, value: str, by: str) -> str:
        """An expression for a value of another lane, in sub-groups of `lanes`.

        :param kind: which lane: ``"idx"`` number `by`, ``"up"`` this one less `by`, ``"bfly"`` this one xor `by`.
        :param bits: 32 for a value of type uint, 64 for ulong, as is the expression.
        """
        ...


class Vendor(Protocol):
    """What one maker's devices can do.

    :ivar runtime: of its devices, see :attr:`feinsum.devices.DeviceProfile.runtime`.
    :ivar sub_group_sizes: the sizes of sub-groups for which the instructions are.
    :ivar schedulers: of a compute unit; each issues instructions of its own sub-groups.
    :ivar reserved_local_bytes: local memory that the driver takes of each work-group.
    :ivar matrix_units: as data, those for numbers of two bytes included.
    :ivar sub_group_barrier: the statement after which the lanes of a sub-group see what others wrote to local memory.
    """

    runtime: str
    sub_group_sizes: tuple[int, ...]
    schedulers: int
    reserved_local_bytes: int
    matrix_units: tuple[MatrixUnit, ...]
    copies: AsyncCopies | None
    shuffles: Shuffles | None
    sub_group_barrier: str

    def pause(self, nanoseconds: str) -> str:
        """The statement that makes a sub-group wait for about as long as a variable says."""
        ...

    def hide(self, name: str, size: int) -> str:
        """The statement by which the compiler forgets what it knows of an integer variable of `size` bytes."""
        ...

    def facts(self, device: cl.Device) -> Mapping[str, Any]:
        """The fields of a profile that this vendor's drivers know best; empty for devices of other vendors."""
        ...

    def build_options(self, device: cl.Device) -> tuple[str, ...]:
        """Options of the compiler on which the text of instructions relies; none for devices of other vendors."""
        ...

    def promised(self, profile: DeviceProfile) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of what a device should have, as its profile lists them: matrix units, and other instructions.

        Whether its driver builds them is tried.
        """
        ...
