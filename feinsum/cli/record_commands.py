"""``feinsum db``: move records between stores, count them, and prove them again."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from feinsum.cli.options import Seconds, database_option, device_option, json_option, part_of_id_option, status_option
from feinsum.cli.output import print_json, say

if TYPE_CHECKING:
    from feinsum.database import Database
    from feinsum.database.jsonl import ImportReport
    from feinsum.tune.reproof import Reproof


@click.group()
def db() -> None:
    """Move, count and prove records.

    \b
    Example:
      feinsum db export records.jsonl
    """


@db.command("export")
@click.argument("target", type=click.Path(dir_okay=False, allow_dash=True), default="-", metavar="[FILE]")
@part_of_id_option
@status_option("all", "Only records of this status: ok, wrong, timeout, ...; all unless given.")
@database_option
def export(target: str, part: str | None, status: str | None, database: str | None) -> None:
    """Write records as JSON Lines.

    They are sorted, and go to a file or the standard output.  --device has to fit one device only.

    \b
    Example:
      feinsum db export records.jsonl --status ok
    """
    import feinsum as fe

    with fe.Database(database, create=False) as store:
        device = None if part is None else _only_device(part, store.stats().by_device)
        if target == "-":
            store.export_jsonl(sys.stdout, device=device, status=status)
        else:
            number = store.export_jsonl(target, device=device, status=status)
            say(f"{number} records written to {target}", err=True)


def _only_device(part: str, known: Iterable[str]) -> str:
    """The id of the only device with `part` in its id; an id itself may be part of another one."""
    fitting = [device for device in known if part.lower() in device]
    if part in fitting or len(fitting) == 1:
        return part if part in fitting else fitting[0]
    there = ", ".join(fitting or known) or "no records at all"
    raise click.UsageError(f"--device {part} fits {len(fitting)} devices; there are {there}")


@db.command("import")
@click.argument(
    "sources", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True), metavar="FILE..."
)
@database_option
@json_option
@click.pass_context
def import_(ctx: click.Context, sources: tuple[str, ...], database: str | None, as_json: bool) -> None:
    """Add records from JSON Lines.

    FILE is - for the standard input.  Lines that are no records are refused one by one and the rest is added; exits
    with 1 if any was.

    \b
    Example:
      feinsum db import records.jsonl --database team.sqlite
    """
    import feinsum as fe

    with fe.Database(database) as store:
        _print_reports(ctx, {s: store.import_jsonl(sys.stdin.buffer if s == "-" else s) for s in sources}, as_json)


@db.command("merge")
@click.argument("others", nargs=-1, required=True, metavar="STORE...")
@database_option
@json_option
@click.pass_context
def merge(ctx: click.Context, others: tuple[str, ...], database: str | None, as_json: bool) -> None:
    """Add the records of other stores.

    STORE is a SQLite file, a PostgreSQL URL or a file that ends in .jsonl.  Exits with 1 if a line is no record.

    \b
    Example:
      feinsum db merge laptop.sqlite postgresql://me@host/records
    """
    import feinsum as fe

    with fe.Database(database) as store:
        _print_reports(ctx, {other: store.merge(other) for other in others}, as_json)


def _print_reports(ctx: click.Context, reports: Mapping[str, ImportReport], as_json: bool) -> None:
    """Say what became of the records of each source; a line that was refused is a failure."""
    if as_json:
        print_json(
            {source: {**asdict(r), "refused": [line._asdict() for line in r.refused]} for source, r in reports.items()}
        )
    else:
        for source, report in reports.items():
            say(f"{source}: {report}")
    if any(report.refused for report in reports.values()):
        ctx.exit(1)


@db.command("curate")
@click.argument("folder", type=click.Path(file_okay=False), metavar="FOLDER")
@part_of_id_option
@database_option
def curate(folder: str, part: str | None, database: str | None) -> None:
    """Add the winners of a store to a folder of curated records.

    FOLDER, made if there is none, has a sorted file for each device, for review, and profiles.json with the devices that
    are here.  A package that has such a folder names it as an entry point of the group feinsum.records.

    \b
    Example:
      feinsum db curate my_package/records --database mine.sqlite
    """
    import feinsum as fe
    from feinsum.database import curate as add

    with fe.Database(database, create=False) as store:
        winners = [record for record in store.winners() if (part or "").lower() in record.device]
    for path in add(winners, folder, [device.profile for device in fe.devices() if device.usable]):
        say(path)


@db.command("prove")
@click.argument("source", metavar="SOURCE")
@click.argument("target", type=click.Path(dir_okay=False), metavar="FILE")
@device_option
@click.option("--timeout", type=Seconds(), metavar="SECONDS", help="Stop after so many seconds; another call continues.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Worker processes; one a core, four at most.")
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", help="Seed of inputs and of a length; random unless given."
)
@click.pass_context
def prove(ctx: click.Context, /, source: str, target: str, device: str | None, **options: Any) -> None:
    """Prove recorded kernels again, on this device.

    SOURCE is a SQLite file, a PostgreSQL URL or a file that ends in .jsonl.  What was proved goes to FILE, as JSON Lines:
    records as they were, or wrong.  A second call goes on where the first one, or Ctrl-C, stopped; when all are proved,
    FILE can take the place of SOURCE.  In a database wrong records lose their rank at once.

    Exits with 1 if a record is wrong, could not be proved, or is left.

    \b
    Example:
      feinsum db prove records.jsonl proved.jsonl --timeout 500
    """
    import feinsum as fe
    from feinsum.database import TuningRecord, jsonl
    from feinsum.tune.reproof import Progress, prove_again

    chosen = fe.device(device)
    with contextlib.ExitStack() as stack:
        records: Database | list[TuningRecord]
        if source.endswith(".jsonl"):
            records = [entry for _, entry in jsonl.read_records(source) if isinstance(entry, TuningRecord)]
        else:
            records = stack.enter_context(fe.Database(source, create=False))
        progress = Progress(records, target)
        ours = [record for record in progress.left if record.device == chosen.profile.id]
        click.echo(f"{len(ours)} records of {chosen.profile.id} to prove", err=True)
        told = Counter[str]()
        for number, reproof in enumerate(prove_again(ours, chosen, **options), 1):
            progress.note(reproof)
            told[reproof.outcome.status] += 1
            if reproof.outcome.status != "ok":
                click.echo(f"{number}/{len(ours)} {_reproof_line(reproof)}", err=True)
    left = len(ours) - told["ok"] - told["wrong"]
    finished = progress.finish(chosen.profile.id)
    counts = ", ".join(f"{told[status]} {status}" for status in sorted(told)) or "none"
    end = f"{target} can take the place of {source}" if finished else f"{left} are left for another call"
    click.echo(f"{counts}; {end}")
    if not finished or set(told) - {"ok"}:
        ctx.exit(1)


def _reproof_line(reproof: Reproof) -> str:
    """A record that is not right, in one line."""
    record, outcome = reproof.record, reproof.outcome
    choices = " ".join(f"{name}={value}" for name, value in record.configuration.items())
    message = " ".join(outcome.message.split())
    return (
        f"{outcome.status}, seed {reproof.seed}: {record.einsum_key} at {dict(record.sizes)},"
        f" {record.space}@{record.space_version} {choices}: {message}"
    )


@db.command("stats")
@click.option("--curated", is_flag=True, help="Those that come with feinsum and installed packages, not those of a store.")
@database_option
@json_option
def stats(curated: bool, database: str | None, as_json: bool) -> None:
    """Count records by status, device, age and space.

    Tells, too, whose kernels a newer version of their space would change: `feinsum generate` does not look at them.

    \b
    Example:
      feinsum db stats
    """
    import feinsum as fe
    from feinsum.database import CuratedRecords
    from feinsum.languages.declarative.tuning import SPACE, VERSION
    from feinsum.registry import spaces

    if curated:
        found = CuratedRecords().stats()
    else:
        with fe.Database(database, create=False) as store:
            found = store.stats()
    versions = {SPACE: VERSION} | {space.name: space.version for space in spaces()}
    if as_json:
        print_json(asdict(found) | {"behind": found.verdicts(versions)})
    else:
        say(found.told(versions))
