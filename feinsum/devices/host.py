"""What the operating system knows of its processor, where OpenCL drivers say nothing or different things."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_FIRST_PROCESSOR_CHARACTERS = 16_384
"""Enough of /proc/cpuinfo for one processor; the file repeats itself for every core."""


@dataclass(frozen=True)
class Processor:
    """The first processor in the list of the system.

    :param brand: as the maker prints it; empty if the system does not say.
    :param family, model: numbers of cpuid; None off x86.
    :param last_level_cache_bytes: of one processor; 0 if unknown.
    """

    machine: str
    vendor: str
    brand: str
    family: int | None
    model: int | None
    flags: frozenset[str]
    last_level_cache_bytes: int

    @property
    def vector_bytes(self) -> int:
        """The width of a vector register; 16 where the system does not say, as every 64-bit processor has that."""
        return 64 if "avx512f" in self.flags else 32 if "avx" in self.flags else 16

    @property
    def architecture(self) -> str:
        """The family of instruction set and maker, e.g. ``"x86-64-amd-f26-avx512"``."""
        machine = "x86-64" if self.machine in ("x86_64", "AMD64") else self.machine
        if self.family is None:
            return machine.lower()
        maker = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}.get(self.vendor, "other")
        vectors = {64: "avx512", 32: "avx2" if "avx2" in self.flags else "avx", 16: "sse"}[self.vector_bytes]
        return f"{machine}-{maker}-f{self.family}-{vectors}"


@lru_cache(maxsize=1)
def processor() -> Processor:
    """The processor of this machine, from ``/proc/cpuinfo`` and ``/sys``."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            text = file.read(_FIRST_PROCESSOR_CHARACTERS)
    except OSError:
        text = ""
    facts: dict[str, str] = dict(re.findall(r"^([\w ]+?)\s*:[ \t]*(.*)$", text.partition("\n\n")[0], re.MULTILINE))

    def number(key: str) -> int | None:
        return int(facts[key]) if facts.get(key, "").isdecimal() else None

    return Processor(
        machine=platform.machine(),
        vendor=facts.get("vendor_id", ""),
        brand=facts.get("model name", ""),
        family=number("cpu family"),
        model=number("model"),
        flags=frozenset(facts.get("flags", facts.get("Features", "")).split()),
        last_level_cache_bytes=_last_level_cache_bytes(),
    )


def processors_allowed() -> int:
    """Processors that this process may run on, which CPU drivers count as their compute units."""
    return len(os.sched_getaffinity(0))


def _last_level_cache_bytes() -> int:
    sizes = [0]
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            digits = re.fullmatch(r"(\d+)([KM]?)", file.read_text().strip())
        except OSError:
            continue
        if digits:
            sizes.append(int(digits[1]) * {"": 1, "K": 1024, "M": 1024**2}[digits[2]])
    return max(sizes)
