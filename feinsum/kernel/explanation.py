"""Explanations of a kernel: its rung of the ladder, its record and the distance from it, its speed, and the cost of
copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from feinsum.canonicalization import canonicalize_einsum, parse_key
from feinsum.cost import roofline_s
from feinsum.cost.model import cost_model
from feinsum.devices.peaks import EXCESS
from feinsum.report.figures import listed, settings
from feinsum.space.chain import STEPS, read_chain
from feinsum.timing import FINAL_PROTOCOL

if TYPE_CHECKING:
    from feinsum.build.kernel_builder import KernelJob
    from feinsum.candidates.origin import Origin
    from feinsum.contract.evaluation import Evaluation
    from feinsum.database import TuningRecord
    from feinsum.devices import Device
    from feinsum.kernel.array_adapter import Copied
    from feinsum.kernel.kernel import Kernel


def explain_kernel(kernel: Kernel, meaning: str, job: KernelJob, origin: Origin, copied: Sequence[Copied]) -> str:
    """See :meth:`Kernel.explain`."""
    given = kernel.expected | {letter: 0 for letter, axis in kernel.einsum.index_sizes.items() if axis == 0}
    texts = [own.text(kernel.einsum.indexing.output) if own else "v" for own in kernel.einsum.epilogues]
    then = f" then {'; '.join(texts if len(set(texts)) > 1 else texts[:1])}" if texts else ""
    meaning = meaning.removeprefix("nothing measured fits; ") if origin.doubt else meaning
    lines = [
        f"{kernel.einsum.subscripts}{then} on {kernel.device}",
        f"  lengths   {listed(given) or 'none, for it has no indices'}",
        f"  rung      {origin.rung}: {meaning}",
        *_space_lines(job, origin),
    ]
    return "\n".join(
        [
            *lines,
            *_record(kernel, job, origin),
            *_expected_time_line(kernel, origin),
            *([f"  doubted   {origin.doubt}"] if origin.doubt else []),
            *_selection_line(origin),
            *(copy_line(one, kernel.device) for one in copied),
        ]
    )


def explain_steps(text: str, evaluation: Evaluation, copied: Sequence[Copied]) -> str:
    """See :meth:`feinsum.contract.contract.ContractExpression.explain`."""
    lines = [f"{text} on {evaluation.device}, in {len(evaluation.tasks)} step{'s' if len(evaluation.tasks) > 1 else ''}"]
    for number, task in enumerate(evaluation.tasks):
        choice, step = task.choice, task.step
        taken = ", ".join(map(str, step.positions))
        once = ", once, as it follows from constants alone" if task.constant else ""
        lines.append(f"step {number} takes {taken}: {step.subscripts}, {listed(step.lengths)}, {task.flops:.3g} FLOP{once}")
        if task.kernel is not None:
            lines += [f"  {line}" for line in task.kernel.explain().splitlines()[1:]]
        else:
            lines.append("    rung      library: numpy's matrix product, a BLAS")
        if choice.library_s is not None:
            how = "measured" if choice.measured else "expected"
            kernel = "" if choice.kernel_s is None else f", the kernel {_time(choice.kernel_s)}"
            lines.append(f"    library   {how} to take {_time(choice.library_s)}{kernel}")
    return "\n".join([*lines, *_copied_operand_lines(evaluation), *(copy_line(one, evaluation.device) for one in copied)])


def _copied_operand_lines(evaluation: Evaluation) -> list[str]:
    """A line for each operand that is copied in every call."""
    return [
        f"  copied    operand {k}, in every call: it is not {layout.dtype}, or strided"
        for k, layout in enumerate(evaluation.layouts)
        if layout.convert
    ]


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"


def _space_lines(job: KernelJob, origin: Origin) -> list[str]:
    """The configuration; that of a chain as a line for each step, with the record that speaks for it."""
    space = f"  space     {origin.space} (version {origin.version})"
    given = job.canonical.renaming.inverse.indices
    if not origin.steps:
        return [f"{space}: {settings(origin.configuration, given)}"]
    lines = [f"{space}: a chain of {len(origin.steps)} steps"]
    links = read_chain(origin.configuration[STEPS])
    for number, (step, link) in enumerate(zip(origin.steps, links, strict=True)):
        subscripts = step.rename(given).subscripts
        lines.append(
            f"  step {number}    {subscripts} by {link.space} (version {link.version}): {listed(link.configuration)}"
        )
        r = step.record
        if r is not None and r.median_s is not None:
            lines.append(f"            {step.kind} record {r.id} of {r.created}, {r.median_s * 1e3:.4g} ms")
        else:
            lines.append(f"            {step.kind}")
        if step.passed_over:
            lines.append(f"            passed over: {step.passed_over}")
    return lines


def _record(kernel: Kernel, job: KernelJob, origin: Origin) -> list[str]:
    r = origin.record
    if r is None or r.median_s is None:
        return []
    t, back = r.median_s, job.canonical.pattern.renaming.inverse
    at = back.lengths(r.pattern_sizes)
    lines = [
        f"  record    {r.id} of {r.created}, at {listed(at)}",
        f"  time      {t * 1e3:.4g} ms, {r.flops / t / 1e9:.4g} GFLOP/s, {r.bytes / t / 1e9:.4g} GB/s",
    ]
    ours = kernel.expected
    factors = {x: ours[x] / length for x, length in at.items() if length and ours[x] != length}
    if factors:
        lines[0] += f"; the lengths are {listed({x: f'{factor:.3g}' for x, factor in factors.items()})} times those"
    lines[0] += _of_another(kernel, r)
    changed = {x: value for x, value in origin.configuration.items() if r.configuration.get(x, value) != value}
    if changed:
        was = {x: r.configuration[x] for x in changed}
        given = job.canonical.renaming.inverse.indices
        lines.append(f"  adapted   {settings(changed, given)}, where the record has {settings(was, given)}")
    if r.protocol == FINAL_PROTOCOL and r.message:
        lines.append(f"  final     {r.message}")
    if kernel.device.known_peaks is not None:
        lines.append(f"  roofline  {_roofline_share(kernel, r, t)}")
    return lines


def _roofline_share(kernel: Kernel, r: TuningRecord, t: float) -> str:
    """The share of the roofline; where a record exceeds it, the peaks are measured again."""

    def share() -> float:
        return roofline_s(r.flops, r.bytes, kernel.einsum.dtype, kernel.device.peaks) / t

    fraction = share()
    again = fraction > EXCESS and kernel.device.doubt_peaks()
    fraction = share() if again else fraction
    said = f"{fraction:.0%} of what the device can do"
    if fraction > EXCESS:
        return f"{said} now: it was faster when the record was measured, or was another; see `feinsum devices --measure`"
    return f"{said}; its peaks had been measured on a busy machine, and were measured again" if again else said


def _of_another(kernel: Kernel, r: TuningRecord) -> str:
    """The differences of a record's einsum other than lengths."""
    recorded, e = parse_key(r.einsum_key), kernel.einsum
    theirs, ours = (", ".join(sorted({a.dtype.name for a in one.bare.arrays})) for one in (recorded, e))
    found = f"; it has {recorded.b} rows, not {e.b}" if recorded.b != e.b else ""
    found = f"{found}; it is of {theirs}, not {ours}" if theirs != ours else found
    if bool(recorded.epilogues) != bool(e.epilogues):
        return f"{found}; it is of the bare einsum" if e.epilogues else f"{found}; it has an epilogue"
    then = canonicalize_einsum(recorded).key.split("|")[5:] != canonicalize_einsum(e).key.split("|")[5:]
    return f"{found}; it has another epilogue" if then else found


