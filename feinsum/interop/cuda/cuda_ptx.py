"""PTX of an OpenCL program as CUDA takes it.

Three things are NVIDIA's OpenCL's own (PTX ISA 9.0, and seen in what driver 580 writes):

- ``%envreg0`` to ``2`` hold how many work-groups came before this launch.  CUDA sets none; they become parameters, so that
  more groups than a grid of CUDA holds (65535 along its later axes) are launched in parts.
- ``.entry`` lacks ``.visible``, and so cannot be found by its name.
- Arrays in shared memory may have more than 48 KiB in all.  For CUDA they become parts of one array whose size is said at
  launch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from feinsum.errors import TransformError

STATIC_BYTES = 48 << 10
"""The shared memory that a kernel of CUDA may declare itself."""
_ENTRY = re.compile(r"(?:\.visible\s+)?\.entry\s+(?P<name>\w+)\s*\((?P<parameters>[^)]*)\)(?P<body>.*?^\})", re.S | re.M)
_SHARED = re.compile(r"^\s*\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\]\s*;[^\n]*\n", re.M)
_BEFORE = re.compile(r"mov\.[bu]32\s+(%\w+),\s*%envreg(\d+)\s*;")
_POOL = "feinsum_shared"


@dataclass(frozen=True)
class PtxEntry:
    """A kernel in PTX for CUDA.

    :ivar parameters: how many there are, without the three at the end: work-groups before this launch, along each axis.
    :ivar shared_bytes: shared memory to ask for at launch; 0 where the kernel declares its own.
    """

    name: str
    parameters: int
    shared_bytes: int


def for_cuda(text: str) -> tuple[str, Mapping[str, PtxEntry]]:
    """PTX that CUDA's driver loads, and its kernels by name.

    :param text: a program as NVIDIA's OpenCL driver keeps it.
    :raises TransformError: if it has what we know no counterpart of.
    """
    text = text.rstrip("\0")
    if ".entry" not in text or ".version" not in text:
        raise TransformError("the driver keeps the program in another form than PTX, so CUDA cannot load it")
    entries: dict[str, PtxEntry] = {}

    def edit(match: re.Match[str]) -> str:
        edited, entry = _edited(match)
        entries[entry.name] = entry
        return edited

    edited = _ENTRY.sub(edit, text)
    if len(entries) != text.count(".entry"):
        raise TransformError("a kernel in the program's PTX is written in a way that we do not know")
    left = re.search(r"%envreg\d+", edited)
    if left:
        raise TransformError(f"the program's PTX reads {left[0]}, which CUDA does not set")
    if any(entry.shared_bytes for entry in entries.values()):
        head, target, rest = edited.partition(".address_size 64\n")
        edited = f"{head}{target}\n.extern .shared .align 16 .b8 {_POOL}[];\n{rest}"
    return edited, entries


def _edited(match: re.Match[str]) -> tuple[str, PtxEntry]:
    name, parameters, body = match["name"], match["parameters"], match["body"]
    before = [f"{name}_before_{axis}" for axis in range(3)]
    body = _BEFORE.sub(lambda m: f"ld.param.u32 {m[1]}, [{before[int(m[2])]}];" if int(m[2]) < 3 else m[0], body)
    count = len([one for one in parameters.split(",") if one.strip()])
    more = ",\n".join(f"\t.param .u32 {one}" for one in before)
    separator = ",\n" if count else ""
    body, shared = _pooled(body)
    edited = f".visible .entry {name}({parameters.rstrip()}{separator}{more}\n){body}"
    return edited, PtxEntry(name, count, shared)


def _pooled(body: str) -> tuple[str, int]:
    """The body of a kernel with all its shared arrays in one, and the bytes of that; as it is where they are small."""
    arrays = [(name, int(align), int(size)) for align, name, size in _SHARED.findall(body)]
    starts, end = {}, 0
    for name, align, size in sorted(arrays, key=lambda one: -one[1]):
        end = -(-end // align) * align
        starts[name] = end
        end += size
    if end <= STATIC_BYTES:
        return body, 0
    body = _SHARED.sub("", body)
    for name, start in starts.items():
        place = re.compile(rf"(?<![\w$]){re.escape(name)}(?![\w$])(?:\+(\d+))?")
        body = place.sub(partial(_shared_place, start), body)
    return body, end


def _shared_place(start: int, match: re.Match[str]) -> str:
    """A place in a shared array, in the one that all are part of."""
    return f"{_POOL}+{start + int(match[1] or 0)}"
