"""Displays of objects in a notebook.

The methods ``_repr_html_`` import these functions when they are called, so that a program that shows nothing loads nothing
of this.
"""

from __future__ import annotations

import inspect
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.arrays import Array, format_axis
from feinsum.cost import roofline_s
from feinsum.devices.peaks import EXCESS
from feinsum.einsum import BatchedEinsum
from feinsum.report.code import highlighted
from feinsum.report.figures import bandwidth, duration, listed, number, rate, settings, shown_bytes, shown_count
from feinsum.report.formula import latex, mathml
from feinsum.report.html import Markup, bar, details, display_block, element, facts, markup, table
from feinsum.subscripts import parse_subscripts
from feinsum.timing import FINAL_PROTOCOL

if TYPE_CHECKING:
    from feinsum.canonicalization import CanonicalEinsum
    from feinsum.cost import Roofline
    from feinsum.database import Database, TuningRecord
    from feinsum.devices import Device, DeviceProfile
    from feinsum.kernel.kernel import Kernel
    from feinsum.match import Match
    from feinsum.space import TransformSpace
    from feinsum.timing import Timing

_SHOWN_ROWS = 20
_CODE = re.compile(r"`{1,2}(.+?)`{1,2}")
_EXAMPLE_LENGTH = 16
_EXAMPLES = ("ij,jk->ik", "ij,ij->ij", "ij->ji", "ij->i", "ii->", "ij,jk,kl->il")
"""For spaces whose pattern is a predicate."""
_NOMINAL_BYTES = 64 << 20
"""The assumed size of the arrays of an einsum whose long axes have no given lengths."""


def nominal_sizes(e: BatchedEinsum) -> dict[str, int]:
    """A round length for the long axes: the largest power of ten at which its arrays take 64 MiB at most."""
    length = 1
    while e.long_axes and length < 10**12 and e.array_bytes(dict.fromkeys(e.long_axes, 10 * length)) <= _NOMINAL_BYTES:
        length *= 10
    return dict.fromkeys(e.long_axes, length)


def einsum_html(e: BatchedEinsum) -> str:
    """Formula, arrays, and the work: operations, bytes, and operations a byte."""
    arrays = table(
        ["array", "shape", "type", "bytes"],
        ([a.name, _shape_text(a.shape), a.dtype, _array_bytes_text(a)] for a in e.arrays[:_SHOWN_ROWS]),
        text=["array", "shape", "type"],
    )
    more = f"… and {len(e.arrays) - _SHOWN_ROWS} arrays more" if len(e.arrays) > _SHOWN_ROWS else ""
    return display_block(mathml(e), element("code", e.subscripts), arrays, more, facts(work(e)))


def einsum_latex(e: BatchedEinsum) -> str:
    """The formula in LaTeX."""
    return f"$\\displaystyle {latex(e)}$"


def work(e: BatchedEinsum, sizes: Mapping[str, int] | None = None) -> dict[str, object]:
    """Operations, bytes and operations a byte, at the lengths given or else at nominal ones, which are named."""
    invented = sizes is None and bool(e.long_axes)
    sizes = nominal_sizes(e) if sizes is None else sizes
    flops, nbytes = e.flops(sizes), e.min_bytes(sizes)
    return {
        "for example at" if invented else "lengths": listed(sizes),
        "operations": f"{shown_count(flops)} (multiplying out naively: {shown_count(e.flops(sizes, 'naive'))})",
        "bytes": f"{shown_count(nbytes)}, every array moved once",
        "intensity": f"{flops / max(nbytes, 1):.3g} operations a byte",
    }


def canonical_html(c: CanonicalEinsum) -> str:
    """The key, the canonical formula, and the renaming."""
    names = {**c.renaming.indices, **c.renaming.arrays}
    who = table(["given", "canonical"], ([given, own] for given, own in names.items()), text=["given", "canonical"])
    return display_block(
        mathml(c.einsum),
        facts({"key": element("code", c.key), "of": str(c.given)}),
        details("names", who),
        title="canonical",
    )


def array_html(a: Array) -> str:
    """Name, shape, type and bytes."""
    return display_block(
        facts({"array": a.name, "shape": _shape_text(a.shape), "type": str(a.dtype), "bytes": _array_bytes_text(a)})
    )


