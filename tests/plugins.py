"""Packages with transform spaces, as pip would install them: a module, and metadata that names its entry point."""

from __future__ import annotations

from pathlib import Path


def install(directory: Path, name: str, source: str, entry_point: str | None = None) -> None:
    """Write the module `name` to a directory, which has to be on ``sys.path`` or ``PYTHONPATH``.

    :param entry_point: what the entry point refers to; by default the module.
    """
    (directory / f"{name}.py").write_text(source)
    metadata = directory / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[feinsum.transforms]\n{name} = {entry_point or name}\n")
