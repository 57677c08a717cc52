"""Matrix units: which products of cooperative matrices a device computes on them, and which values it then holds for them.

A unit multiplies numbers of its operands' type, f32 by splitting them only where sums are long enough for the bound of f32.
Matrices that are operands or results of one instruction are held alike.  So values are put together in *webs*, and a web is
held as units have it, or by rows as everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import lcm
from typing import Final, NamedTuple

from feinsum.devices.vendors.known_vendors import matrix_units
from feinsum.devices.vendors.units import MatrixUnit, UnitTile
from feinsum.languages.tensor.checking.uniformity import UNIFORM, VARYING
from feinsum.languages.tensor.ir import TensorFunction, TensorOperation, TensorRegion, TensorValue
from feinsum.languages.tensor.lowering.target import LEAST_ROWS, NUMBERS, Target
from feinsum.languages.tensor.types import Coopmatrix, TensorScalar

_FILLED: Final = 0.3
"""Of what units multiply, the least that has to be numbers of the matrices: work-items by themselves reach half as much."""


class HeldMatrix(NamedTuple):
    """How units hold a matrix: the fragments of its tiles, and what its depth is padded to a multiple of."""

    tile: UnitTile
    depth: int


def units_for(
    target: Target, a: TensorScalar, b: TensorScalar, total: TensorScalar, terms: int | None
) -> tuple[MatrixUnit, ...]:
    """The units that add products of a and b to a total, the deepest first; none where there are none, or too coarse ones.

    All have the same tiles, and none splits numbers where another takes them whole.

    :param terms: the least number of products that are summed; None if it is unknown.
    """

    def fits(unit: MatrixUnit) -> bool:
        taken = NUMBERS.get(a) == unit.operand and (total == a or NUMBERS.get(total) == unit.number)
        exact = not unit.splits or (terms is not None and unit.error(terms) <= terms)
        return taken and exact and unit.m >= LEAST_ROWS and unit.lanes == target.subgroup_size

    known = (matrix_units().get(name) for name in target.units) if a == b else ()
    found = sorted((unit for unit in known if unit is not None and fits(unit)), key=lambda unit: (unit.splits, -unit.k))
    return tuple(unit for unit in found if (unit.splits, unit.tile) == (found[0].splits, found[0].tile))


def padded(size: int, step: int) -> int:
    """The next multiple."""
    return -(-size // step) * step


def fills(unit: MatrixUnit, rows: int, columns: int, depth: int) -> bool:
    """Whether a product of these lengths is not mostly of zeros that a unit multiplies too."""
    whole = padded(rows, unit.m) * padded(columns, unit.n) * padded(depth, unit.k)
    return rows * columns * depth >= _FILLED * whole


def values_on_units(
    function: TensorFunction, target: Target, levels: Mapping[TensorValue, int]
) -> dict[TensorValue, HeldMatrix]:
    """The coopmatrices of a function that are held as matrix units have them, and how.

    :param levels: how values vary between work-items.
    """
    return _Webs(target, function, levels).held() if target.units else {}


class _Sets:
    """Disjoint sets of values, each known by one of them."""

    def __init__(self) -> None:
        self._parent: dict[TensorValue, TensorValue] = {}

    def __iter__(self) -> Iterator[TensorValue]:
        return iter(tuple(self._parent))

    def find(self, value: TensorValue) -> TensorValue:
        """The one by which the set of a value is known."""
        while self._parent.setdefault(value, value) != value:
            value = self._parent[value]
        return value

    def join(self, values: Iterable[TensorValue]) -> None:
        """Make one set of those of all values."""
        roots = [self.find(value) for value in values]
        self._parent.update((root, roots[0]) for root in roots)


class _Webs:
    """A function is walked once, and its products are judged when it is known how long their sums are.

    :ivar webs: values that are held alike.
    :ivar sums: accumulators that are one sum, from its first product to its last.
    :ivar products: each with how often it is done, at least, for one result.
    :ivar refused: values that units do not hold.
    """

    def __init__(self, target: Target, function: TensorFunction, levels: Mapping[TensorValue, int]) -> None:
        self.target, self.levels = target, levels
        self.webs, self.sums = _Sets(), _Sets()
        self.products: list[tuple[TensorOperation, int]] = []
        self.refused: set[TensorValue] = set()
        self.known = {op.results[0]: op.attributes["value"] for op in function.body.walk() if op.name == "constant"}
        self._region(function.body, UNIFORM, 1)

    def held(self) -> dict[TensorValue, HeldMatrix]:
        """See :func:`values_on_units`."""
        terms: dict[TensorValue, int] = {}
        for operation, times in self.products:
            root = self.sums.find(operation.results[0])
            terms[root] = terms.get(root, 0) + times * _matrix(operation.operands[0]).columns
        found: dict[TensorValue, HeldMatrix] = {}
        for operation, _ in self.products:
            a, b, total = map(_matrix, operation.operands)
            summed = terms[self.sums.find(operation.results[0])]
            units = units_for(self.target, a.component, b.component, total.component, summed)
            if units and fills(units[-1], a.rows, b.columns, summed):
                root, unit = self.webs.find(operation.results[0]), units[-1]
                tile, depth = found.get(root, HeldMatrix(unit.tile, 1))
                found[root] = HeldMatrix(tile, lcm(depth, unit.k))
                if tile == unit.tile:
                    continue
            self.refused.add(operation.results[0])
        refused = {self.webs.find(value) for value in self.refused}
        return {value: found[root] for value in self.webs if (root := self.webs.find(value)) in found.keys() - refused}

    def _region(self, region: TensorRegion, control: int, times: int) -> tuple[TensorValue, ...]:
        """Walk a region; what it yields."""
        for operation in region.operations:
            if operation.name == "yield":
                return operation.operands
            if operation.regions:
                self._control(operation, control, times)
            else:
                self._plain(operation, control, times)
        return ()

    def _plain(self, operation: TensorOperation, control: int, times: int) -> None:
        matrices = [value for value in (*operation.operands, *operation.results) if isinstance(value.type, Coopmatrix)]
        if not matrices:
            return
        self.webs.join(matrices)
        if operation.name == "cooperative_matrix_mul_add":
            self.products.append((operation, times))
            self._add([operation.operands[2], operation.results[0]])
            if control == VARYING:
                self.refused.add(operation.results[0])
        elif operation.name not in ("cooperative_matrix_load", "cooperative_matrix_store", "cast"):
            # what units have beyond the end of a sum has to stay 0
            self.refused.update(value for value in matrices if _matrix(value).use != "matrix_acc")

    def _control(self, operation: TensorOperation, control: int, times: int) -> None:
        carried = len(operation.results)
        bounds = operation.operands[: len(operation.operands) - carried if operation.name == "for" else None]
        inside = max([control, *(self.levels.get(value, UNIFORM) for value in bounds)])
        if operation.name == "foreach":
            inside = VARYING
        if operation.name == "for":
            times = times * self._trips(bounds) if any(isinstance(v.type, Coopmatrix) for v in operation.results) else 1
        groups: list[tuple[TensorValue, ...]] = [self._region(region, inside, times) for region in operation.regions]
        if operation.name == "for":
            groups += [operation.operands[len(bounds) :], operation.regions[0].parameters[1:]]
        if not carried:
            return
        for values in zip(operation.results, *groups, strict=True):
            if isinstance(values[0].type, Coopmatrix):
                self.webs.join(values)
                self._add(values)

    def _add(self, values: Iterable[TensorValue]) -> None:
        """One sum; but constants begin many."""
        self.sums.join(value for value in values if value not in self.known)

    def _trips(self, bounds: Sequence[TensorValue]) -> int:
        """How often a loop runs, if the text says it; once else."""
        if any(value not in self.known for value in bounds):
            return 1
        begin, end, step = (*(int(self.known[value]) for value in bounds), 1)[:3]
        return max(len(range(begin, end, step)) if step else 1, 1)


def _matrix(value: TensorValue) -> Coopmatrix:
    assert isinstance(value.type, Coopmatrix)
    return value.type