def record_html(r: TuningRecord) -> str:
    """The configuration and its outcome, in the letters of the canonical einsum."""
    from feinsum.canonicalization import is_key, parse_key

    t = r.median_s
    tuned = mathml(parse_key(r.einsum_key)) if is_key(r.einsum_key) else element("code", r.einsum_key)
    time = "" if t is None else f"{duration(t)} ± {(r.spread_s or 0.0) / t:.1%}, {number(len(r.samples_s), 'sample')}"
    shown = {
        "status": r.status,
        "time": time,
        "rate": "" if t is None else f"{rate(r.flops / t)}, {bandwidth(r.bytes / t)}",
        "lengths": listed(r.sizes),
        "device": f"{r.device}, driver {r.driver}",
        "space": f"{r.space} (version {r.space_version})",
        "configuration": listed(r.configuration),
        "message": r.message,
        "made": f"{r.created}, protocol {r.protocol}",
        "id": element("code", r.id),
    }
    versions = details("versions", facts(r.versions)) if r.versions else ""
    return display_block(tuned, facts(shown), versions, title="record")


def roofline_html(r: Roofline) -> str:
    """Operations and bytes, and the time that either takes at least."""
    shown = {
        "operations": f"{shown_count(r.flops)}: {duration(r.compute_s)} at least",
        "bytes": f"{shown_count(r.bytes)}: {duration(r.memory_s)} at least",
        "least time": f"{duration(r.seconds)}, of {'operations' if r.bound == 'compute' else 'memory'}",
    }
    return display_block(facts(shown), title="roofline")


def timing_html(t: Timing) -> str:
    """Median, spread and range of the samples."""
    precision = f"{t.precision:.1%} of it" if math.isfinite(t.precision) else "unknown: these are too few samples"
    batch = "" if t.runs_per_sample == 1 else f", each the mean of {t.runs_per_sample} runs"
    shown = {
        "median": f"{duration(t.median_s)} ± {t.spread_s / t.median_s:.1%}",
        "known to": precision,
        "samples": f"{number(len(t.samples_s), 'sample')}{batch}",
        "from, to": f"{duration(min(t.samples_s))}, {duration(max(t.samples_s))}",
    }
    return display_block(facts(shown), title="timing")


def store_html(d: Database) -> str:
    """The statistics of a store."""
    s = d.stats()
    held = f"{number(s.records, 'record')} of {number(s.einsums, 'einsum')}, {s.problems:,} with sizes"
    counts = {"by status": s.by_status, "by device": s.by_device, "by space": s.by_space, "by month": s.by_month}
    tables = (
        details(name, table(["", "records"], ([x, shown_count(n)] for x, n in of.items()), [""]))
        for name, of in counts.items()
    )
    return display_block(facts({"at": s.location, "holds": held}), *tables, title="database")


def expression_html(text: str, shapes: Iterable[tuple[int, ...]], constants: Iterable[int], result: tuple[int, ...]) -> str:
    """Equation, operands and result of an expression."""
    fixed = set(constants)
    rows = ([k, _shape_text(shape), "constant" if k in fixed else "each call"] for k, shape in enumerate(shapes))
    operands = table(["operand", "shape", "given"], rows, ["shape", "given"])
    return display_block(element("code", text), operands, facts({"result": _shape_text(result)}), title="expression")


def profile_html(p: DeviceProfile) -> str:
    """Identity and limits."""
    return display_block(facts(_device_limits(p)), title=p.name)


def device_html(d: Device) -> str:
    """Identity, limits, and peaks if they were measured."""
    p, peaks = d.profile, d.known_peaks if d.usable else None
    limits = {**_device_limits(p), "cannot be used": d.why}
    measured: dict[str, object] = {"peaks": "not measured; feinsum devices --measure, or .peaks"}
    if peaks is not None:
        measured = {
            "copying": bandwidth(peaks.copy_bytes_per_s),
            "float32": rate(peaks.fp32_flops_per_s),
            "float64": rate(peaks.fp64_flops_per_s) if peaks.fp64_flops_per_s else "",
            "float64, matrix units": rate(peaks.fp64_matrix_flops_per_s) if peaks.fp64_matrix_flops_per_s else "",
            "launch": duration(peaks.launch_s),
        }
    return display_block(facts({**limits, **(measured if d.usable else {})}), title=p.name)


