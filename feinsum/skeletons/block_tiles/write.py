"""Contractions of two operands in blocks: ``D[b, m, n] = Σ_k A[b, m, k] B[b, k, n]``, every index fused from letters.

A work-group takes a block of m by n.  Tiles of A and B, as deep as fits, pass through local memory; while one is
multiplied the next is on its way into registers.  After V. Volkov and J. Demmel, "Benchmarking GPUs to tune dense linear
algebra", SC 2008; on tensors without transposing them first, as J. Kim et al., "A code generator for high-performance
tensor contractions on GPUs", CGO 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import loopy as lp
from loopy.symbolic import Reduction, get_dependencies
from pymbolic.primitives import Comparison, FloorDiv, Remainder, Variable

from feinsum.devices.ptx import SUB_GROUP
from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites.loops import axis_length, without_race_warnings
from feinsum.rewrites.sums import UNROLL
from feinsum.skeletons.block_tiles.blocks import Blocks
from feinsum.skeletons.block_tiles.index_groups import IndexGroup, extent
from feinsum.skeletons.block_tiles.operands import Operand
from feinsum.skeletons.block_tiles.pipeline import FragmentsAhead
from feinsum.skeletons.common.draft import Draft
from feinsum.skeletons.common.products import substituted
from feinsum.skeletons.nvidia.async_copies import commit_copies, register_async_copies, wait_for_copies
from feinsum.skeletons.nvidia.matrix_units import multiply_accumulate, register_matrix_unit


def multiply_in_blocks(t_unit: lp.TranslationUnit, match: Match, plan: Blocks) -> lp.TranslationUnit:
    """Compute a contraction of two operands as a product of matrices, block by block.

    Before, for ``plan.rows="ab"``, ``columns="c"``, ``sums="de"``::

        for a, b, c: out[a, b, c] = sum([d, e], A(e, b, d, a) * B(d, c, e))

    After, with a(m), b(m), d(k), e(k) the letters of fused indices, x = lane + 32 sub-group, r unrolled, and m, k of an
    element that a work-item loads going through the tile with x, the quicker first along A's own memory::

        for group of rows, group of columns:
            next_A[r] = A(e(k), b(m), d(k), a(m)); next_B[r] = ...                  of tile 0
            for tile:
                tile_A[tile % 2, k % depth, m] = next_A[r]; tile_B[...] = next_B[r]
                lbarrier
                next_A[r] = A(...); next_B[r] = ...                                 of tile + 1, if there is one
                for step: D[fragments] += tile_A[tile % 2, ...] * tile_B[tile % 2, ...]
            out[a(m), b(m), c(n)] = D[...]                                           if there is such

    Rows, columns and items of the batch beyond the last are loaded from the last there is, and not stored; beyond the
    last summed index there are zeros.  So any lengths will do.

    :raises TransformError: if the match has several rows, or letters are not as `plan` says; if a sum is not a whole
        number of steps of the unit.

    ``blockize`` and ``tensorize`` in TVM; a threadblock tile with a two-stage pipeline in CUTLASS.
    """
    work = Blocked(t_unit[match.kernel_name], match, plan)
    t_unit = t_unit.with_kernel(work.result())
    if plan.asynchronous:
        t_unit = register_async_copies(t_unit, work.dtype)
    return register_matrix_unit(t_unit, plan.fragments.unit) if plan.fragments.unit else t_unit


class Blocked:
    """The kernel while a contraction becomes blocks."""

    def __init__(self, kernel: lp.LoopKernel, match: Match, plan: Blocks) -> None:
        _check(kernel, match, plan)
        self.kernel, self.match, self.plan = kernel, match, plan
        self.draft = Draft(kernel)
        self.insn = kernel.id_to_insn[match.insn_ids[0]]
        self.dtype = match.einsum.dtypes[0]
        lengths = {x: axis_length(match, x) for x in match.einsum.indexing.indices}
        self.lengths = lengths
        self.groups = {
            name: IndexGroup(getattr(plan, name), lengths, plan.parts) for name in ("rows", "columns", "sums", "batch")
        }
        self.before = self.insn.depends_on - set(match.insn_ids)

    def result(self) -> lp.LoopKernel:
        """The kernel in blocks."""
        self._deal()
        operands = [Operand(self, side) for side in (0, 1)]
        self.acc = Variable(self.array("acc", (*self.plan.tiles, self.plan.fragments.registers[2])))
        zero = self.draft.unrolled(("zero",) * 3, (*self.plan.tiles, self.plan.fragments.registers[2]))
        cleared = self.draft.assign(self.acc[tuple(map(Variable, zero))], 0.0, {*self.around, *zero}, self.before)
        pipeline = self._asynchronously if self.plan.asynchronous else self._through_registers
        multiplied = pipeline(operands, cleared)
        self._store(multiplied)
        kernel = self.draft.finished(self.match.insn_ids, ())
        # Where results go is decoded into private numbers, by which loopy cannot tell that no two places are the same.
        return without_race_warnings(kernel, (self.insn.id,))

    def array(self, base: str, shape: tuple[int, ...], *, memory: Any = lp.AddressSpace.PRIVATE, **kwargs: Any) -> str:
        """A new array, by default of the type of the results."""
        name = self.draft.fresh(base)
        kwargs = {"dtype": self.dtype, **kwargs}
        self.draft.temporaries[name] = lp.TemporaryVariable(name, shape=shape, address_space=memory, **kwargs)
        return str(name)

    def _deal(self) -> None:
        """Loops over groups, sub-groups, lanes and tiles."""
        plan, draft = self.plan, self.draft
        per_group = dict(zip(("rows", "columns", "batch"), (*plan.shape, plan.sub_groups[0]), strict=True))
        self.first: dict[str, Any] = {}
        counts = {}
        inames = []
        for name, span in per_group.items():
            factor, text = extent(self.groups[name].digits)
            iname = draft.fresh(f"group_of_{name}")
            parameters = sorted({str(x) for y in self.groups[name].letters for x in get_dependencies(self.lengths[y])})
            draft.domain(", ".join(parameters), [iname], f"0 <= {iname} and {span} * {iname} < {factor} * {text}")
            self.first[name] = span * Variable(iname)
            counts[iname] = (text != "1", factor // span)
            inames.append(iname)
        # The first axis alone may have more than 65535 groups on some devices, so the longest goes there.
        for axis, iname in enumerate(sorted(inames, key=lambda x: counts[x], reverse=True)):
            draft.tags[iname] = f"g.{axis}"
        lane, sub_group = draft.fresh("lane"), draft.fresh("sub_group")
        draft.domain("", [lane], f"0 <= {lane} < {SUB_GROUP}")
        draft.domain("", [sub_group], f"0 <= {sub_group} < {prod(plan.sub_groups)}")
        draft.tags |= {lane: "l.0", sub_group: "l.1"}
        self.lane, number = Variable(lane), Variable(sub_group)
        self.item = self.lane + SUB_GROUP * number
        _, down, across = plan.sub_groups
        self.place = FloorDiv(number, down * across), Remainder(number, down), Remainder(FloorDiv(number, down), across)
        self.around = frozenset([*inames, lane, sub_group])
        self._deal_sums()

    def _deal_sums(self) -> None:
        """The loop over tiles, unless there is but one."""
        sums = self.groups["sums"]
        factor, text = extent(sums.outer)
        self.several = factor > 1 or text != "1"
        self.tile: Any = 0
        self.inside = self.around
        self.ahead = self.plan.ahead and self.several
        self.steps = self.plan.steps - self.ahead
        (self.step,) = self.draft.unrolled(("step",), (self.steps,))
        if self.several:
            tile = self.draft.fresh("tile")
            parameters = sorted({str(x) for y in sums.letters for x in get_dependencies(self.lengths[y])})
            self.draft.domain(", ".join(parameters), [tile], f"0 <= {tile} < {factor} * {text}")
            self.tile = Variable(tile)
            self.inside = self.around | {tile}
            self.tiles = prod((digit.count for digit in sums.outer), start=1)

    def _through_registers(self, operands: Sequence[Operand], cleared: str) -> str:
        """Multiply a tile while the next is on its way to registers."""
        early = [operand.load(0, self.around, self.before) for operand in operands]
        kept = [operand.keep((*early, cleared)) for operand in operands]
        ready = self.barrier(kept, self.inside)
        if self.several:
            there = Comparison(self.tile + 1, "<", self.tiles)
            for operand in operands:
                operand.load(self.tile + 1, self.inside, [ready], there, self.step)
        multiplied = self._multiply(operands, [ready])
        if self.several and self.plan.buffers == 1:
            self.barrier([multiplied], self.inside)
        return multiplied

    def _asynchronously(self, operands: Sequence[Operand], cleared: str) -> str:
        """Multiply a tile while the next are on their way to local memory."""
        ahead = self.plan.buffers - 1 if self.several else 1
        last: list[str] = [cleared]
        for number in range(ahead):
            copied = [operand.copy(number, self.around, {*self.before, *last}) for operand in operands]
            last = [self.draft.add(commit_copies, "copies", self.around, copied)]
        if self.ahead and self.plan.fragments.unit is not None:
            return FragmentsAhead(self, operands, self.plan.fragments.unit).multiply(last, ahead)
        waited = self.draft.add(partial(wait_for_copies, ahead - 1), "copies", self.inside, last)
        ready = self.barrier([waited], self.inside)
        if self.several:
            copied = [operand.copy(self.tile + ahead, self.inside, [ready], self.step) for operand in operands]
            # Committed even where nothing was copied, so that the number of groups tells which tile has come.
            self.draft.add(commit_copies, "copies", self.inside, copied)
        return self._multiply(operands, [ready])

    def barrier(self, after: Sequence[str], inside: frozenset[str]) -> str:
        """Add a barrier of the work-group; its id."""
        barrier = lp.BarrierInstruction(
            self.draft.fresh_id("tiles_are_there"),
            depends_on=frozenset(after),
            synchronization_kind="local",
            mem_kind="local",
            within_inames=inside,
            within_inames_is_final=True,
        )
        self.draft.instructions.append(barrier)
        return str(barrier.id)

    def _multiply(self, operands: Sequence[Operand], after: Sequence[str]) -> str:
        """Fragments from local memory to registers, and their products, step by step."""
        plan, draft, unit, step = self.plan, self.draft, self.plan.fragments.unit, self.step
        down, across = draft.unrolled(("down", "across"), plan.tiles)
        registers, loaded, fragments = [], [], []
        for side, operand in enumerate(operands):
            count = plan.fragments.registers[side]
            name = Variable(self.array("ab"[side], (plan.tiles[side], count)))
            (loop,) = draft.unrolled(("fragment",), (plan.tiles[side],))
            draft.priorities.append(f"{step},{loop}")
            inside = {*self.inside, step, loop}
            for k in range(count):
                held = operand.fragment(self.tile, Variable(step), loop, k)
                loaded.append(draft.assign(name[Variable(loop), k], held, inside, after, alone=True))
            registers.append(tuple(name[Variable((down, across)[side]), k] for k in range(count)))
            fragments.append(loop)
        a, b = registers
        results = tuple(self.acc[Variable(down), Variable(across), k] for k in range(plan.fragments.registers[2]))
        inside = {*self.inside, step, down, across}
        draft.priorities.append(",".join([str(self.tile)] * self.several + [step, down, across]))
        if unit is None:
            draft.tags |= dict.fromkeys((step, down, across, *fragments), UNROLL)
            return draft.assign(results[0], results[0] + a[0] * b[0], inside, loaded)
        return draft.add(partial(multiply_accumulate, unit, results, a, b), "multiply", inside, loaded)

    def _store(self, after: str) -> None:
        """Write the results that there are."""
        plan, draft, count = self.plan, self.draft, self.plan.fragments.registers[2]
        loops = draft.unrolled(("down", "across", "number"), (*plan.tiles, count))
        down, across, register = map(Variable, loops)
        row, column = plan.fragments.of_d(self.lane, register)
        row += self.first["rows"] + (self.place[1] * plan.tiles[0] + down) * plan.fragments.rows
        column += self.first["columns"] + (self.place[2] * plan.tiles[1] + across) * plan.fragments.columns
        places = {
            "rows": (row, (down, register), (plan.tiles[0], count)),
            "columns": (column, (across, register), (plan.tiles[1], count)),
            "batch": (self.first["batch"] + self.place[0], (0,), (1,)),
        }
        at, predicates, found = {}, [], [after]
        for name, (number, index, shape) in places.items():
            for x, value in self.groups[name].decode(number).items():
                array = Variable(self.numbers(x, shape))
                own = draft.unrolled(("place",) * len(shape), shape)
                copied = {str(old): Variable(new) for old, new in zip(index, own, strict=True)}
                place = substituted(value, copied)
                found.append(draft.assign(array[tuple(map(Variable, own))], place, self.around | set(own), self.before))
                reference = array[index]
                at[self.match.loops[0][x]] = reference
                if self.may_pass(name, x):
                    predicates.append(Comparison(reference, "<", self.lengths[x]))
        assignee, inside = substituted(self.insn.assignee, at), {*self.around, *loops}
        value = self.acc[down, across, register]
        draft.assign(assignee, value, inside, found, predicates=predicates, insn_id=self.insn.id)

    def numbers(self, letter: str, shape: tuple[int, ...]) -> str:
        """A new private array of values of an index."""
        return self.array(f"{letter}_at", shape, dtype=self.kernel.index_dtype)

    def may_pass(self, name: str, letter: str) -> bool:
        """Whether a block may stick out beyond the last value of a letter."""
        group = self.groups[name]
        span = dict(zip(("rows", "columns", "batch"), (*self.plan.shape, self.plan.sub_groups[0]), strict=True))[name]
        factor, text = extent(group.digits)
        last = group.outer[-1].letter == letter
        return group.pads(letter) or (last and (text != "1" or factor % span != 0))


def _check(kernel: lp.LoopKernel, match: Match, plan: Blocks) -> None:
    """:raises TransformError: if a match is no contraction with the letters of a plan."""
    indexing = match.einsum.indexing
    if len(match.insn_ids) != 1 or match.einsum.n != 2:
        raise TransformError(f"'{indexing}' in {len(match.insn_ids)} rows is not one product of two operands")
    a, b = (indexing.inputs[k] for k in plan.operands)
    wanted = (plan.batch + plan.rows + plan.sums, plan.batch + plan.columns + plan.sums)
    results = plan.batch + plan.rows + plan.columns
    if [*map(sorted, (*wanted, results))] != [*map(sorted, (a, b, indexing.output))]:
        raise TransformError(f"'{indexing}' is no product of {plan.rows} by {plan.sums} and {plan.sums} by {plan.columns}")
    insn = kernel.id_to_insn[match.insn_ids[0]]
    if insn.predicates:
        raise TransformError(f"instruction '{insn.id}' has a predicate, which the barriers of a group cannot have")
    if not isinstance(insn.expression, Reduction) or not plan.rows or not plan.columns:
        raise TransformError(f"instruction '{insn.id}' is no sum with rows and columns")
    if plan.asynchronous and plan.buffers < 2:
        raise TransformError("tiles that are copied asynchronously need two buffers at least")
    if plan.ahead and (plan.fragments.unit is None or not plan.asynchronous or plan.steps % 2):
        raise TransformError(f"fragments of {plan.steps} steps of '{plan.unit}' cannot be loaded a step ahead")
    if plan.depth % plan.fragments.depth:
        raise TransformError(f"tiles of depth {plan.depth} are no whole steps of {plan.fragments.depth} of '{plan.unit}'")
