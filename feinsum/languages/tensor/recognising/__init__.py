"""Recognising: functions that are einsums, chains of them, or sums of chains, with numbers before and after."""

from __future__ import annotations

from feinsum.languages.tensor.recognising.einsums import Contraction, contractions
from feinsum.languages.tensor.recognising.terms import UnrecognisedError

__all__ = ["Contraction", "UnrecognisedError", "contractions"]
