"""``feinsum tune`` and ``feinsum query``: try configurations, and ask what is known."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from feinsum.cli import completion
from feinsum.cli.completion import complete_one_of
from feinsum.cli.description import Request
from feinsum.cli.options import (
    Seconds,
    as_log_option,
    database_option,
    device_option,
    einsum_arguments,
    json_option,
    known_database_option,
    part_of_id_option,
    status_option,
)
from feinsum.cli.output import PERFORMANCE, performance, print_json, print_table, record_as_json, say, show_log
from feinsum.report.displays import given_letters, without_repetitions
from feinsum.report.figures import duration, listed, settings

if TYPE_CHECKING:
    from feinsum.database import TuningRecord
    from feinsum.query import QueryResult
    from feinsum.tune.batch import JobResult

_MESSAGE = 160
"""Characters shown of the message of a failure; --json has it all."""


def _or_job_file(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command that takes an einsum take a job file in its place."""

    @functools.wraps(command)
    def either(*, subscripts: str, **options: Any) -> None:
        if subscripts.endswith(".toml"):
            _tune_batch(subscripts, options)
        elif subscripts.endswith(".decl"):
            _tune_program(subscripts, options)
        elif options.pop("shard") is not None:
            raise click.UsageError("--shard divides the jobs of a job file; give one in place of the subscripts")
        else:
            command(subscripts=subscripts, **options)

    return either


@click.command()
@_or_job_file
@einsum_arguments
@device_option
@database_option
@click.option("--trials", type=click.IntRange(min=1), metavar="N", help="Configurations to try.")
@click.option("--timeout", type=Seconds(), metavar="SECONDS", help="Seconds of the run, its final included.")
@click.option(
    "--space",
    metavar="NAME",
    shell_complete=complete_one_of(completion.complete_spaces),
    help="Search this transform space only; see `feinsum spaces`.",
)
@click.option(
    "--sampler",
    metavar="NAME",
    shell_complete=complete_one_of(completion.samplers),
    help="exhaustive, random, parzen, tpe or genetic; unless given, chosen by space and budget.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    help="Seed of the search and of the inputs; by default 0 for the search, and random for the inputs.",
)
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Processes that build; one a core, four at most.")
@click.option(
    "--steps",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    help="Tune the steps of three or more operands, too: where chains are in reach (auto), first, or not at all.",
)
@click.option(
    "--schedule",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Try this first: order, kernels and marks of a program of the immediate language, see `feinsum plan --order C`.",
)
@click.option("--scheduler", metavar="ADDRESS", help="Let the workers of this dask.distributed scheduler do the trials.")
@click.option("--shard", metavar="I/N", help="Of a job file: do every N-th job, from the I-th on.")
@click.option("--html", type=click.Path(dir_okay=False), metavar="FILE", help="Write the report as a page to explore.")
@click.option(
    "--beside",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="With --html: a page of an earlier run, to compare with.",
)
@json_option
@click.pass_context
def tune(
    ctx: click.Context,
    /,
    request: Request,
    device: str | None,
    database: str | None,
    as_json: bool,
    html: str | None,
    beside: str | None,
    schedule: Any,
    **options: Any,
) -> None:
    """Try configurations and record them.

    Each configuration is proved and timed, and what came of it is recorded.  What the records know already is not
    tried again, so a second call goes on where the first one, or Ctrl-C, stopped.  Without --trials and --timeout it
    takes a minute.  Exits with 1 if no configuration is right.

    A job file, whose name ends in .toml, may stand in place of SUBSCRIPTS; jobs that are done are skipped.  Exits with 1 if
    a job failed: also where no configuration is right, or the time was too short to try one.  With --shard each shard
    writes to a store of its own, for `feinsum db merge`.  Several devices, as in --device gpu:0,gpu:1, or
    all, do the jobs of a file at once; equal devices share them.

    \b
    A program of the declarative language, whose name ends in .decl, is tuned at the lengths that --size gives.

    \b
    Examples:
      feinsum tune tiles.decl --size M=1024,K=1024,N=1024 --timeout 30
      feinsum tune "xre,rij,ej->xei" --shape J=3,3,E --shape D=3,20,20 --shape u=E,20 --size E=100000 --timeout 40
      feinsum tune night.toml --shard 1/8
      feinsum tune night.toml --device all
    """
    import feinsum as fe

    request.require_sizes()
    if device is not None and "," in device:
        raise click.UsageError("--device names several devices, which do the jobs of a file; one einsum takes one")
    if html is not None:
        _require_writable_report(html)
    elif beside is not None:
        raise click.UsageError("--beside says what a page is compared with; give --html FILE, too")
    own = {} if schedule is None else _read_schedule(request, schedule, device, database, options["scheduler"])
    report = fe.autotune(request.einsum, device, database, request.sizes, **own, **options)
    if html is not None:
        report.write_html(html, beside)
    if as_json:
        print_json(report.to_json())
    else:
        say(report.table())
        if report.best is not None and report.final is None and report.best not in report.records:
            kernel = settings(report.best.configuration, given_letters(request.einsum))
            say(f"the best known is older: {report.best.space} {kernel}")
    if report.interrupted:
        raise KeyboardInterrupt
    if report.best is None:
        ctx.exit(1)


