"""Options that several commands share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import click

from feinsum.cli import completion
from feinsum.cli.completion import complete_one_of
from feinsum.cli.description import describe_arguments
from feinsum.cli.output import say

Command = Callable[..., Any]


def einsum_arguments(command: Command) -> Command:
    """Give a command the notation of :mod:`feinsum.cli.description`, and the :class:`Request` it reads as
    `request`."""

    @click.argument("subscripts", metavar="SUBSCRIPTS")
    @click.option("--shape", "shapes", multiple=True, metavar="NAME=AXES", help="An operand: J=3,3,E; once for each.")
    @click.option(
        "--size", "sizes", multiple=True, metavar="NAME=LENGTH", help="Lengths of indices or long axes: i=20,E=1000."
    )
    @click.option("--long", multiple=True, metavar="INDEX", help="Indices whose length varies from call to call: e,f.")
    @click.option("--row", "rows", multiple=True, metavar="NAMES", help="Operands of one output: R,J,v0; once for each.")
    @click.option(
        "--dtype", "dtypes", multiple=True, metavar="[NAME=]TYPE", help="float64 unless given; of one operand: J=float32."
    )
    @click.option(
        "--then",
        multiple=True,
        metavar="TEXT",
        help="Epilogue of the sums: 'gelu(v + b[j])'; once, or for each output.",
    )
    @functools.wraps(command)
    def described(
        *,
        subscripts: str,
        shapes: tuple[str, ...],
        sizes: tuple[str, ...],
        long: tuple[str, ...],
        rows: tuple[str, ...],
        dtypes: tuple[str, ...],
        then: tuple[str, ...],
        **others: Any,
    ) -> Any:
        request = describe_arguments(subscripts, shapes=shapes, sizes=sizes, long=long, rows=rows, dtypes=dtypes, then=then)
        return command(request=request, **others)

    return described


as_log_option = click.option(
    "--as",
    "form",
    type=click.Choice(["log"]),
    help="log: as programs of the immediate language, loops over matrix products with the kernel of each step.",
)
"""``--as log``, for commands that know schedules."""


def _known_status(ctx: click.Context, parameter: click.Parameter, status: str) -> str | None:
    """A status of records; None for ``all``."""
    from feinsum.database.record import STATUSES

    if status != "all" and status not in STATUSES:
        raise click.BadParameter(f"'{status}' is no status; give one of {', '.join(STATUSES)}, or all")
    return None if status == "all" else status


def _note_absence(ctx: click.Context, parameter: click.Parameter, database: str | None) -> str | None:
    """Say that a store is not there, for its name may be mistyped."""
    if database is not None:
        from feinsum.database.location import locate

        path = locate(database).path
        if path is not None and not path.exists():
            say(f"there is no store at {path} yet; only the records that come with feinsum are known", err=True)
    return database


class Seconds(click.FloatRange):
    """A number of seconds, from 0 on."""

    name = "number of seconds"

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a message that says which one is meant by a time with a unit."""
        found = re.fullmatch(r"([0-9.]+)\s*(s|sec|m|min|h)", value) if isinstance(value, str) else None
        if found:
            meant = float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2][0]]
            self.fail(f"{value!r} has a unit; give the number of seconds alone, {meant:g}", param, ctx)
        return float(super().convert(value, param, ctx))


_STORE: dict[str, Any] = {
    "metavar": "STORE",
    "type": click.Path(),  # so that shells complete names of files
    "help": "A SQLite file or a PostgreSQL URL; your own store, or $FEINSUM_DATABASE, unless given.",
}

device_option = click.option(
    "--device",
    metavar="NAME",
    shell_complete=complete_one_of(completion.complete_devices),
    help="cpu, gpu, gpu:1 or a part of an id; the best one, or $FEINSUM_DEVICE, unless given.",
)
part_of_id_option = click.option(
    "--device",
    "part",
    metavar="TEXT",
    shell_complete=complete_one_of(completion.complete_devices),
    help="Only records of devices with this in their id: cpu, h200.",
)
database_option = click.option("--database", **_STORE)
known_database_option = click.option("--database", callback=_note_absence, **_STORE)
"""For commands that read a store."""


def status_option(default: str, text: str) -> Callable[[Command], Command]:
    """Only records of one status; the command gets None for all of them."""
    return click.option(
        "--status",
        default=default,
        metavar="STATUS",
        callback=_known_status,
        shell_complete=complete_one_of(lambda: [*completion.statuses(), "all"]),
        help=text,
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
