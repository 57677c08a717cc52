"""Arguments of a function of a program, as far as all languages with named parameters agree about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from feinsum.errors import ValidationError


def check_names(function: str, parameters: Sequence[str], arguments: Iterable[str]) -> None:
    """Check that there is an argument for each parameter, and no other.

    :raises ValidationError: naming the first that is missing, or that is no parameter.
    """
    known = ", ".join(f"%{name}" for name in parameters) or "none"
    given = list(arguments)
    for name in parameters:
        if name not in given:
            raise ValidationError(f"@{function} needs an argument for %{name}; its parameters are {known}")
    for name in given:
        if name not in parameters:
            raise ValidationError(f"@{function} has no parameter %{name}; its parameters are {known}")
