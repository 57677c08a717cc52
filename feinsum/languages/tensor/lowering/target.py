"""Targets: how many work-items share an instance of a function, and in what they compute.

Sub-groups of one work-item are sub-groups (the reference leaves it to the implementation how work is spread), so on a
processor one work-item computes an instance, with vectors, unless the function can see the difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from feinsum.devices import DeviceProfile
from feinsum.devices.vendors.known_vendors import matrix_units, shuffles_of
from feinsum.devices.vendors.vendor import Shuffles
from feinsum.errors import DeviceError
from feinsum.languages.tensor.definitions import LINEAR_ALGEBRA
from feinsum.languages.tensor.ir import TensorFunction, TensorOperation, TensorValue
from feinsum.languages.tensor.memory_effects import TALKS
from feinsum.languages.tensor.types import BF16, F16, F32, F64, I8, I16, I32, TensorMemref, TensorScalar

_USUAL_SUBGROUP = {"gpu": 32}
_SEEN = frozenset({"num_subgroups", "subgroup_size", "subgroup_id", "subgroup_local_id"})
_MOST_WORK_ITEMS = 256
_TILES_OF_SUBGROUP = 4
"""Tiles of the largest result that a sub-group of a GPU takes one after the other.  This, and work-groups of 64 work-items
at least, is the best of 1, 2, 4 and 8 sub-groups for most of sixteen programs on an H200 on 2026-11-24; with 32 work-items
updates of 16x16 and 32x32 matrices took 2.2 to 2.8 times as long, which was not explained."""
NUMBERS: Final[dict[TensorScalar, str]] = {F64: "float64", F32: "float32", F16: "float16", BF16: "bfloat16"}
"""The types that matrix units multiply, in the words of numpy."""
LEAST_ROWS = 16
"""The least rows of a matrix unit: a sub-group takes four tiles of 16 rows, and units with fewer were not measured."""


@dataclass(frozen=True)
class Target:
    """Work-items and widths.

    :ivar subgroup_size: work-items of a sub-group.
    :ivar work_group_size: work-items in two dimensions, of which the first is a multiple of `subgroup_size`.
    :ivar simd_bytes: the bytes of a vector of one work-item; 0 if it has no vectors.
    :ivar vectors: the number of vector registers.
    :ivar shuffles: the shuffles by which sub-groups exchange values; None if they use local memory.
    :ivar units: the names of the matrix units that sub-groups have.
    """

    subgroup_size: int
    work_group_size: tuple[int, int]
    simd_bytes: int = 0
    vectors: int = 16
    shuffles: Shuffles | None = None
    units: tuple[str, ...] = ()

    @property
    def work_items(self) -> int:
        return self.work_group_size[0] * self.work_group_size[1]

    @property
    def subgroups(self) -> int:
        return self.work_items // self.subgroup_size

    @property
    def is_alone(self) -> bool:
        """Whether a work-group is one work-item."""
        return self.work_items == 1

    def vector_width(self, rows: int, type_: TensorScalar) -> int:
        """How many rows of a matrix a vector holds: as many as the fewest vectors need, and no more."""
        if not self.is_alone or type_.is_complex or not self.simd_bytes:
            return 1
        most = min(self.simd_bytes // computed_type(type_).size_bytes, 16)
        width = 1
        while width < most and -(-rows // width) > -(-rows // most):
            width *= 2
        return width


def computed_type(type_: TensorScalar) -> TensorScalar:
    """The type in which numbers of a type are computed: half precision in single.

    >>> print(computed_type(F16), computed_type(I8))
    f32 i8
    """
    return F32 if type_ in (F16, BF16) else type_


def summed_in(type_: TensorScalar) -> TensorScalar:
    """The type in which sums are accumulated that become numbers of a type."""
    return F32 if type_ in (F16, BF16) else I32 if type_ in (I8, I16) else type_


def is_observable(function: TensorFunction) -> bool:
    """Whether a function can see how its work is spread over work-items."""
    return any(_sees(operation) for operation in function.body.walk()) or any(
        op.attributes.get("atomic") == "atomic_add" for op in _collective(function.body.operations)
    )


def _sees(operation: TensorOperation) -> bool:
    name = operation.name
    if name == "builtin":
        return operation.attributes["builtin"] in _SEEN
    if name in ("parallel", "foreach"):
        inside = operation.regions[0].walk()
        return name == "parallel" and any(inner.attributes.get("atomic") == "atomic_add" for inner in inside)
    return name in TALKS and name != "barrier"


def _collective(operations: Iterable[TensorOperation]) -> Iterable[TensorOperation]:
    """The stores of collective regions."""
    for operation in operations:
        if operation.name == "store":
            yield operation
        elif operation.name in ("for", "if"):
            for region in operation.regions:
                yield from _collective(region.operations)


def choose_target(function: TensorFunction, profile: DeviceProfile) -> Target:
    """How a function is spread over work-items of a device.

    :raises DeviceError: if the device has not what the function asks for.
    """
    shuffles = shuffles_of(profile)
    if profile.kind == "cpu" and not is_observable(function):
        return Target(1, (1, 1), profile.simd_bytes, profile.vectors)
    items = function.attributes.get("subgroup_size")
    group = function.attributes.get("work_group_size")
    if items is None:
        items = _subgroup_of(function, profile)
        while group is not None and group[0] % items:
            items //= 2
    if group is None:
        group = (items * _subgroups_of(function, items, profile), 1)
    units = (*profile.matrix_units, *profile.instructions)
    if shuffles is not None and (items > shuffles.most_lanes or items & (items - 1)):
        shuffles = None
    target = Target(items, (group[0], group[1]), 0, 16, shuffles, units)
    _check_target(function, target, profile)
    return target


def _subgroup_of(function: TensorFunction, profile: DeviceProfile) -> int:
    """16 or 32 where the function can see it, or else so many that few are idle, or as matrix units have lanes."""
    usual = _USUAL_SUBGROUP.get(profile.kind, 16)
    if is_observable(function):
        return usual
    tallest = max((rows for rows, _ in result_shape(function)), default=usual)
    gemms = [op for op in function.body.walk() if op.name == "gemm"]
    numbers = {_number(gemm.operands[i]) for gemm in gemms for i in (1, -1)}
    units = (matrix_units().get(name) for name in (*profile.matrix_units, *profile.instructions))
    fitting = [unit for unit in units if unit and unit.m >= LEAST_ROWS and unit.operand in numbers]
    double = [unit.lanes for unit in fitting if unit.operand == "float64"]
    lanes = double or [unit.lanes for unit in fitting]
    if tallest > 8 and lanes and (double or usual not in lanes):
        return lanes[0]
    items = usual
    while items > 4 and items // 2 >= tallest:
        items //= 2
    return items


def _number(memref: TensorValue) -> str | None:
    """The type of a memref's elements in the words of numpy; None where no unit has it."""
    return NUMBERS.get(memref.type.element) if isinstance(memref.type, TensorMemref) else None


