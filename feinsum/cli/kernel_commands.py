"""``feinsum generate``, ``explain`` and ``bench``: the best known kernel of an einsum, the reasons for it, its speed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from feinsum.cli.description import Request
from feinsum.cli.options import Seconds, as_log_option, device_option, einsum_arguments, json_option, known_database_option
from feinsum.cli.output import PERFORMANCE, performance, print_json, print_table, say
from feinsum.devices.peaks import EXCESS
from feinsum.errors import DeviceError
from feinsum.report.displays import given_letters
from feinsum.report.figures import duration, figure, listed, settings

if TYPE_CHECKING:
    from feinsum.candidates.ladder import ConfigurationChoice
    from feinsum.devices import Device, DeviceProfile


@click.command()
@einsum_arguments
@device_option
@known_database_option
@click.option("--tune", type=click.Choice(["never", "missing", "always"]), default="never", help="Whether to tune first.")
@click.option("--timeout", type=Seconds(), default=60.0, metavar="SECONDS", help="Seconds of tuning; 60 unless given.")
@click.option("--source", is_flag=True, help="Print the OpenCL C source and nothing else.")
@json_option
def generate(
    request: Request,
    device: str | None,
    database: str | None,
    tune: str,
    timeout: float,
    source: bool,
    as_json: bool,
) -> None:
    """Generate the fastest kernel known.

    Prints where the kernel comes from: the record, the transform space and the configuration; or its source.

    \b
    Examples:
      feinsum generate "ij,jk->ik" --size i=1024,j=1024,k=1024
      feinsum generate "xre,rij,ej->xei" --shape J=3,3,E --shape D=3,20,20 --shape u=E,20 --source
    """
    import feinsum as fe

    e = request.einsum
    kernel = fe.generate(e, device, database, request.sizes, tune, timeout=timeout)
    if as_json:
        from feinsum.registry import find_space

        found: dict[str, Any] = {
            "subscripts": e.subscripts,
            "device": kernel.device.id,
            "rung": kernel.rung,
            "space": kernel.space,
            "space_version": find_space(kernel.space).version,
            "configuration": kernel.configuration,
            "record": kernel.record.id if kernel.record else None,
            "median_s": kernel.record.median_s if kernel.record else None,
        }
        print_json(found | {"source": kernel.source} if source else found)
    else:
        say(kernel.source if source else kernel.explain())


@click.command()
@einsum_arguments
@device_option
@known_database_option
@as_log_option
@json_option
def explain(request: Request, device: str | None, database: str | None, form: str | None, as_json: bool) -> None:
    """Explain an einsum without compiling it.

    Prints its canonical key, its work, the spaces that match and the candidates of `feinsum generate`, in order.  The
    device need not be here: --device takes those of the records that come with feinsum, too.

    \b
    Examples:
      feinsum explain "xre,rij,ej->xei" --long e --size x=3,r=3,i=20,j=20,e=100000
      feinsum explain "ij,jk->ik" --size i=1024,j=1024,k=1024 --device h200
    """
    import feinsum as fe
    from feinsum.build.kernel_builder import nonempty
    from feinsum.generate import expected_sizes
    from feinsum.registry import matching_spaces

    e = request.einsum
    sizes = expected_sizes(e, request.sizes)
    chosen = _here_or_known(device)
    if form is not None:
        chosen = chosen or fe.device()
    nothing: dict[str, Any] = {"device": None, "least_s": None, "candidates": []}
    facts = nothing if chosen is None else _device_facts(request, chosen, database, sizes)
    if form is not None and chosen is not None:
        say(_log_schedule(request, chosen, sizes, facts["candidates"][0]))
        return
    flops, nbytes = e.flops(sizes), e.min_bytes(sizes)
    found = {
        "einsum": str(e),
        "key": fe.canonicalize_einsum(e).key,
        "lengths": e.resolve(sizes),
        "flops": flops,
        "bytes": nbytes,
        "flops_per_byte": flops / max(nbytes, 1),
        "spaces": [space.name for space in matching_spaces(nonempty(e))],
        **facts,
    }
    if as_json:
        print_json(found)
        return
    least_s, choices = found.pop("least_s"), found.pop("candidates")
    if chosen is None:
        found["device"] = f"none here; --device explains for one of {', '.join(p.id for p in _known_profiles())}"
    else:
        there = "" if chosen.usable else " on its machine"
        unknown = f"unknown; `feinsum devices --measure` measures the peaks{there}"
        found["least time"] = duration(least_s) if least_s else unknown
        found["candidates"] = choices
    if set(e.long_axes) - set(request.sizes):
        found["lengths"] = f"for example {listed(found['lengths'])}"
    for name, value in found.items():
        say(f"{name.replace('_', ' '):>14}  {_as_text(value, given_letters(e))}")


def _known_profiles() -> list[DeviceProfile]:
    from feinsum.database import CuratedRecords

    return CuratedRecords().profiles()


def _here_or_known(name: str | None) -> Device | None:
    """The device of this machine that a name means, or else one that is described beside curated records; None if none was
    named and none works."""
    from feinsum.devices import Device
    from feinsum.devices import device as choose
    from feinsum.devices.device_choice import VARIABLE

    word = (name or os.environ.get(VARIABLE) or "").strip().lower()
    try:
        return choose(word)
    except DeviceError as error:
        if not word:
            return None
        profiles = _known_profiles()
        known = [profile for profile in profiles if word in profile.id or word in profile.name.lower()]
        if not known:
            raise type(error)(f"{error}.  explain also takes {', '.join(profile.id for profile in profiles)}") from None
        return Device(known[0], why="this machine has none")


def _device_facts(request: Request, device: Device, database: str | None, sizes: dict[str, int]) -> dict[str, Any]:
    """The roofline on a device, if its peaks are known, and the candidates of `generate`, in order."""
    from feinsum.build.kernel_builder import nonempty
    from feinsum.candidates.ladder import candidates
    from feinsum.canonicalization import canonicalize_einsum
    from feinsum.cost import roofline_s
    from feinsum.database import open_stores
    from feinsum.space import Instance

    e = request.einsum
    canonical = canonicalize_einsum(nonempty(e))
    lengths = canonical.renaming.lengths({x: max(1, length) for x, length in e.resolve(sizes).items()})
    here = Instance.of_canonical(canonical, lengths, device.profile)
    peaks = device.known_peaks
    least = None if peaks is None else roofline_s(e.flops(sizes), e.min_bytes(sizes), e.dtype, peaks)
    choices = candidates(here, open_stores(database, tolerant=True))
    return {"device": device.id, "least_s": least, "candidates": [_candidate_row(choice) for choice in choices]}


def _log_schedule(request: Request, device: Device, sizes: Mapping[str, int], first: Mapping[str, Any]) -> str:
    """The schedule that `generate` would try first."""
    from feinsum.languages.immediate.schedules import KernelRemark, known_schedule, write_schedule
    from feinsum.registry import find_space

    kernel = KernelRemark(first["space"], find_space(first["space"]).version, first["configuration"])
    e = request.einsum
    lengths = {name: max(1, length) for name, length in sizes.items()}
    known = known_schedule(e, kernel, device.profile, lengths)
    return f"; {first['rung']}\n{write_schedule(e, known, lengths)}".rstrip()


def _candidate_row(choice: ConfigurationChoice) -> dict[str, Any]:
    return {
        "rung": choice.rung,
        "space": choice.space.name,
        "configuration": dict(choice.configuration),
        "median_s": choice.record.median_s if choice.record else None,
        "expected_s": choice.expected_s,
    }


def _candidate_as_text(candidate: dict[str, Any], letters: Mapping[str, str]) -> str:
    median_s, expected_s = candidate["median_s"], candidate["expected_s"]
    time = f" (about {duration(expected_s)})" if expected_s else f" ({duration(median_s)})" if median_s else ""
    return f"{candidate['rung']}: {candidate['space']} {settings(candidate['configuration'], letters)}{time}"


def _as_text(value: Any, letters: Mapping[str, str]) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return ("\n" + " " * 16).join(_candidate_as_text(candidate, letters) for candidate in value)
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, dict):
        return listed(value) or "none"
    return figure(value) if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


@click.command()
@einsum_arguments
@device_option
@known_database_option
@click.option("--seconds", type=Seconds(), default=1.0, help="Seconds for samples; 1 unless given.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Draw the kernel below the roofline, beside numpy and other records: a .png, .svg or .pdf.",
)
@json_option
def bench(
    request: Request, device: str | None, database: str | None, seconds: float, plot: str | None, as_json: bool
) -> None:
    """Time the best kernel known.

    Compares it with the roofline of the device.  The kernel is proved right first.  The roofline is the least time in
    which the device could move the bytes or do the operations, by the peaks measured on it.

    \b
    Example:
      feinsum bench "ij,jk->ik" --size i=1024,j=1024,k=1024 --plot roofline.png
    """
    import feinsum as fe

    request.require_sizes()
    e, sizes = request.einsum, request.sizes
    kernel = fe.generate(e, device, database, sizes)
    timing = fe.timeit(
        e, kernel.device, configuration=kernel.configuration, space=kernel.space, sizes=sizes, seconds=seconds
    )
    roof = fe.roofline(e, kernel.device, sizes)
    if roof.seconds > EXCESS * timing.median_s and kernel.device.doubt_peaks():
        roof = fe.roofline(e, kernel.device, sizes)
    if plot is not None:
        from feinsum.exploration import roofline_with_peers
        from feinsum.report.plots import save_picture

        records = fe.query(e, kernel.device, database)
        save_picture(roofline_with_peers(kernel, sizes, timing.median_s, records, seconds=seconds), plot)
    if as_json:
        print_json(
            {
                "subscripts": e.subscripts,
                "device": kernel.device.id,
                "rung": kernel.rung,
                "space": kernel.space,
                "configuration": kernel.configuration,
                "median_s": timing.median_s,
                "spread_s": timing.spread_s,
                "flops": roof.flops,
                "bytes": roof.bytes,
                "roofline_s": roof.seconds,
                "bound": roof.bound,
            }
        )
        return
    cells = performance(timing.median_s, timing.spread_s, roof.flops, roof.bytes)
    share = f"{roof.seconds / timing.median_s:.0%} ({roof.bound})"
    row = [*cells, share, kernel.rung, f"{kernel.space}: {settings(kernel.configuration, given_letters(e))}"]
    print_table([*PERFORMANCE, "roofline", "rung", "kernel"], [row], left=["rung", "kernel"])
