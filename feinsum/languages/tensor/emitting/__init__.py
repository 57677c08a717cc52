"""Emission: lowered functions as OpenCL C, statement by statement; blocks are cgen's."""

from __future__ import annotations

from feinsum.languages.tensor.emitting.kernel_text import Emitted, Slot, emit

__all__ = ["Emitted", "Slot", "emit"]
