"""``feinsum tune`` and ``feinsum query``: try configurations, and ask what is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from feinsum.cli.description import Request
from feinsum.cli.options import database_option, device_option, einsum_arguments, json_option
from feinsum.cli.output import PERFORMANCE, performance, print_json, print_table, record_as_json, settings

if TYPE_CHECKING:
    from feinsum.database import TuningRecord
    from feinsum.einsum import BatchedEinsum

_MESSAGE = 160
"""Characters shown of the message of a failure; --json has it all."""


@click.command()
@einsum_arguments
@device_option
@database_option
@click.option("--trials", type=click.IntRange(min=1), metavar="N", help="Configurations to try.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Begin no trial after so long.")
@click.option("--space", metavar="NAME", help="Search this transform space only; see `feinsum spaces`.")
@click.option("--seed", type=int, default=0, metavar="N", help="Of the search and of the inputs; 0 unless given.")
@json_option
@click.pass_context
def tune(
    ctx: click.Context,
    request: Request,
    device: str | None,
    database: str | None,
    trials: int | None,
    timeout: float | None,
    space: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Try configurations and record them.

    Each configuration is proved and timed, and what came of it is recorded.  What the records know already is not
    tried again, so a second call goes on where the first one, or Ctrl-C, stopped.  Without --trials and --timeout it
    takes a minute.  Exits with 1 if no configuration is right.

    \b
    Example:
      feinsum tune "xre,rij,ej->xei" --shape J=3,3,E --shape D=3,20,20 --shape u=E,20 --size E=100000 --timeout 40
    """
    import feinsum as fe

    request.require_sizes()
    report = fe.autotune(request.einsum, device, database, request.sizes, space, trials=trials, timeout=timeout, seed=seed)
    if as_json:
        print_json(report.to_json())
    else:
        click.echo(report.table())
        if report.best is not None and report.best not in report.records:
            click.echo(f"the best known is older: {report.best.space} {settings(report.best.configuration)}")
    if report.interrupted:
        raise KeyboardInterrupt
    if report.best is None:
        ctx.exit(1)


@click.command()
@einsum_arguments
@click.option("--device", metavar="NAME", help="Only records of this device: cpu, gpu or a part of an id.")
@database_option
@click.option("--status", default="ok", metavar="STATUS", help="ok unless given; wrong, timeout, ... or all.")
@click.option("--limit", type=click.IntRange(min=1), default=20, metavar="N", help="Records to print; 20 unless given.")
@json_option
@click.pass_context
def query(
    ctx: click.Context,
    request: Request,
    device: str | None,
    database: str | None,
    status: str,
    limit: int,
    as_json: bool,
) -> None:
    """Print the records of an einsum, best first.

    Records at whatever lengths of its long axes are shown.  Names and order of operands and indices do not matter.
    Exits with 1 if nothing is recorded.

    \b
    Example:
      feinsum query "ij,jk->ik" --size i=1024,j=1024,k=1024 --limit 3
    """
    import feinsum as fe

    e = request.einsum
    found = fe.query(e, device, database, status=None if status == "all" else status)
    if as_json:
        print_json([record_as_json(record) for record in found[:limit]])
    elif found:
        _print_records(e, found[:limit])
        if len(found) > limit:
            click.echo(f"{len(found) - limit} more; see --limit", err=True)
    if not found:
        click.echo(f"no record of '{e.subscripts}'; `feinsum tune` makes some", err=True)
        ctx.exit(1)


def _print_records(e: BatchedEinsum, records: Sequence[TuningRecord]) -> None:
    """A table of records of `e`, in the letters of `e`; where something went wrong, what is its last column."""
    from feinsum.canonicalization import canonicalize_einsum

    given = canonicalize_einsum(e).renaming.inverse
    rows = []
    for r in records:
        cells = ["-"] * 4 if r.median_s is None else performance(r.median_s, r.spread_s or 0.0, r.flops, r.bytes)
        kernel = f"{r.space}@{r.space_version}: {settings(r.configuration)}"
        message = " ".join(r.message.split())
        shown = message if len(message) <= _MESSAGE else message[:_MESSAGE] + "..."
        rows.append([r.status, *cells, settings(given.lengths(r.sizes)), r.device, kernel, shown])
    texts = ["status", "lengths", "device", "kernel", "message"]
    headings = ["status", *PERFORMANCE, *texts[1:]]
    if not any(row[-1] for row in rows):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    print_table(headings, rows, left=texts)