def _device_limits(p: DeviceProfile) -> dict[str, object]:
    return {
        "id": element("code", p.id),
        "runtime": f"{p.platform}, driver {p.driver}",
        "architecture": p.architecture,
        "compute units": str(p.compute_units),
        "vector registers": shown_bytes(p.simd_bytes) if p.simd_bytes else "",
        "sub-groups": ", ".join(map(str, p.sub_group_sizes)),
        "work-group": f"{p.max_work_group_size} work-items at most",
        "local memory": shown_bytes(p.local_memory_bytes) + ("" if p.local_memory_is_dedicated else ", in ordinary memory"),
        "memory": f"{shown_bytes(p.global_memory_bytes)}, cache {shown_bytes(p.cache_bytes)}",
        "types": ", ".join(name for name, there in (("float64", p.fp64), ("float16", p.fp16)) if there),
        "matrix units": ", ".join(p.matrix_units),
    }


def kernel_html(k: Kernel, meaning: str) -> str:
    """Where the kernel comes from, how near it is to the roofline, and its code."""
    launches = table(
        ["launch", "work-items", "of a work-group"],
        ([g.kernel, _lengths_product(g.global_size), _lengths_product(g.local_size)] for g in k.geometry()),
        text=["launch"],
    )
    origin = {
        "device": str(k.device),
        "lengths": listed(k.expected),
        "rung": f"{k.rung}: {meaning}",
        "space": k.space,
        "configuration": settings(k.configuration, given_letters(k.einsum)),
        **_speed(k),
    }
    code = details("OpenCL C", highlighted(k.source, "opencl"))
    return display_block(mathml(k.einsum), facts(origin), details("launches", launches), code, title=k.einsum.subscripts)


def _speed(k: Kernel) -> dict[str, object]:
    """The time of the record, and its share of the roofline; without a record, the least time."""
    peaks, r = k.device.known_peaks, k.record
    if r is None or r.median_s is None:
        if peaks is None:
            return {}
        lengths = k.einsum.sizes_from(k.expected)
        least_s = roofline_s(k.einsum.flops(lengths), k.einsum.min_bytes(lengths), k.einsum.dtype, peaks)
        return {"least time": f"{duration(least_s)} on this device; this configuration was not measured"}
    t = r.median_s
    shown: dict[str, object] = {"time": f"{duration(t)}, {rate(r.flops / t)}, {bandwidth(r.bytes / t)}"}
    if peaks is not None:
        share = roofline_s(r.flops, r.bytes, k.einsum.dtype, peaks) / t
        doubt = "; its peaks are too low: feinsum devices --measure" if share > EXCESS else ""
        shown["roofline"] = bar(share, f"{share:.0%} of what the device can do{doubt}")
    return shown


def space_html(s: TransformSpace) -> str:
    """Pattern, plan, parameters and constraint; counted for an example, as both depend on einsum and device."""
    patterns = "a predicate of einsums" if callable(s.patterns) else ", ".join(map(str, s.patterns))
    known = {"pattern": element("code", patterns), "version": str(s.version), "rank": str(s.rank)}
    functions = {"parameters": s.choices, "constraint": s.constraint, "transformation": s.function}
    sources = {name: source for name, function in functions.items() if (source := _function_source(function))}
    code = (details(f"source: {name}", highlighted(source, "python")) for name, source in sources.items())
    return display_block(facts(known), element("p", _prose(s.description)), _example_census(s), *code, title=s.name)


def _example_census(s: TransformSpace) -> Markup:
    """The census of the space for its pattern, or a common one, at one length for every index."""
    from feinsum.devices import device
    from feinsum.report.census import take_census

    example = next((e for e in _examples(s) if s.roles(e) is not None), None)
    if example is None:
        return element("p", "explore an einsum of yours by ", element("code", "feinsum.explore"))
    try:
        profile = device().profile
        census = take_census(s, s.problem(example, None, profile), limit=1000)
    except Exception as reason:  # a bug of a space, or no device: its page has the rest all the same
        return element("p", f"no example: {reason}")
    said = f"for example, {example.subscripts} with every index of length {_EXAMPLE_LENGTH} on {profile.id}; explore yours"
    return Markup(element("p", said, " by ", element("code", "feinsum.explore"), ":") + census.to_html())


def _examples(s: TransformSpace) -> Iterator[BatchedEinsum]:
    for pattern in map(parse_subscripts, _EXAMPLES) if callable(s.patterns) else s.patterns:
        shapes = [(_EXAMPLE_LENGTH,) * len(letters) for letters in pattern.inputs]
        operands = [Array(f"A{k}", shape, np.dtype("float64")) for k, shape in enumerate(shapes)]
        yield BatchedEinsum(pattern, (tuple((a,) for a in operands),))


