"""Features of configurations, as numbers: those of the problem, of the work, and of each parameter.

A feature that does not apply is left out.  Lengths, operations and bytes enter as logarithms, so that the model can apply
at other sizes what it learnt at one.  A parameter of a space is a feature by its value and by its place among the choices,
where the author of the space put the best guess first; one that names an index is one by the length of that index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feinsum.cost.work_model import Work
    from feinsum.devices import DeviceProfile
    from feinsum.einsum import BatchedEinsum
    from feinsum.subscripts import Subscripts

Features = dict[str, float]
Value = int | float | str | bool

GUESS = "guess"
"""The feature that says how far a configuration is from the best guesses of its space, in choices."""
RANK = "rank"
"""The feature that is the rank of the space."""
_FAR = 5
"""From this choice of a parameter on, all are equally far from the best guess."""
_LINE_BYTES = 128
SPACE = "space "
"""Begins the name of the feature that says which space it is."""


def problem_features(e: BatchedEinsum, sizes: Mapping[str, int], device: DeviceProfile) -> Features:
    """Features that all configurations of a problem share.

    :param sizes: the length of every index.
    """
    lengths = e.sizes_from(sizes)
    flops, nbytes = e.flops(lengths), e.min_bytes(lengths)
    output, summed = e.indexing.output, e.indexing.summed
    itemsize = max(a.dtype.itemsize for a in e.arrays)
    registers = {"registers of device": float(device.vectors)} if device.simd_bytes else {}

    def alignment(letters: str) -> float:
        """The bytes to whose multiples the rows of an array are aligned, up to a line of 128 bytes."""
        return _log_value(math.gcd(_LINE_BYTES, itemsize * (sizes[letters[-1]] if letters else 1)))

    return {
        **registers,
        "bytes": _log_value(nbytes),
        "intensity": _log_value(flops / max(1, nbytes)),
        "saved": _log_value(e.flops(lengths, "naive") / max(1, flops)),
        "outputs": _log_value(math.prod(sizes[x] for x in output)),
        "terms": _log_value(math.prod(sizes[x] for x in summed)),
        "row": _log_value(sizes[output[-1]] if output else 1),
        "alignment of output": alignment(output),
        "alignment": min(map(alignment, e.indexing.inputs)),
        "rows": float(e.b),
        "operands": float(e.n),
        "axes": float(len(output)),
        "itemsize": float(itemsize),
        "compute units": _log_value(device.compute_units),
        "lanes of device": float(device.simd_bytes / itemsize),
        f"runtime {device.runtime}": 1.0,
    }


def work_features(work: Work, device: DeviceProfile, itemsize: int) -> Features:
    """Features of the work of a configuration."""
    found = {
        "flops of work": _log_value(work.flops),
        "bytes of work": _log_value(work.bytes),
        "launches": float(work.launches),
        "matrix": float(work.matrix),
    }
    if work.groups:
        found |= {
            "groups": _log_value(work.groups / max(1, device.compute_units)),
            "items": _log_value(work.items),
            "unevenness": work.unevenness(device),
            "at once": _log_value(work.items * work.at_once(device)),
        }
    if work.loads:
        found["loads"] = _log_value(work.loads / max(1.0, work.flops))
    if work.shared:
        found |= {"shared": _log_value(work.shared / max(1.0, work.flops)), "waits": _log_value(work.waits)}
    if work.lanes:
        found["lanes"] = float(work.lanes)
    if work.sums:
        found["sums"] = float(work.sums)
    if work.registers_bytes:
        found["registers"] = _log_value(work.registers_bytes / itemsize)
    if pressure := work.pressure(device):
        found["pressure"] = _log_value(pressure)
    if work.local_bytes:
        found["local"] = _log_value(work.local_bytes)
    return found


def waste_features(found: Features, seconds: float) -> Features:
    """How much more than it must a configuration moves and computes, and the time of its work for each byte of the problem.

    Trees split one feature at a time, so they learn little from the two of which each is a difference.

    :param found: the features of the problem and of the work.
    :param seconds: the time that the work takes by itself.
    """
    return {
        "moved": found["bytes of work"] - found["bytes"],
        "padding": found["flops of work"] - found["intensity"] - found["bytes"],
        "slack": math.log2(seconds) - found["bytes"],
    }


def parameter_features(
    space: str,
    rank: int,
    choices: Mapping[str, Sequence[Value]],
    configuration: Mapping[str, Value],
    sizes: Mapping[str, int],
    indexing: Subscripts,
    known: dict[tuple[str, Value], tuple[Features, int]] | None = None,
) -> Features:
    """Features of the values of the parameters of a space.

    :param rank: of the space: how specific it is.
    :param sizes: the length of every index, by the letters that parameters may name.
    :param known: what calls with other configurations found for each value; this call adds to it.
    """
    known = {} if known is None else known
    found, guess = {SPACE + space: 1.0}, 0
    for key in configuration.items():
        if key not in known:
            name, value = key
            known[key] = _value_features(f"{space}.{name}", value, choices.get(name, ()), sizes, indexing)
        own, far = known[key]
        found.update(own)
        guess += far
    return {**found, RANK: float(rank), GUESS: float(guess)}


def _value_features(
    own: str, value: Value, choices: Sequence[Value], sizes: Mapping[str, int], indexing: Subscripts
) -> tuple[Features, int]:
    """Features of one value of a parameter, and how far it is from the best guess.

    :param own: the name of the parameter, after that of its space.
    """
    position = next((k for k, choice in enumerate(choices) if choice == value), -1)
    found = {f"{own} choice": float(position)}
    if isinstance(value, str) and value in sizes:
        found[own] = _log_value(sizes[value])
        found[f"{own} apart"] = float(sum(value in letters[:-1] for letters in indexing.inputs))
        found[f"{own} in rows"] = float(sum(letters.endswith(value) for letters in indexing.inputs))
        found[f"{own} in rows of output"] = float(indexing.output.endswith(value))
    elif isinstance(value, str):
        found[f"{own}={value}"] = 1.0
    else:
        found[own] = float(value)
    return found, min(max(0, position), _FAR)


def _log_value(value: float) -> float:
    return math.log2(max(value, 1e-6))
