"""Kernels of scans, in three launches: what blocks add up to, the scan of that, and every block from there on."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from feinsum.languages.declarative.emitting.kernels import Emitter, KernelText, Spread, decode_indices
from feinsum.languages.declarative.emitting.operators import FIRST, combined
from feinsum.languages.declarative.emitting.types import c_type
from feinsum.languages.declarative.lowering.steps import ScanStep
from feinsum.languages.declarative.lowering.terms import ArrayEquation


def scan_kernels(
    name: str, step: ScanStep, arrays: Mapping[str, tuple[tuple[int, ...], str]], spread: Spread
) -> list[KernelText]:
    """Three launches: what blocks add up to, the scan of that, and the scan of every block from there on."""
    equation = step.equation
    rows, blocks, block = scan_sizes(step, spread)
    totals = f"{name}_totals"
    known = {**arrays, totals: ((rows, blocks), equation.dtype)}
    return [
        _scan_part(f"{name}_{what}", what, equation, known, (rows, blocks, block), totals, spread)
        for what in ("totals", "starts", "scan")
    ]


def scan_sizes(step: ScanStep, spread: Spread) -> tuple[int, int, int]:
    """The numbers of rows of a scan, of blocks of a row, and of elements of a block."""
    *outer, last = step.equation.shape
    block = max(16, -(-last // max(1, 64 * spread.units)))
    return prod(outer), max(-(-last // block), 1), block


def _scan_part(
    name: str,
    what: str,
    equation: ArrayEquation,
    arrays: Mapping[str, tuple[tuple[int, ...], str]],
    sizes: tuple[int, int, int],
    totals: str,
    spread: Spread,
) -> KernelText:
    rows, blocks, block = sizes
    emitter = Emitter(name, arrays, spread)
    writer, op, c = emitter.writer, equation.scan, c_type(equation.dtype)
    count = rows if what == "starts" else rows * blocks
    groups = -(-count // spread.lanes)
    first = FIRST[op](equation.dtype)
    with writer.braces(emitter.begin(groups)):
        writer.line(f"const int item = group * {spread.lanes} + lid;")
        with writer.braces(f"if (item < {count})"):
            if what == "starts":
                emitter.used[totals] = True
                writer.line(f"{c} acc = {first};")
                with writer.braces(f"for (int b = 0; b < {blocks}; b++)"):
                    writer.line(f"const {c} own = {totals}[item * {blocks} + b];")
                    writer.line(f"{totals}[item * {blocks} + b] = acc;")
                    writer.line(f"acc = {combined(op, equation.dtype, 'acc', 'own')};")
            else:
                emitter.used[totals] = what == "totals"
                begin = first if what == "totals" else f"{totals}[item]"
                _scan_block(emitter, equation, begin, blocks, block, stores=what == "scan")
                if what == "totals":
                    writer.line(f"{totals}[item] = acc;")
    return emitter.finish(groups)


def _scan_block(emitter: Emitter, equation: ArrayEquation, begin: str, blocks: int, block: int, *, stores: bool) -> None:
    """A block of a running reduction, from what all before it add up to."""
    writer, c = emitter.writer, c_type(equation.dtype)
    *outer, last = equation.variables
    indices = decode_indices(emitter, outer, f"(item / {blocks})")
    writer.line(f"const int from = item % {blocks} * {block};")
    writer.line(f"{c} acc = {begin};")
    with writer.braces(f"for (int e = from; e < min(from + {block}, {last.extent}); e++)"):
        writer.define(last, "e")
        writer.line(f"acc = {combined(equation.scan, equation.dtype, 'acc', writer.value(equation.body))};")
        if stores:
            emitter.store(equation.array, [*indices, "e"], "acc")