def _prose(text: str) -> Markup:
    """Text in which code stands between backticks."""
    return Markup(_CODE.sub(r"<code>\1</code>", markup(text)))


def _function_source(function: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):  # typed at a prompt
        return ""


def given_letters(e: BatchedEinsum) -> Mapping[str, str]:
    """The letters of an einsum by those of its canonical form, in which configurations are written."""
    from feinsum.canonicalization import canonicalize_einsum

    return canonicalize_einsum(e).renaming.inverse.indices


def without_repetitions(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """Records with each configuration once: that of its final, or else the first of its trials."""
    found = list(records)
    kept: dict[object, TuningRecord] = {}
    for r in sorted(found, key=lambda r: r.protocol != FINAL_PROTOCOL):
        kept.setdefault((r.einsum_key, r.sizes, r.device, r.driver, r.space, r.space_version, r.configuration, r.status), r)
    ids = {r.id for r in kept.values()}
    return [r for r in found if r.id in ids]


def records_html(records: Iterable[TuningRecord], letters: Mapping[str, str]) -> str:
    """The records of a query, best first.

    :param letters: those of the user's einsum, by those of its canonical form.
    """
    found = without_repetitions(records)
    if not found:
        return display_block("no records")
    best_s = min((r.median_s for r in found if r.median_s is not None), default=None)
    headings = ["time", "±", "rate", "bandwidth", "of the best", "lengths", "device", "space, configuration"]
    shown = table(headings, (_record_cells(r, best_s, letters) for r in found[:_SHOWN_ROWS]), text=headings[4:])
    more = f"… and {len(found) - _SHOWN_ROWS} more" if len(found) > _SHOWN_ROWS else ""
    return display_block(shown, more, title=number(len(found), "record"))


def records_text(records: Iterable[TuningRecord], letters: Mapping[str, str]) -> str:
    """The records as text, a line for each."""
    found = without_repetitions(records)
    lines = [
        f"{duration(r.median_s) if r.median_s is not None else r.status:>14}  {r.device}  {_shown_lengths(r, letters)}"
        f"  {r.space}@{r.space_version}: {settings(r.configuration, letters)}"
        for r in found[:_SHOWN_ROWS]
    ]
    if len(found) > _SHOWN_ROWS:
        lines.append(f"… and {len(found) - _SHOWN_ROWS} more")
    return "\n".join(lines) or "no records"


def _shown_lengths(r: TuningRecord, letters: Mapping[str, str]) -> str:
    return listed({letters.get(letter, letter): length for letter, length in r.sizes.items()})


def _record_cells(r: TuningRecord, best_s: float | None, letters: Mapping[str, str]) -> list[object]:
    where = [_shown_lengths(r, letters), r.device, f"{r.space}@{r.space_version}: {settings(r.configuration, letters)}"]
    if r.median_s is None:
        return [r.status, "", "", "", "", *where[:2], f"{where[2]}; {r.message[:200]}"]
    t = r.median_s
    cells = [duration(t), f"{(r.spread_s or 0.0) / t:.1%}", rate(r.flops / t), bandwidth(r.bytes / t)]
    return [*cells, bar((best_s or t) / t, f"{(best_s or t) / t:.0%}"), *where]


def match_html(m: Match) -> str:
    """The einsum found in a kernel, and its names there."""
    names = {**m.inames, **m.names}
    who = table(["einsum", "kernel"], ([own, there] for own, there in names.items()), text=["einsum", "kernel"])
    where = {"kernel": m.kernel_name, "instructions": ", ".join(m.insn_ids)}
    return display_block(
        mathml(m.einsum), element("code", m.einsum.subscripts), facts(where), details("names", who, shown=True)
    )


def _lengths_product(lengths: tuple[int, ...]) -> str:
    return " × ".join(map(shown_count, lengths))


def _shape_text(shape: tuple[Any, ...]) -> str:
    return " × ".join(map(format_axis, shape)) or "a number"


def _array_bytes_text(a: Array) -> str:
    """Bytes of an array, as a multiple of its long axes."""
    fixed = a.dtype.itemsize * math.prod(axis for axis in a.shape if isinstance(axis, int))
    long = " ".join("∞" if isinstance(axis, float) else axis for axis in a.shape if not isinstance(axis, int))
    return f"{shown_count(fixed)} {long}".strip()
