"""The origin of a kernel: a configuration of a space, its rung of the ladder, and the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from feinsum.candidates.composed import StepOrigin
from feinsum.candidates.records import KINDS
from feinsum.database import TuningRecord
from feinsum.errors import FeinsumError, ValidationError

RUNGS = (*KINDS, "steps", "cost model", "default", "generic")


@dataclass(frozen=True)
class Origin:
    """A configuration, and why it was taken; plain data, so that no space need be loaded.

    :ivar rung: one of :data:`RUNGS`.
    :ivar space: the name of the space.
    :ivar record: the evidence; None from the cost model on.
    :ivar expected_s: the time expected at the lengths asked for, in seconds; None if nothing is.
    :ivar steps: of a chain: where the kernel of each step comes from.
    :ivar selection: the spaces of the candidates that were timed against each other, with the seconds of each, the fastest
        first; empty without a selection.
    :ivar doubt: why a record may not be the quickest, this one or one that was passed over; empty if none is doubted.
    """

    rung: str
    space: str
    version: int
    configuration: Mapping[str, Any]
    record: TuningRecord | None = None
    expected_s: float | None = None
    steps: tuple[StepOrigin, ...] = ()
    selection: tuple[tuple[str, float], ...] = ()
    doubt: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data for :func:`json.dumps`."""
        data = {name: value for name, value in vars(self).items() if name != "selection"}
        return {
            **data,
            "configuration": dict(self.configuration),
            "record": self.record and self.record.to_dict(),
            "steps": [step.to_json() for step in self.steps],
            "heat": self.selection,  # the name of the field in what earlier releases stored
        }

    @staticmethod
    def from_json(data: Any) -> Origin:
        """The origin that :meth:`to_json` wrote.

        :raises ValidationError: if `data` is not of that form.
        """
        try:
            record = None if data["record"] is None else TuningRecord.from_dict(data["record"])
            rung, space, version = data["rung"], str(data["space"]), int(data["version"])
            if rung not in RUNGS:
                raise ValueError(f"{rung!r} is no rung")
            expected_s = None if data.get("expected_s") is None else float(data["expected_s"])
            steps = tuple(map(StepOrigin.from_json, data.get("steps", ())))
            selection = tuple((str(name), float(seconds)) for name, seconds in data.get("heat", ()))
            doubt = str(data.get("doubt", ""))
            return Origin(rung, space, version, dict(data["configuration"]), record, expected_s, steps, selection, doubt)
        except (KeyError, TypeError, ValueError, FeinsumError) as error:
            raise ValidationError(f"not the stored origin of a kernel: {error}") from None
