"""Figures as people read them: three digits and a unit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from feinsum.errors import TransformError
from feinsum.space.chain import STEPS, Link, read_chain

_INDEX = re.compile(r"([A-Za-z])((?: \d+)*)")


def duration(seconds: float) -> str:
    """
    >>> duration(1.2e-5), duration(0.00345), duration(12)
    ('12 µs', '3.45 ms', '12 s')
    """
    for unit, scale in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * scale:
            return f"{figure(seconds / scale)} {unit}"
    return f"{figure(seconds)} s"


def rate(flops_per_s: float) -> str:
    """
    >>> rate(1.234e11), rate(6.64e13)
    ('123 GFLOP/s', '66.4 TFLOP/s')
    """
    return f"{figure(flops_per_s / 1e12)} TFLOP/s" if flops_per_s >= 1e13 else f"{figure(flops_per_s / 1e9)} GFLOP/s"


def bandwidth(bytes_per_s: float) -> str:
    """
    >>> bandwidth(4.29e12), bandwidth(5.2e10)
    ('4,290 GB/s', '52 GB/s')
    """
    return f"{figure(bytes_per_s / 1e9)} GB/s"


def shown_bytes(nbytes: int) -> str:
    """
    >>> shown_bytes(64), shown_bytes(256 << 10), shown_bytes(16 << 30)
    ('64 B', '256 KiB', '16 GiB')
    """
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= scale:
            return f"{figure(nbytes / scale)} {unit}"
    return f"{nbytes} B"


def shown_count(number: int) -> str:
    """
    >>> shown_count(27600000)
    '27,600,000'
    """
    return f"{number:,}"


def listed(values: Mapping[str, Any]) -> str:
    """
    >>> listed({"elements": 16, "unroll": False})
    'elements=16 unroll=False'
    """
    return " ".join(f"{name}={value}" for name, value in values.items())


def settings(configuration: Mapping[str, Any], letters: Mapping[str, str]) -> str:
    """A configuration as :func:`listed` has it, with the indices that are values in it named by `letters`.

    An index is a letter of the canonical einsum, alone or with figures after it; no other value of any space reads so.

    Of a chain, the steps: the operands of each, the indices of its result, and the configuration that makes its kernel, in
    the letters in which its space knows the einsum of the step.

    >>> settings({"lane": "b", "split": "c 4", "rows": "apart"}, {"a": "e", "b": "i", "c": "j"})
    'lane=i split=j 4 rows=apart'
    """
    try:
        steps = [_step_text(link, letters) for link in read_chain(configuration[STEPS])]
    except (KeyError, TransformError):
        return listed(renamed_configuration(configuration, letters))
    return f"{STEPS}={', then '.join(steps)}"


def _step_text(link: Link, letters: Mapping[str, str]) -> str:
    """
    >>> _step_text(Link((0, 2), "ab", "generic", 1, {"items": 64, "lane": "a"}), {"a": "i", "b": "j"})
    '0+2 to ij by generic (items=64 lane=a)'
    """
    operands, output = "+".join(map(str, link.operands)), "".join(letters.get(x, x) for x in link.output)
    return f"{operands} to {output or 'a number'} by {link.space} ({listed(link.configuration)})"


def renamed_configuration(configuration: Mapping[str, Any], letters: Mapping[str, str]) -> dict[str, Any]:
    """The renamed configuration as a mapping."""

    def named(value: Any) -> Any:
        found = _INDEX.fullmatch(value) if isinstance(value, str) else None
        return letters.get(found[1], found[1]) + found[2] if found else value

    return {name: named(value) for name, value in configuration.items()}


def number(count: int, noun: str) -> str:
    """
    >>> number(1, "configuration"), number(2, "configuration")
    ('1 configuration', '2 configurations')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def figure(value: float) -> str:
    """Three significant digits, and no exponent where a person would not write one.

    >>> figure(0.0123), figure(1.2345), figure(98765.4)
    ('0.0123', '1.23', '98,765')
    """
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"
