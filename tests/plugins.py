"""Packages with transform spaces, as pip would install them: a module, and metadata that names its entry point."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from feinsum import registry
from feinsum.database.curated import contributed_folders


@contextmanager
def installing(directory: Path, *found: Path) -> Iterator[pytest.MonkeyPatch]:
    """A directory in which packages are found, by this process and its workers; what is imported from it goes at the end.

    :param found: other directories that workers look into.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(directory)
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (directory, *found))))
        registry.spaces.cache_clear()
        contributed_folders.cache_clear()
        yield patch
    registry.spaces.cache_clear()
    contributed_folders.cache_clear()
    for name in [path.stem for path in directory.glob("*.py")]:
        sys.modules.pop(name, None)


def install(
    directory: Path, name: str, source: str, entry_point: str | None = None, group: str = registry.ENTRY_POINT_GROUP
) -> None:
    """Write the module `name` to a directory, which has to be on ``sys.path`` or ``PYTHONPATH``.

    :param entry_point: what the entry point refers to; by default the module.
    """
    (directory / f"{name}.py").write_text(source)
    metadata = directory / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {entry_point or name}\n")