def _read_schedule(
    request: Request, path: str, device: str | None, database: str | None, scheduler: str | None
) -> dict[str, Any]:
    """The arguments of :func:`feinsum.autotune` for the schedule in a file."""
    import feinsum as fe
    from feinsum.database import open_stores
    from feinsum.languages.immediate.schedule_attempts import attempts
    from feinsum.languages.immediate.schedules import read_schedule
    from feinsum.languages.program import program

    e = request.einsum
    found = read_schedule(program(path, "immediate"), e)
    order = found.steps if len(found.steps.steps) > 1 else None
    if not any(found.kernels) and (order is None or not any(found.marks)):
        if order is None:
            raise click.UsageError(f"{path} is one step without a kernel, so there is nothing to try")
        return {"schedule": order}
    if scheduler is not None:
        raise click.UsageError("kernels and marks of a schedule are for the device of this machine, not for --scheduler")
    own = attempts(e, found, fe.device(device).profile, open_stores(database), request.sizes)
    for remark in own.remarks:
        say(remark, err=True)
    return {"schedule": order, "first": own.configurations}


def _require_writable_report(path: str) -> None:
    """Before the tuning rather than after it."""
    try:
        Path(path).touch()
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}") from None


_OF_AN_EINSUM = (
    *("shapes", "sizes", "long", "rows", "dtypes", "then"),
    *("trials", "timeout", "space", "sampler", "seed", "steps", "schedule", "html", "beside"),
)


def _refuse_options(ctx: click.Context, subject: str, allowed: Sequence[str] = ()) -> None:
    """Refuse options that only einsums have.

    :param allowed: those that go with the subject, too.
    """
    for name in _OF_AN_EINSUM:
        if name not in allowed and ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            flags = {parameter.name: parameter.opts[0] for parameter in ctx.command.params}
            raise click.UsageError(f"{flags[name]} does not go with {subject}")


def _tune_program(path: str, options: Mapping[str, Any]) -> None:
    """Search what a program leaves open, at the lengths of its arguments."""
    from feinsum.cli.description import read_lengths
    from feinsum.languages.program import program
    from feinsum.tune.autotune import autotune

    ctx = click.get_current_context()
    _refuse_options(ctx, "a program", _OF_A_PROGRAM)
    taken = {name: options[name] for name in ("trials", "timeout", "sampler", "seed", "workers", "scheduler")}
    report = autotune(program(path), options["device"], options["database"], read_lengths(options["sizes"]), **taken)
    if options["as_json"]:
        print_json(report.to_json())
    else:
        say(report.table())
    if report.interrupted:
        raise KeyboardInterrupt
    if report.best is None:
        ctx.exit(1)


_OF_A_PROGRAM = ("sizes", "trials", "timeout", "sampler", "seed")


def _tune_batch(path: str, options: Mapping[str, Any]) -> None:
    """Do the jobs of a job file, and say what became of each as soon as that is known."""
    from feinsum.tune.batch import Shard, run_batch
    from feinsum.tune.device_lanes import several
    from feinsum.tune.jobs import read_jobs

    ctx = click.get_current_context()
    _refuse_options(ctx, "a job file; write it into the file")
    shard = Shard() if options["shard"] is None else Shard.parse(options["shard"])
    file = read_jobs(path)
    word = options["device"]
    lanes = several(word) if word is not None and ("," in word or word.strip().lower() == "all") else ()
    jobs = [job if word is None or lanes else replace(job, device=word) for job in file.jobs]
    total = len(shard.of(jobs)) * len({lane.id for lane in lanes} or {None})
    said = 0
    if not sys.stderr.isatty():  # where a progress bar tells it
        show_log("feinsum.tune.batch", "feinsum.tune.worker", "feinsum.tune.cluster")

    def tell(result: JobResult) -> None:
        nonlocal said
        said += 1
        say(f"{said}/{total} {result}", err=options["as_json"])

    results = run_batch(
        jobs,
        options["database"] or file.database,
        shard=shard,
        scheduler=options["scheduler"],
        workers=options["workers"],
        tell=tell,
        devices=lanes,
    )
    if options["as_json"]:
        print_json([result.to_json() for result in results])
    if any(result.status == "interrupted" for result in results):
        raise KeyboardInterrupt
    if any(result.status == "failed" for result in results):
        ctx.exit(1)


