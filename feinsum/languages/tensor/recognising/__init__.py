"""Recognising: functions that are einsums, chains of them, or sums of chains, with numbers before and after."""

from __future__ import annotations

from feinsum.languages.tensor.recognising.combinations import Combination
from feinsum.languages.tensor.recognising.einsums import EinsumUpdate, Step, function_steps
from feinsum.languages.tensor.recognising.terms import UnrecognisedError

__all__ = ["Combination", "EinsumUpdate", "Step", "UnrecognisedError", "function_steps"]
