"""Completion of the values of options in a shell: ``feinsum tune ... --space <TAB>``.

click completes commands and options by itself.  Names are looked up when the shell asks, so that help stays light.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def complete_one_of(names: Callable[[], Iterable[str]]) -> Complete:
    """Offer the names that begin with the typed text; none if the names cannot be found."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        try:
            return [name for name in names() if name.startswith(incomplete)]
        except Exception:  # a shell that completes has nowhere to show an error
            return []

    return complete


def complete_devices() -> Iterable[str]:
    """Words for devices; ids are not among them, as finding devices may take seconds."""
    return ("cpu", "gpu")


def samplers() -> Iterable[str]:
    from feinsum.search import SAMPLERS

    return SAMPLERS


def complete_spaces() -> Iterable[str]:
    from feinsum.registry import spaces as registered

    return [space.name for space in registered()]


def statuses() -> Iterable[str]:
    from feinsum.database.record import STATUSES

    return STATUSES