@click.command()
@einsum_arguments
@part_of_id_option
@known_database_option
@status_option("ok", "ok unless given; wrong, timeout, ... or all.")
@click.option("--mine", is_flag=True, help="Only records of your own store, not those that come with feinsum.")
@click.option("--limit", type=click.IntRange(min=1), default=20, metavar="N", help="Records to print; 20 unless given.")
@as_log_option
@json_option
@click.pass_context
def query(
    ctx: click.Context,
    request: Request,
    part: str | None,
    database: str | None,
    status: str | None,
    mine: bool,
    limit: int,
    form: str | None,
    as_json: bool,
) -> None:
    """Print the records of an einsum, best first.

    Those of the devices of this machine come before all others.  The column `origin` says which are yours and which came
    with feinsum.  Records at whatever lengths of its long axes are shown.  Names and order of operands and indices do not
    matter.  Exits with 1 if nothing is recorded.

    \b
    Example:
      feinsum query "ij,jk->ik" --size i=1024,j=1024,k=1024 --limit 3
    """
    import feinsum as fe

    e = request.einsum
    known = fe.query(e, None, database, status=status, mine=mine)
    here = {device.id for device in fe.devices()}
    fitting = [record for record in known if (part or "").lower() in record.device]
    found = sorted(fitting, key=lambda record: record.device not in here)
    if form is not None and found:
        _print_logs(request, known, without_repetitions(found)[:limit])
    elif as_json:
        print_json([record_as_json(r) | {"origin": _record_origin(r, known)} for r in found[:limit]])
    elif found:
        shown = without_repetitions(found)
        _print_records(known, shown[:limit], here)
        if len(shown) > limit:
            say(f"{len(shown) - limit} more; see --limit", err=True)
    if not found:
        elsewhere = f"; there are some of {', '.join(sorted({record.device for record in known}))}" if known else ""
        say(
            f"no {'record of yours' if mine else 'record'} of '{e.subscripts}'{elsewhere}; `feinsum tune` makes some",
            err=True,
        )
        ctx.exit(1)


def _print_logs(request: Request, known: QueryResult, records: Sequence[TuningRecord]) -> None:
    """Records as programs of the immediate language."""
    from feinsum.devices import devices
    from feinsum.languages.immediate.schedules import recorded_schedule, write_schedule

    e = request.einsum
    profiles = {here.id: here.profile for here in devices()}
    for number, r in enumerate(records):
        time = "" if r.median_s is None else f", {duration(r.median_s)}"
        sizes = e.sizes_from({known.letters[letter]: length for letter, length in r.sizes.items()})
        text = write_schedule(e, recorded_schedule(e, r, profiles.get(r.device), sizes), sizes, name=f"record{number}")
        say(f"; record {r.id} of {r.device}: {r.status}{time}\n{text}")


def _record_origin(r: TuningRecord, known: QueryResult) -> str:
    """The origin of a record: yours, or feinsum's."""
    return "yours" if r.id in known.mine else "feinsum"


def _print_records(known: QueryResult, records: Sequence[TuningRecord], here: Collection[str]) -> None:
    """A table of records, in the letters of the request; where something went wrong, what is its last column.

    :param here: the ids of the devices of this machine.
    """
    letters = known.letters
    rows = []
    for r in records:
        cells = ["-"] * 4 if r.median_s is None else performance(r.median_s, r.spread_s or 0.0, r.flops, r.bytes)
        kernel = f"{r.space}@{r.space_version}: {settings(r.configuration, letters)}"
        message = "" if r.status == "ok" else " ".join(r.message.split())  # a winner's names its ties: see --json
        shown = message if len(message) <= _MESSAGE else message[:_MESSAGE] + "..."
        lengths = listed({letters[letter]: length for letter, length in r.sizes.items()})
        device = f"{r.device} (here)" if r.device in here else r.device
        rows.append([r.status, *cells, lengths, device, _record_origin(r, known), kernel, shown])
    texts = ["status", "lengths", "device", "origin", "kernel", "message"]
    headings = ["status", *PERFORMANCE, *texts[1:]]
    if not any(row[-1] for row in rows):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    print_table(headings, rows, left=texts)
