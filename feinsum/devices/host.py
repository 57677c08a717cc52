"""The processor as the operating system describes it, where OpenCL drivers are silent or disagree."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

_FIRST_PROCESSOR_CHARACTERS = 16_384
"""Enough of /proc/cpuinfo for one processor; the file repeats itself for every core."""

MOST_CACHE_OF_A_CORE = 32 << 20
"""Bytes of the last-level cache for each core of the processor that has most of it, an EPYC 9175F with 512 MiB for 16.  A
virtual machine of two cores may be told of the whole cache of a socket, which it has with all others there."""

_WITHOUT = {"corei7": ("avx",), "corei7-avx": ("avx2", "avx512"), "core-avx2": ("avx512",)}
"""Older instruction sets for which Intel's CPU runtime can be made to compile, with prefixes of the processor flags that
they rule out; it knows ``"skx"`` too, the newest of all."""


@dataclass(frozen=True)
class Processor:
    """The first processor in the list of the system.

    :param brand: as the maker prints it; empty if the system does not say.
    :param family, model: numbers of cpuid; None off x86.
    :param last_level_cache_bytes: of one processor; 0 if unknown.
    :param core_cache_bytes: the second level; 0 if unknown.
    :param target: the older instruction set that is compiled for, as the runtime calls it; empty if there is none.
    """

    machine: str
    vendor: str
    brand: str
    family: int | None
    model: int | None
    flags: frozenset[str]
    last_level_cache_bytes: int
    core_cache_bytes: int = 0
    target: str = ""

    def last_level_cache_of(self, cores: int) -> int:
        """Bytes of the last-level cache that so many cores may count on; 0 if unknown.

        On two cores of a Granite Rapids with "480 MiB", arrays of 64 MiB are read at 57 GB/s and those of 128 at 38.
        """
        return min(self.last_level_cache_bytes, cores * MOST_CACHE_OF_A_CORE)

    @property
    def vector_bytes(self) -> int:
        """The width of a vector register; 16 where the system does not say, as every 64-bit processor has that."""
        return 64 if "avx512f" in self.flags else 32 if "avx" in self.flags else 16

    @property
    def vector_registers(self) -> int:
        """How many there are: 32 with AVX-512 and on 64-bit ARM, else 16."""
        return 32 if "avx512f" in self.flags or "asimd" in self.flags else 16

    @property
    def architecture(self) -> str:
        """The family of instruction set and maker, e.g. ``"x86-64-amd-f26-avx512"``."""
        machine = "x86-64" if self.machine in ("x86_64", "AMD64") else self.machine
        if self.family is None:
            return machine.lower()
        maker = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}.get(self.vendor, "other")
        vectors = {64: "avx512", 32: "avx2" if "avx2" in self.flags else "avx", 16: "sse"}[self.vector_bytes]
        return f"{machine}-{maker}-f{self.family}-{vectors}"

    def compiled_for(self, target: str) -> Processor:
        """This processor as a compiler sees it that generates code for `target`, a value of Intel's variable.

        The processor itself if the target removes nothing, being newer than the processor or unknown to the runtime.
        """
        unused = frozenset(flag for flag in self.flags if flag.startswith(_WITHOUT.get(target, ())))
        return replace(self, flags=self.flags - unused, target=target) if unused else self


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
        last_level_cache_bytes=max(_cache_sizes().values(), default=0),
        core_cache_bytes=_cache_sizes().get(2, 0),
    )


def processors_allowed() -> int:
    """Processors that this process may run on, which CPU drivers count as their compute units."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS and Windows do not say which


def _cache_sizes() -> dict[int, int]:
    """The bytes of each level of cache of the first core, instructions apart."""
    sizes: dict[int, int] = {}
    for cache in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind, level, size = ((cache / name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        digits = re.fullmatch(r"(\d+)([KM]?)", size)
        if digits and kind != "Instruction":
            sizes[int(level)] = int(digits[1]) * {"": 1, "K": 1024, "M": 1024**2}[digits[2]]
    return sizes
