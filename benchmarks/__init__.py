"""Measurements of feinsum: beside its peers, of what calling it costs, and of where tuning spends its time."""

from __future__ import annotations

import argparse
from pathlib import Path

ROOT = Path(__file__).parents[1]
LANDSCAPES = ROOT / "benchmarks" / "landscapes"
HANDICAPS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Settings for old versions of OpenBLAS, under which one that knows the processor runs at half its speed."""


def parser_of(doc: str | None, device: str | None = None) -> argparse.ArgumentParser:
    """A parser that shows the docstring of a command as it stands.

    :param device: the default of ``--device``, for commands that have this option.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if device is not None:
        parser.add_argument("--device", default=device, help=f"see feinsum.device (default: {device})")
    return parser
