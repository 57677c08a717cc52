"""``feinsum db``: move records between stores, and count them."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from feinsum.cli.options import database_option, json_option
from feinsum.cli.output import print_json


@click.group()
def db() -> None:
    """Move and count records.

    \b
    Example:
      feinsum db export records.jsonl
    """


@db.command("export")
@click.argument("target", type=click.Path(dir_okay=False, allow_dash=True), default="-", metavar="[FILE]")
@click.option("--device", metavar="ID", help="Only records of the device with this id.")
@click.option("--status", metavar="STATUS", help="Only records of this status.")
@database_option
def export(target: str, device: str | None, status: str | None, database: str | None) -> None:
    """Write records as JSON Lines.

    They are sorted, and go to a file or the standard output.

    \b
    Example:
      feinsum db export records.jsonl --status ok
    """
    import feinsum as fe

    with fe.Database(database, create=False) as store:
        if target == "-":
            store.export_jsonl(sys.stdout, device=device, status=status)
        else:
            number = store.export_jsonl(target, device=device, status=status)
            click.echo(f"{number} records written to {target}", err=True)


@db.command("import")
@click.argument(
    "sources", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True), metavar="FILE..."
)
@database_option
@click.pass_context
def import_(ctx: click.Context, sources: tuple[str, ...], database: str | None) -> None:
    """Add records from JSON Lines.

    FILE is - for the standard input.  Lines that are no records are refused one by one and the rest is added; exits
    with 1 if any was.

    \b
    Example:
      feinsum db import records.jsonl --database team.sqlite
    """
    import feinsum as fe

    refused = False
    with fe.Database(database) as store:
        for source in sources:
            report = store.import_jsonl(sys.stdin.buffer if source == "-" else source)
            click.echo(f"{source}: {report}")
            refused = refused or bool(report.refused)
    if refused:
        ctx.exit(1)


@db.command("merge")
@click.argument("others", nargs=-1, required=True, metavar="STORE...")
@database_option
@click.pass_context
def merge(ctx: click.Context, others: tuple[str, ...], database: str | None) -> None:
    """Add the records of other stores.

    STORE is a SQLite file, a PostgreSQL URL or a file that ends in .jsonl.  Exits with 1 if a line is no record.

    \b
    Example:
      feinsum db merge laptop.sqlite postgresql://me@host/records
    """
    import feinsum as fe

    refused = False
    with fe.Database(database) as store:
        for other in others:
            report = store.merge(other)
            click.echo(f"{other}: {report}")
            refused = refused or bool(report.refused)
    if refused:
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
        click.echo(found)
