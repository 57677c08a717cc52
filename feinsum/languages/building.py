"""Building: a function of a program becomes something that is called on arrays; `build` serves all languages."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from feinsum.devices import device as choose_device
from feinsum.errors import ValidationError
from feinsum.languages.program import LANGUAGES, Program, program

if TYPE_CHECKING:
    from feinsum.database import Database
    from feinsum.devices import Device


def build(
    p: Program | str | PathLike[str],
    function: str | None = None,
    device: Device | str | None = None,
    database: Database | str | PathLike[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    tune: str = "never",
    route: str = "auto",
    **options: Any,
) -> Any:
    """Make a function of a program ready to be called on a device.

    :param p: a program, or what :func:`feinsum.program` takes.
    :param function: its name; it can be left out where there is one.
    :param sizes: lengths expected; of the immediate language ``{"E": items}``.  They rank records and limit nothing.
    :param tune: as of :func:`feinsum.generate`, for each einsum that is in it.
    :param route: how, where a language knows several ways; ``"auto"`` is the best of them.
    :param options: what one language alone knows.
    :raises ValidationError: if the language of the program cannot be run, or does not know an option.
    """
    one = p if isinstance(p, Program) else program(p)
    chosen = one.function(function)
    implementation: Any = LANGUAGES[one.language].load()
    if not hasattr(implementation, "build"):
        raise ValidationError(f"programs of the {one.language} language are interpreted and not built yet")
    settings = {"database": database, "sizes": sizes, "tune": tune, "route": route, **options}
    return implementation.build(chosen, one.source, choose_device(device), **settings)
