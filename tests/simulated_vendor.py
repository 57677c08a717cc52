"""A vendor that is simulated: its unit has another shape than those of real ones, and its text is plain OpenCL C."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from feinsum.devices import DeviceProfile
from feinsum.devices.vendors.units import FragmentLayout, LayoutDigit, MatrixUnit

if TYPE_CHECKING:
    import pyopencl as cl


# begin unit
@dataclass(frozen=True)
class SimulatedUnit(MatrixUnit):
    """(32, 2) times (2, 4) by 16 lanes, which read each other's registers."""

    def statement(self, d: str, a: str, b: str) -> str:
        lines = ["uint lane = get_sub_group_local_id();"]
        for register in range(8):  # row lane / 4 + 4 register and column lane % 4 of D
            for k in range(2):
                x = f"sub_group_shuffle({a}{register // 4 + 2 * k}, lane / 4 + {4 * (register % 4)})"
                lines.append(f"{d}{register} += {x} * sub_group_shuffle({b}0, lane % 4 + {4 * k});")
        return "{ " + " ".join(lines) + " }"


UNIT = SimulatedUnit(
    "simulated-m32n4k2",
    m=32,
    n=4,
    k=2,
    operand="float64",
    dtype="double",
    # lane l has rows l and l + 16 of both columns of A, in registers row by row
    a=FragmentLayout((LayoutDigit(16, 1, 0),), (LayoutDigit(2, 16, 0), LayoutDigit(2, 0, 1))),
    # lanes 0 to 3 have row 0 of B, lanes 4 to 7 row 1, and the other lanes the same again
    b=FragmentLayout((LayoutDigit(4, 0, 1), LayoutDigit(2, 1, 0), LayoutDigit(2, 0, 0))),
    # lane l has column l % 4 of D, and of its rows every fourth from l / 4 on
    d=FragmentLayout((LayoutDigit(4, 0, 1), LayoutDigit(4, 1, 0)), (LayoutDigit(8, 4, 0),)),
    lanes=16,
    attribute="__attribute__((intel_reqd_sub_group_size(16)))",
)
# end unit


# begin vendor
class Simulated:
    """Its devices have the unit alone: no copies, no shuffles, and nothing to ask its driver."""

    runtime = "simulated"
    sub_group_sizes: tuple[int, ...] = (16,)
    schedulers = 1
    reserved_local_bytes = 0
    matrix_units: tuple[MatrixUnit, ...] = (UNIT,)
    copies = None
    shuffles = None
    sub_group_barrier = "sub_group_barrier(CLK_LOCAL_MEM_FENCE);"

    def pause(self, nanoseconds: str) -> str:
        return ""

    def hide(self, name: str, size: int) -> str:
        return ""

    def facts(self, device: cl.Device) -> Mapping[str, Any]:
        return {}

    def build_options(self, device: cl.Device) -> tuple[str, ...]:
        return ()

    def promised(self, profile: DeviceProfile) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return tuple(unit.name for unit in self.matrix_units), ()


SIMULATED = Simulated()
# end vendor
