"""Plans of steps: the contractions one after the other, their parts, and the requests of every step to its own plan.

Each step is a launch.  The plan of its kernel is made when its einsum is known, and says what registers it takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from feinsum.contraction import ContractionSchedule
from feinsum.errors import TransformError
from feinsum.parameters import described
from feinsum.space import Configuration, Problem

from .step_schedules import schedule_of_steps

OWN = 0
"""A value that is the best guess for each step."""
_WHOLE = "none"


@dataclass(frozen=True)
class SplitSums:
    """Sums that are computed in parts, and their results summed: ``"c 1 d 64"`` or ``"none"``.

    :ivar parts: summed index -> the length of its parts.
    """

    parts: Mapping[str, int]

    def __post_init__(self) -> None:
        for x, length in self.parts.items():
            if len(x) != 1 or length < 1:
                raise TransformError(
                    f"index '{x}' in parts of {length}; an index has one letter, and a part one term at least"
                )

    @classmethod
    def parse(cls, text: str) -> SplitSums:
        """The parts that :attr:`text` wrote.

        >>> SplitSums.parse("f 5 g 2").parts
        {'f': 5, 'g': 2}

        :raises TransformError: if `text` is something else.
        """
        return _parsed_steps(text)

    @property
    def text(self) -> str:
        """The parts in the notation of configurations: index and length alternately."""
        return " ".join(f"{x} {length}" for x, length in self.parts.items()) or _WHOLE


@lru_cache(maxsize=256)
def _parsed_steps(text: str) -> SplitSums:
    """Asked for with every configuration."""
    words = [] if text == _WHOLE else text.split()
    lengths = words[1::2]
    if (text != _WHOLE and not words) or len(words) % 2 or not all(map(str.isdecimal, lengths)):
        raise TransformError(f"{text!r} names no parts of sums; they are written like 'c 1 d 64', or '{_WHOLE}'")
    split = SplitSums(dict(zip(words[::2], map(int, lengths), strict=True)))
    if len(split.parts) < len(lengths):
        raise TransformError(f"{text!r} names the parts of an index twice")
    return split


@dataclass(frozen=True)
class StepTile:
    """The register tile that every step asks for, see :class:`feinsum.skeletons.vector_panels.RegisterTile`."""

    vectors: int = described(
        "Vectors of a long row that every step sums at once, if it can; 0: the best guess of each step.",
        word="register tile",
        parameter="vectors",
        default=OWN,
    )
    together: int = described(
        "How many of its long index every step computes at once, if it can; 0: the best guess of each step.",
        word="register tile",
        parameter="together",
        default=OWN,
    )

    def __post_init__(self) -> None:
        if min(self.vectors, self.together) < 0:
            raise TransformError(f"a tile of {self.vectors} vectors and {self.together} rows is less than nothing")


@dataclass(frozen=True)
class ContractionSteps:
    """The plan of contractions one after the other, each a launch."""

    order: ContractionSchedule = described(
        """What is contracted one after the other, before sums are split: the pairs with the fewest operations, partial
        results with their axes as suits who reads them.  With `turn` the last product is written as its operands lie in
        memory, and a launch more copies it to where it belongs.""",
        word="contraction order",
        parameter="turn",
    )
    split: SplitSums = described(
        """The summed indices that are computed in parts, with the length of a part: "c 1 d 64".  A launch more adds the
        parts, which make work for several cores, or let panels fit into a cache; "none": no sum is divided.""",
        word="split-k",
        parameter="split",
    )
    register_tile: StepTile = described("What every step asks of its register tile.", word="register tile")
    accumulators: int = described(
        "The most vectors that every step sums at once, if it can; 0: the best guess of each step.",
        word="accumulators",
        parameter="accumulators",
        default=OWN,
    )

    def __post_init__(self) -> None:
        if len(self.order.steps) == 1 and not self.split.parts:
            raise TransformError("there is one step")
        if self.accumulators < 0:
            raise TransformError(f"{self.accumulators} accumulators are less than none")

    @property
    def wanted(self) -> Configuration:
        """The parameters of vector panels that steps are asked for, and their values."""
        return {**vars(self.register_tile), "accumulators": self.accumulators}


@dataclass(frozen=True)
class ComplexSteps:
    """The plan of contractions of complex numbers one after the other, each a launch for pairs of reals."""

    order: ContractionSchedule = described(
        """What is contracted one after the other, before sums are split: the pairs with the fewest operations, partial
        results with their axes as suits who reads them.""",
        word="contraction order",
    )
    split: SplitSums = described(
        """The summed indices that are computed in parts, with the length of a part: "c 1 d 64".  A launch more adds the
        parts, which make work for several cores, or let matrices fit into a cache; "none": no sum is divided.""",
        word="split-k",
        parameter="split",
    )
    register_tile: StepTile = described("What every step asks of its register tile.", word="register tile")
    width: int = described("The complex numbers of a vector that launches copy at once.", word="vector width", default=1)

    @property
    def wanted(self) -> Configuration:
        """The parameters of vector panels that steps are asked for, and their values."""
        return dict(vars(self.register_tile))


def steps_plan(p: Problem, c: Configuration) -> ContractionSteps:
    """The plan of a configuration of :mod:`feinsum.transforms.steps.contractions`.

    :raises TransformError: if there is none, with the reason.
    """
    if not p.device.simd_bytes:
        raise TransformError("the device has no vector registers")
    tile = StepTile(c["vectors"], c["together"])
    order = schedule_of_steps(p, turn=c["turn"])
    return ContractionSteps(order, SplitSums.parse(c["split"]), tile, c["accumulators"])


def complex_plan(p: Problem, c: Configuration) -> ComplexSteps:
    """The plan of a configuration of :mod:`feinsum.transforms.steps.complex_contractions`.

    :raises TransformError: if there is none, with the reason.
    """
    if not p.device.simd_bytes:
        raise TransformError("the device has no vector registers")
    tile = StepTile(c["vectors"], c["together"])
    return ComplexSteps(schedule_of_steps(p), SplitSums.parse(c["split"]), tile, p.lanes)