def _subgroups_of(function: TensorFunction, items: int, profile: DeviceProfile) -> int:
    """Enough for the largest result to keep every work-item busy; on GPUs fewer, as sub-groups wait for each other."""
    wanted = max((-(-rows // items) * -(-columns // 8) for rows, columns in result_shape(function)), default=1)
    most = max(min(_MOST_WORK_ITEMS, profile.max_work_group_size) // items, 1)
    if profile.kind == "gpu":
        wanted = max(-(-wanted // _TILES_OF_SUBGROUP), -(-(32 if items < 16 else 64) // items))
    return min(wanted, most)


def result_shape(function: TensorFunction) -> Iterable[tuple[int, int]]:
    """Rows and columns of what linear algebra writes."""
    for operation in function.body.walk():
        if operation.name in LINEAR_ALGEBRA:
            type_ = operation.operands[-1].type
            assert isinstance(type_, TensorMemref)
            shape = [64 if size is None else size for size in (*type_.shape, 1, 1)]
            yield shape[0], shape[1]


def _check_target(function: TensorFunction, target: Target, profile: DeviceProfile) -> None:
    most = min(profile.max_work_group_size, profile.max_work_item_sizes[0])
    if target.work_items > most:
        raise DeviceError(
            f"@{function.name} wants work-groups of {target.work_items} work-items, and {profile.name} has at most {most}: "
            "ask for a smaller work_group_size"
        )
    if target.subgroup_size > most:
        raise DeviceError(
            f"@{function.name} wants sub-groups of {target.subgroup_size}, and work-groups have at most {most}"
        )