def _expected_time_line(kernel: Kernel, origin: Origin) -> list[str]:
    """A line for the time expected at the lengths asked for, where it is not that of the record."""
    t, record = origin.expected_s, origin.record
    if t is None or (record is not None and record.median_s == t):
        return []
    e, profile = kernel.einsum, kernel.device.profile
    sizes = e.sizes_from(kernel.expected)
    text = f"  expected  about {t * 1e3:.2g} ms, {e.flops(sizes) / t / 1e9:.2g} GFLOP/s"
    peaks = kernel.device.known_peaks
    if peaks is not None:
        text += f", {roofline_s(e.flops(sizes), e.min_bytes(sizes), e.dtype, peaks) / t:.0%} of what the device can do"
    if record is not None:
        bare = e.epilogues and not parse_key(record.einsum_key).epilogues
        added = ", and the bytes that the epilogue adds" if bare else ""
        return [f"{text}: the time of the record, changed as the cost model says{added}"]
    if origin.rung == "steps":
        return [f"{text}: that of the steps one after the other"]
    factor = cost_model().factor(profile.kind)
    known = (
        "nothing was learnt of such devices" if factor is None else f"half of such guesses are off by {factor:.2g} at most"
    )
    return [f"{text}; {known}"]


def _selection_line(origin: Origin) -> list[str]:
    """A line for what was tried before the kernel was taken."""
    if not origin.selection:
        return []
    (_, t), *others = origin.selection
    behind = ", ".join(f"{space} {_time(seconds)}" for space, seconds in others)
    return [f"  selected  {_time(t)}, the fastest of {len(origin.selection)} candidates{f': {behind}' if behind else ''}"]


def copy_line(copied: Copied, device: Device) -> str:
    """A line for an array that the last call copied; the time is that of reading and writing it once."""
    peaks = device.known_peaks
    cost = "" if peaks is None else f", {2 * copied.nbytes / peaks.copy_bytes_per_s * 1e3:.3g} ms at least"
    return f"  copied    {copied.name}, which {copied.why}, in the last call: {copied.nbytes} bytes{cost}"
