"""The disk cache: kernels and answers of the ladder, so that the second process needs neither loopy nor a compiler.

An entry is a file: a hash of the rest, a line of JSON, machine code.  It is written whole or not at all, so many processes
may share a cache; a damaged entry counts as missing.  Reading an entry executes nothing; a driver gets only machine code
that the same driver made and this user stored.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from feinsum.devices.json_store import cache_directory
from feinsum.space.attempts import SUFFIX

logger = logging.getLogger(__name__)

VARIABLE = "FEINSUM_CACHE_BYTES"
"""The environment variable that bounds the cache, in bytes; 0 turns it off."""
DEFAULT_BYTES = 256 << 20
_ABANDONED_S = 3600.0
"""Age from which a file that was never finished is taken to be left over by a process that died."""


@dataclass(frozen=True)
class CacheEntry:
    """The entry of a key: plain data, and machine code."""

    data: Mapping[str, Any]
    binary: bytes


class DiskCache:
    """Entries in a directory, those least recently used removed where there are too many; safe between processes.

    :param limit_bytes: the bound; 0 for a cache that stores nothing.
    """

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes

    def get(self, key: str) -> CacheEntry | None:
        """The entry of a key, or None if there is none or it is damaged."""
        path = self.directory / key
        try:
            content = path.read_bytes() if self.limit_bytes else b""
        except OSError:
            return None
        entry = decode(content)
        if entry is None:
            if content:
                logger.info("ignoring the damaged entry %s", path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # it was used, so others are removed before it
        return entry

    def put(self, key: str, data: Mapping[str, Any], binary: bytes = b"") -> None:
        """Store an entry; a full or read-only disk is only logged."""
        content = encode(data, binary)
        if len(content) > self.limit_bytes:
            return
        temporary = None
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("wb", dir=self.directory, suffix=".tmp", delete=False) as file:
                temporary = file.name
                file.write(content)
            os.replace(temporary, self.directory / key)
            self._trim()
        except OSError as error:
            logger.info("%s is not remembered: %s", key, error)
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)

    def _trim(self) -> None:
        """Remove the least recently used entries until a tenth of the cache is free, if it is too large."""
        found = []
        now = time.time()
        with os.scandir(self.directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # another process removed it
                    status = entry.stat()
                    if entry.name.endswith(SUFFIX):  # small, and tells of a process that died
                        continue
                    if not entry.name.endswith(".tmp"):
                        found.append((status.st_mtime_ns, status.st_size, entry.path))
                    elif now - status.st_mtime > _ABANDONED_S:
                        os.unlink(entry.path)
        total = sum(size for _, size, _ in found)
        if total <= self.limit_bytes:
            return
        for _, size, path in sorted(found):
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size
            if total <= self.limit_bytes * 9 // 10:
                return


def kernel_cache() -> DiskCache:
    """The cache in the user's cache directory, bounded by ``FEINSUM_CACHE_BYTES`` or 256 MiB."""
    return DiskCache(_directory(os.environ.get("XDG_CACHE_HOME")), _cache_limit(os.environ.get(VARIABLE)))


@lru_cache(maxsize=8)
def _directory(_home: str | None) -> Path:
    return cache_directory() / "kernels"


@lru_cache(maxsize=8)
def _cache_limit(text: str | None) -> int:
    if not text:
        return DEFAULT_BYTES
    if text.strip().isdecimal():
        return int(text)
    logger.warning("%s=%r is not a number of bytes; using the default, %d", VARIABLE, text, DEFAULT_BYTES)
    return DEFAULT_BYTES


def make_key(kind: str, parts: Mapping[str, Any]) -> str:
    """The name of a file, from everything in `parts`."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return f"{kind}-{blake2b(text.encode(), digest_size=16).hexdigest()}"


def encode(data: Mapping[str, Any], binary: bytes) -> bytes:
    """The bytes of an entry: the hash of what follows, a line of JSON, machine code."""
    content = json.dumps(data).encode() + b"\n" + binary
    return blake2b(content, digest_size=16).hexdigest().encode() + b"\n" + content


def decode(content: bytes) -> CacheEntry | None:
    """The entry that :func:`encode` made bytes of; None for anything else."""
    digest, _, rest = content.partition(b"\n")
    if blake2b(rest, digest_size=16).hexdigest().encode() != digest:
        return None
    text, _, binary = rest.partition(b"\n")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return CacheEntry(data, binary) if isinstance(data, dict) else None
