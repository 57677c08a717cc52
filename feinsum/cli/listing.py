"""``feinsum devices`` and ``feinsum spaces``: the devices to compute on, and the transform spaces."""

from __future__ import annotations

from inspect import cleandoc, getsourcefile
from typing import TYPE_CHECKING

import click

from feinsum.cli import completion
from feinsum.cli.completion import complete_one_of
from feinsum.cli.options import json_option
from feinsum.cli.output import print_json, print_table, say
from feinsum.devices.peaks import BUSY
from feinsum.report.figures import figure

if TYPE_CHECKING:
    from feinsum.devices import Device
    from feinsum.space import TransformSpace


@click.command()
@click.option("--measure", is_flag=True, help="Probe again, and measure the peaks again; best on an idle machine.")
@click.option("--refresh", is_flag=True, help="Probe every device again.")
@json_option
@click.pass_context
def devices(ctx: click.Context, measure: bool, refresh: bool, as_json: bool) -> None:
    """List the OpenCL devices, best first.

    Tells whether each works, its limits and its measured peaks.  A driver may list a device for which it can build
    nothing, so each device is probed once with small kernels.  Exits with 1 if none works.

    \b
    Example:
      feinsum devices --measure
    """
    import feinsum as fe
    from feinsum.devices import describe_devices, measure_peaks
    from feinsum.devices.device_choice import idle_drivers, way_out

    found = fe.devices(refresh or measure)
    usable = [device for device in found if device.usable]
    if measure:
        for device in usable:
            measure_peaks(device, refresh=True)
    if as_json:
        print_json(describe_devices())
    elif found:
        _print_devices(found)
    if not usable:
        say(f"no OpenCL device works; {way_out()}", err=True)
        ctx.exit(1)
    for driver in idle_drivers():
        say(driver, err=as_json)


def _print_devices(found: tuple[Device, ...]) -> None:
    rows = []
    for device in found:
        p, peaks = device.profile, device.known_peaks
        sizes = f"{min(p.sub_group_sizes)}-{max(p.sub_group_sizes)}" if p.sub_group_sizes else "-"
        row = [device.word, "yes" if device.usable else "no", str(p.compute_units), figure(p.local_memory_bytes / 1024)]
        row += [str(p.simd_bytes or "-"), sizes, figure(p.global_memory_bytes / 2**30)]
        if peaks is None:
            row += ["-"] * 3
        else:
            fp64 = peaks.flops_per_s("float64") if peaks.fp64_flops_per_s else None
            row += [
                figure(peaks.fp32_flops_per_s / 1e9),
                figure(fp64 / 1e9) if fp64 else "none",
                figure(peaks.copy_bytes_per_s / 1e9),
            ]
        rows.append(row)
    headings = ["device", "works", "units", "local KiB", "SIMD B", "sub-groups", "GiB"]
    print_table([*headings, "fp32 GFLOP/s", "fp64 GFLOP/s", "copy GB/s"], rows, left=["device", "works", "sub-groups"])
    for device in found:
        if not device.usable:
            say(f"{device.id} does not work: {device.why}")
    for device in found:
        peaks = device.known_peaks
        if peaks is not None and peaks.processor_share < BUSY:
            had = f"{device.id}: the measurement of the peaks had {peaks.processor_share:.0%} of the processor"
            say(f"{had}, other processes the rest; repeat it on an idle machine with --measure")
    if any(device.usable and device.known_peaks is None for device in found):
        say("peaks (-) are measured when they are first needed, or by --measure")


@click.command()
@click.argument("name", required=False, shell_complete=complete_one_of(completion.complete_spaces))
@json_option
def spaces(name: str | None, as_json: bool) -> None:
    """List the transform spaces, or describe one of them and its parameters.

    The most specific come first.  The spaces are those of feinsum and those of installed packages that offer some.
    `feinsum explain` tells which of them an einsum matches.

    \b
    Example:
      feinsum spaces
      feinsum spaces vector_panels
    """
    from feinsum.registry import find_space
    from feinsum.registry import spaces as registered

    if name is not None:
        _print_space(find_space(name), as_json)
        return
    rows = [(space.name, space.version, matches(space), first_sentences(space.description)) for space in registered()]
    if as_json:
        keys = ("name", "version", "matches", "description")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    cells = [[name, str(version), what, text] for name, version, what, text in rows]
    print_table(["space", "version", "matches", "plan"], cells, left=["space", "matches", "plan"])


def _print_space(space: TransformSpace, as_json: bool) -> None:
    rows = [
        [name, ", ".join(sorted({m.word for m in meanings})), " ".join(m.prose for m in meanings)]
        for name, meanings in space.described.items()
    ]
    if as_json:
        facts = {"name": space.name, "version": space.version, "matches": matches(space), "description": space.description}
        print_json({**facts, "parameters": {name: {"words": words, "means": prose} for name, words, prose in rows}})
        return
    click.echo(f"{space.name}, version {space.version}, for {matches(space)}\n\n{cleandoc(space.description)}\n")
    if rows:
        print_table(
            ["parameter", "word", "meaning"],
            [[cell.replace("`", "") for cell in row] for row in rows],
            left=["parameter", "word", "meaning"],
        )
    else:
        click.echo(f"it is written with moves; its file says what its parameters mean: {getsourcefile(space.function)}")


def matches(space: TransformSpace) -> str:
    """The einsums of a space: its subscripts, or the name of its predicate."""
    if not callable(space.patterns):
        return ", ".join(map(str, space.patterns)) + (", axes in any order" if space.longest else "")
    return "every einsum" if space.rank == 0 else f"{space.patterns.__name__}(e)"


def first_sentences(docstring: str) -> str:
    """The first paragraph of a docstring in one line, without the marks of code."""
    return " ".join(docstring.strip().partition("\n\n")[0].split()).replace("`", "")
