"""Kernels that loop over an index: they take one value of it at a time, and may divide other indices.

A program that wants an index outside of the matrix product (``[k]`` of the immediate language) gets the best such kernel
that is known, unless it is expected to be much slower: the mark is a wish, and never changes the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from feinsum.candidates.ladder import ConfigurationChoice
from feinsum.candidates.predicted import expected_s, top_predictions
from feinsum.registry import matching_spaces
from feinsum.space import Configuration, Instance, Missed, TransformSpace

if TYPE_CHECKING:
    from feinsum.build.kernel_builder import KernelJob
    from feinsum.candidates.origin import Origin

TOLERATED = 2.0
"""The most times that a kernel may be slower than the best because it loops over wanted indices."""
_LAUNCH_S = 10e-6
"""The least seconds of a call; the factor applies to no shorter time."""
_LOOKED_AT = 200
"""The configurations, in all spaces, that the cost model is asked about."""
_SECONDS = 1.0
_TRIED = 500
"""The configurations of a space that are looked through if the search found none that loops."""


def divided_indices(here: Instance, space: TransformSpace, configuration: Configuration) -> Mapping[str, str] | None:
    """The indices of an einsum of which a kernel takes several values at a time, and how; None if that is not known."""
    with Missed(space):
        roles = space.roles(here.einsum)
        own = space.divided(here.problem(space), configuration)
        if roles is not None and own is not None:
            return {roles.indices[x]: how for x, how in own.items() if x in roles.indices}
    return None


def loops_over(here: Instance, choice: ConfigurationChoice, letters: str) -> bool:
    """Whether a choice is known to loop over all of some indices."""
    found = divided_indices(here, choice.space, choice.configuration)
    return found is not None and not set(letters) & found.keys()


def looping(here: Instance, letters: str, known: Iterable[ConfigurationChoice]) -> Iterator[ConfigurationChoice]:
    """The choices that loop over some indices, those of the ladder first, unless they are expected to cost too much."""
    most: float | None = None
    for choice in (*known, *searched(here, letters, matching_spaces(here.einsum))):
        if most is None:
            most = TOLERATED * max(_loop_seconds(here, choice), _LAUNCH_S)
        if loops_over(here, choice, letters) and _loop_seconds(here, choice) <= most:
            yield choice


def searched(here: Instance, letters: str, spaces: Sequence[TransformSpace]) -> Iterator[ConfigurationChoice]:
    """Suitable predictions of the cost model, best first, and then the first suitable configuration of each space."""
    for f in top_predictions(here, spaces, looked_at=_LOOKED_AT, seconds=_SECONDS, share=float("inf")):
        yield ConfigurationChoice("cost model", f.space, f.configuration, None, f.expected_s)
    for s in spaces:
        with Missed(s):
            for configuration in islice(s.configurations(here.problem(s)), _TRIED):
                choice = ConfigurationChoice("default" if s.rank > 0 else "generic", s, configuration)
                if loops_over(here, choice, letters):
                    yield choice
                    break


def _loop_seconds(here: Instance, choice: ConfigurationChoice) -> float:
    with Missed(choice.space):
        return expected_s(here, choice.space, choice.configuration)
    return float("inf")


def why_not(job: KernelJob, origin: Origin, letter: str) -> str | None:
    """Why a kernel does not loop over an index of the einsum that was given; None if it does."""
    own = job.canonical.renaming.indices[letter]
    found = divided_indices(job.instance, job.find_space(origin), origin.configuration)
    if found is None:
        return f"'{origin.space}' does not say what it divides"
    return found.get(own)
