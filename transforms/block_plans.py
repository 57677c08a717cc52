"""Plans of contractions in blocks: which letters are rows, columns and sums, how they are fused, and how large blocks are.

Loads and stores should run along the quickest index of every array.  A group of letters begins with the quickest letters
of the output; where an operand has another quickest letter, a few neighbours along it come next, so that what lanes load
together fills whole sectors of memory, and likewise for the quickest letters of both operands among the sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from operator import itemgetter
from string import ascii_letters

from feinsum.contraction import ContractionSchedule, Step
from feinsum.devices.ptx import SUB_GROUP, matrix_unit
from feinsum.einsum import Array, BatchedEinsum
from feinsum.rewrites.async_copies import WIDEST_BYTES
from feinsum.rewrites.blocks import Blocks
from feinsum.rewrites.fragments import MULTIPLY_ADD
from feinsum.rewrites.matrix_units import split_error
from feinsum.space import Configuration, Problem, Value
from feinsum.subscripts import Subscripts

SECTOR_BYTES = 32
"""What a GPU moves at least from or to memory."""
MOST_SHAPES, MOST_ALIKE = 20, 3
SMALLEST_SHAPE = "1 2 2 of 1 1"
REUSED = 1024
"""How often an operand has to be used so that a copy of it in another order is worth it."""
MOST_WASTE = 1.2
MOST_RESIDENT = 4
"""Groups of a multiprocessor beyond which more make no difference."""
GROUPS_WANTED = 6
"""Work-groups for each multiprocessor, among which a sum is split."""
ENOUGH_SUB_GROUPS = 8
"""Of a multiprocessor, so that some multiply while others wait."""
OTHER_REGISTERS = 72
"""Of a work-item: addresses and numbers of loops."""
DEPTHS = (16, 24, 8, 32, 64, 12, 4)
DEPTHS_OF_TWO = (32, 16, 64, 24, 8, 12, 4)
"""With two quickest letters among the sums, whose runs share the depth."""


@dataclass(frozen=True)
class Product:
    """A pairwise contraction seen as a product of matrices.

    :ivar operands: the operand with the rows and that with the columns.
    """

    problem: Problem
    operands: tuple[int, int]

    @cached_property
    def letters(self) -> dict[str, str]:
        """The letters of each group, the quickest of the output first; a letter of unknown length last."""
        indexing = self.problem.einsum.indexing
        a, b = (set(indexing.inputs[k]) for k in self.operands)
        output = indexing.output[::-1]
        found = {
            "rows": [x for x in output if x in a - b],
            "columns": [x for x in output if x in b - a],
            "batch": [x for x in output if x in a & b],
            "sums": [x for x in indexing.inputs[self.operands[0]][::-1] if x not in output],
        }
        quick = [self.quickest(side) for side in (0, 1)]
        found["sums"].sort(key=lambda x: x not in quick)
        for side, name in enumerate(("rows", "columns")):
            if output[0] not in found[name]:
                found[name].sort(key=lambda x: x != quick[side])
        return {name: "".join(sorted(own, key=self.problem.is_long)) for name, own in found.items()}

    def count(self, name: str) -> int:
        """Length of a fused index."""
        return self.problem.count(self.letters[name])

    def quickest(self, side: int) -> str:
        """The letter along which an operand lies in memory."""
        return self.problem.einsum.indexing.inputs[self.operands[side]][-1]

    @property
    def sector(self) -> int:
        """Numbers in a sector."""
        return max(1, SECTOR_BYTES // self.problem.itemsize)

    def outer_parts(self, run: int) -> dict[str, int]:
        """Parts of rows and columns: runs of an operand's quickest letter, where that is not the quickest of its group."""
        parts: dict[str, int] = {}
        for side, name in enumerate(("rows", "columns")):
            group, quick = self.letters[name], self.quickest(side)
            if quick in group and quick != group[0]:
                parts[quick] = part(self.problem.sizes[quick], run)
                parts[group[0]] = part(self.problem.sizes[group[0]], 8)
        return parts

    @property
    def runs(self) -> list[int]:
        """Runs worth trying: of a sector, or twice as long; one is as good as the other where there are none."""
        return [self.sector, 2 * self.sector] if self.outer_parts(self.sector) else [self.sector]

    def sum_parts(self, depth: int) -> dict[str, int]:
        """Parts of the letters summed over, whose product is `depth` where that can be."""
        sums = self.letters["sums"]
        quick = [x for x in dict.fromkeys((self.quickest(0), self.quickest(1))) if x in sums]
        parts: dict[str, int] = {}
        left = depth
        for number, x in enumerate(dict.fromkeys([*quick, *sums])):
            wanted = left
            if number == 0 and len(quick) == 2:
                wanted = max(self.sector, 1 << (left.bit_length() // 2))
            length = self.problem.sizes[x]
            most = wanted if self.problem.is_long(x) else min(wanted, max(1, 1 << (length - 1).bit_length()))
            parts[x] = next(k for k in range(min(most, left), 0, -1) if left % k == 0)
            left //= parts[x]
        if left > 1:  # sums too short: the first sticks out
            first = next(iter(parts))
            parts[first] *= left
        return parts

    def waste(self, depth: int) -> float:
        """How many times more terms than there are tiles of a depth have."""
        parts = self.sum_parts(depth)
        return prod(-(-self.problem.sizes[x] // k) * k / self.problem.sizes[x] for x, k in parts.items())

    @property
    def depths(self) -> list[int]:
        """Depths of a tile: the whole sum if one tile holds it, then those that waste least."""
        preferred = DEPTHS_OF_TWO if set(self.quick) <= set(self.letters["sums"]) and len(set(self.quick)) == 2 else DEPTHS
        whole = self.count("sums")
        return sorted(DEPTHS, key=lambda k: (k != whole, round(8 * self.waste(k)), preferred.index(k)))

    @property
    def quick(self) -> tuple[str, str]:
        """The letters along which the operands lie in memory."""
        return self.quickest(0), self.quickest(1)

    def width(self, side: int, depth: int) -> int:
        """How many numbers of an operand to copy at once: 16 bytes of them where they lie side by side along the sums.

        Along rows or columns single numbers, of which the lanes read whole lines anyway, were quicker.
        """
        quick, wide = self.quickest(side), max(1, WIDEST_BYTES // self.problem.itemsize)
        first = self.letters["sums"][:1] == quick
        return wide if first and self.sum_parts(depth).get(quick, 1) % wide == 0 == self.problem.sizes[quick] % wide else 1

    def plan(self, c: Configuration) -> Blocks:
        """The plan of a configuration."""
        items, down, across, fragments_down, fragments_across = map(int, c["shape"].replace("of", " ").split())
        return Blocks(
            operands=self.operands,
            **self.letters,
            parts=self.outer_parts(c["run"]) | self.sum_parts(c["depth"]),
            unit=c["unit"],
            sub_groups=(items, down, across),
            tiles=(fragments_down, fragments_across),
            along_sums=(self.quick[0] in self.letters["sums"], self.quick[1] in self.letters["sums"]),
            buffers=int(c["pipeline"].split()[1]),
            asynchronous=c["pipeline"].startswith("async"),
            wide=(self.width(0, c["depth"]), self.width(1, c["depth"])),
        )


def product(p: Problem, rows: str) -> Product:
    """The product whose rows belong to the operand with the quickest index of the output, or to the other."""
    last = p.einsum.indexing.output[-1]
    first = (last not in p.einsum.indexing.inputs[0]) ^ (rows == "slow")
    return Product(p, (int(first), 1 - int(first)))


def refusal_of_device(p: Problem) -> str | None:
    """Why a device gains nothing from tiles in local memory, or None."""
    if not p.device.local_memory_is_dedicated:
        return "the device has no local memory of its own, so that copies to it gain nothing"
    if SUB_GROUP not in p.device.sub_group_sizes:
        return f"the device has no sub-groups of {SUB_GROUP}"
    return None


def refusal(product: Product, plan: Blocks) -> str | None:
    """Why a device cannot work as a plan says, or None."""
    p = product.problem
    reason = refusal_of_device(p)
    if reason is not None:
        return reason
    waste = product.waste(plan.depth)
    if waste > MOST_WASTE * min(product.waste(depth) for depth in DEPTHS if depth % plan.fragments.depth == 0):
        return f"tiles of depth {plan.depth} make {waste:.2f} times the work"
    if plan.depth % plan.fragments.depth:
        return f"tiles of depth {plan.depth} are no whole steps of {plan.fragments.depth}"
    for name in ("rows", "columns", "batch", "sums"):
        if sum(map(p.is_long, getattr(plan, name))) > 1:
            return f"several indices of unknown length among the {name}"
    each = private_bytes(product, plan)
    if residents(product, plan) == 0:
        return f"{plan.work_items} work-items with {each} bytes each exceed the registers, or their tiles local memory"
    return p.exceeds(
        work_items=plan.work_items,
        local_bytes=plan.local_bytes(p.itemsize),
        private_bytes=each,
    )


@dataclass(frozen=True)
class Work:
    """A pairwise contraction with what comes before and after it.

    :ivar schedule: copies of operands in another order of axes, the contraction, and the sum of its parts.
    :ivar step: which step is the contraction.
    :ivar problem: the contraction by itself.
    """

    schedule: ContractionSchedule
    step: int
    problem: Problem


def prepared(p: Problem, split: str, packed: str) -> Work:
    """The steps of a contraction whose sum is split into parts, and of which some operands are packed first.

    :param split: ``"k 64"`` for parts of 64, or ``"none"``; an index before k counts them, as
        :func:`feinsum.rewrites.split_index` makes it.
    :param packed: the operands that are copied such that what is summed is the quickest: ``"none"``, ``"0"``, ``"01"``.
    """
    indexing, sizes = p.einsum.indexing, dict(p.sizes)
    terms, output = list(indexing.inputs), indexing.output
    if split != "none":
        letter, length = split.split()
        chunk = next(x for x in ascii_letters if x not in indexing.indices)
        sizes |= {chunk: sizes[letter] // int(length), letter: int(length)}
        terms, output = [term.replace(letter, chunk + letter) for term in terms], chunk + output
    steps: list[Step] = []
    operands = [0, 1]
    for k in map(int, packed.replace("none", "")):
        other = terms[1 - k][::-1]
        sums = sorted((x for x in terms[k] if x not in output), key=other.index, reverse=True)
        order = "".join([*(x for x in output if x in terms[k]), *sums])
        steps.append(Step((k,), Subscripts((terms[k],), order)))
        operands[k], terms[k] = 1 + len(steps), order
    steps.append(Step(tuple(operands), Subscripts(tuple(terms), output)))
    number = len(steps) - 1
    if split != "none":
        steps.append(Step((1 + len(steps),), Subscripts((output,), indexing.output)))
    return Work(ContractionSchedule(tuple(steps)), number, alone(p, terms, output, sizes))


def alone(p: Problem, terms: Sequence[str], output: str, sizes: Mapping[str, int]) -> Problem:
    """A contraction of arrays that lie in memory as `terms` say."""
    axes = {x: p.einsum.index_sizes[x] if p.sizes.get(x) == n else n for x, n in sizes.items()}
    dtype = p.einsum.dtypes[0]
    row = tuple((Array(f"operand{k}", tuple(axes[x] for x in term), dtype),) for k, term in enumerate(terms))
    return Problem(BatchedEinsum(Subscripts(tuple(terms), output), (row,)), sizes, p.device)


def splits(product: Product) -> list[str]:
    """Ways to share a sum among work-groups, where the output is too small for all of them: ``"k 64"`` is parts of 64."""
    p = product.problem
    points = prod(product.count(name) for name in ("rows", "columns", "batch"))
    wanted = GROUPS_WANTED * p.device.compute_units * 64 * 64 / points
    if wanted < GROUPS_WANTED:
        return ["none"]
    found = {}
    for x in product.letters["sums"]:
        for length in range(1, p.sizes[x] if not p.is_long(x) else 0):
            if p.sizes[x] % length == 0 and product.count("sums") * length >= 64 * p.sizes[x]:
                found[f"{x} {length}"] = 0.5 * (length % 4 != 0) + abs(math.log2(p.sizes[x] / length / wanted))
    return [*sorted(found, key=lambda text: found[text])[:4], "none"]


def packings(product: Product) -> list[str]:
    """Operands worth copying first: of large products, where what is summed is quickest in neither or not in both."""
    least = min(product.count("rows"), product.count("columns"))
    quick = {product.quickest(side) for side in (0, 1)}
    same = len(quick) == 1 and quick <= set(product.letters["sums"])
    if same or least < REUSED or product.count("sums") < REUSED // 4:
        return ["none"]
    return ["0", "none", "1", "01"]


def lanes(length: int) -> int:
    """Work-items along an axis, up to 256, of which few have nothing to do."""
    return -(-length // -(-length // 256))


def part(length: int, wanted: int) -> int:
    """About as many neighbours as wanted, such that few stick out of a letter."""
    options = range(max(1, wanted // 2), 2 * wanted + 1)
    return min(options, key=lambda k: (-(-length // k) * k / length - 1) + 0.1 * abs(math.log2(k / wanted)))


def is_plain(e: BatchedEinsum) -> bool:
    """Whether an einsum is of real numbers, and no operand has an index twice."""
    distinct = all(len(set(term)) == len(term) for term in e.indexing.inputs)
    return distinct and all(dtype in ("float32", "float64") for dtype in e.dtypes)


def is_product(e: BatchedEinsum) -> bool:
    """Whether an einsum of real numbers is a product of matrices in fused indices, with rows, columns and sums."""
    if e.n != 2 or not is_plain(e):
        return False
    (a, b), output = (set(x) for x in e.indexing.inputs), set(e.indexing.output)
    return bool(a - b and b - a and a & b - output) and a ^ b <= output


def units(p: Problem, terms: int) -> list[str]:
    """What can multiply numbers of the type of a result: matrix units of the device, and multiply-adds.

    A unit for float32 by splitting is offered where it keeps the bound of ordinary arithmetic.
    """
    dtypes = {str(a.dtype) for row in p.einsum.args for entry in row for a in entry}
    found = []
    for name in p.device.matrix_units:
        unit = matrix_unit(name)
        fits = unit.m == 16 and dtypes == {"float64" if unit.dtype == "double" else "float32"}
        if fits and split_error(unit, terms) <= terms:
            found.append(name)
    found.sort(key=lambda name: matrix_unit(name).k)
    return [*found, MULTIPLY_ADD]


def shapes(product: Product, **choices: Value) -> list[str]:
    """Blocks by what they cost, cheapest first: ``"items down across of down across"``, sub-groups of fragments.

    Few with fragments of the same number, so that among them are large and small ones.
    """
    costs: dict[int, dict[str, float]] = {}
    for items, down, across in _arrangements():
        for tiles in _tilings(choices["unit"] != MULTIPLY_ADD):
            text = f"{items} {down} {across} of {tiles[0]} {tiles[1]}"
            cost = _cost(product, product.plan({**choices, "shape": text}))
            if cost is not None:
                costs.setdefault(prod(tiles), {})[text] = cost
    alike = (sorted(each.items(), key=itemgetter(1))[:MOST_ALIKE] for each in costs.values())
    found = sorted((shape for each in alike for shape in each), key=itemgetter(1))
    return [text for text, _ in found[:MOST_SHAPES]] or [SMALLEST_SHAPE]


def _arrangements() -> Iterator[tuple[int, int, int]]:
    for items in (1, 2, 4, 8):
        for down in range(1, 9):
            for across in range(1, 9):
                if items * down * across in (4, 6, 8, 10, 12, 16):
                    yield items, down, across


def _tilings(unit: bool) -> Iterator[tuple[int, int]]:
    for down in (1, 2, 4) if unit else (1, 2, 4, 8):
        for across in (1, 2, 3, 4, 5, 6, 8, 9, 10, 12) if unit else (1, 2, 4, 8, 16):
            yield down, across


def _cost(product: Product, plan: Blocks) -> float | None:
    """Multiplications of the busiest multiprocessor, and loads in terms of them; None if registers do not suffice.

    What is loaded for a block from global memory, and for the fragments of a sub-group from local memory, is less for each
    multiplication the larger these are.
    """
    p, (rows, columns), items = product.problem, plan.shape, plan.sub_groups[0]
    resident = min(residents(product, plan), MOST_RESIDENT)
    lengths = {name: product.count(name) for name in ("rows", "columns", "batch")}
    if resident == 0 or (items > 1 and (lengths["rows"] > rows or lengths["columns"] > columns)):
        return None
    groups = -(-lengths["rows"] // rows) * -(-lengths["columns"] // columns) * -(-lengths["batch"] // items)
    # Groups come and go; at the end half of those that a multiprocessor holds are left, as a rule.
    rounds = max(groups / p.device.compute_units, 1.0) + resident / 2
    fragment = plan.tiles[0] * plan.fragments.rows, plan.tiles[1] * plan.fragments.columns
    loads = 16 / rows + 16 / columns + 8 / fragment[0] + 8 / fragment[1]
    hidden = min(1.0, resident * prod(plan.sub_groups) / ENOUGH_SUB_GROUPS)
    together = 1 + prod(plan.sub_groups) / 48  # the more wait for each other, the longer
    return rounds * items * rows * columns * (1 + loads) * together / hidden


def private_bytes(product: Product, plan: Blocks) -> int:
    """What a work-item keeps."""
    return plan.private_bytes(product.problem.itemsize, several=product.count("sums") > plan.depth)


def residents(product: Product, plan: Blocks) -> int:
    """How many groups a multiprocessor holds at a time, for all that registers and local memory allow."""
    p = product.problem
    registers = private_bytes(product, plan) // 4 + OTHER_REGISTERS
    local = max(p.device.local_memory_bytes, p.device.static_local_memory_bytes)
    most = p.device.registers_per_compute_unit
    if registers > (p.device.max_registers_per_work_item or registers):
        return 0
    by_registers = 1 if most is None else most // (registers * plan.work_items)
    return min(by_registers, local // max(1, plan.local_bytes(p.itemsize)))
