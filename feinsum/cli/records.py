"""``feinsum db``: move records between stores, and count them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from feinsum.cli.options import database_option, json_option, part_of_id_option, status_option
from feinsum.cli.output import print_json, say

if TYPE_CHECKING:
    from feinsum.database.jsonl import ImportReport


@click.group()
def db() -> None:
    """Move and count records.

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
        _tell(ctx, {s: store.import_jsonl(sys.stdin.buffer if s == "-" else s) for s in sources}, as_json)


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
        _tell(ctx, {other: store.merge(other) for other in others}, as_json)


def _tell(ctx: click.Context, reports: Mapping[str, ImportReport], as_json: bool) -> None:
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


@db.command("stats")
@database_option
@json_option
def stats(database: str | None, as_json: bool) -> None:
    """Count records by status, device and space.

    \b
    Example:
      feinsum db stats
    """
    import feinsum as fe

    with fe.Database(database, create=False) as store:
        found = store.stats()
    if as_json:
        print_json(asdict(found))
    else:
        say(found)
