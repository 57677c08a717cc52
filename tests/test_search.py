"""What every sampler promises, whichever it is, on spaces large, small, empty and refused."""

from __future__ import annotations

import itertools
import logging
import math
import os
import random
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feinsum.errors import SearchError
from feinsum.search import SAMPLERS, Sampler, make_sampler
from feinsum.search.grid import Grid
from feinsum.search.sampler import COUNTED

GUIDED = ("parzen", "tpe", "genetic")
Configuration = dict[str, Any]

every_sampler = pytest.mark.parametrize("name", SAMPLERS)
few = settings(max_examples=15, deadline=None)
"""Optuna takes milliseconds for a question, so that properties of every sampler are tried on few spaces."""


@dataclass(frozen=True)
class Space:
    """Parameters, and the configurations made of them that are refused."""

    parameters: Mapping[str, tuple[Any, ...]]
    refused: frozenset[tuple[Any, ...]] = frozenset()

    def refusal(self, configuration: Mapping[str, Any]) -> str | None:
        return "because" if self.key(configuration) in self.refused else None

    def key(self, configuration: Mapping[str, Any]) -> tuple[Any, ...]:
        assert list(configuration) == list(self.parameters)
        return tuple(configuration.values())

    @property
    def all(self) -> list[tuple[Any, ...]]:
        return list(itertools.product(*self.parameters.values()))

    @property
    def accepted(self) -> set[tuple[Any, ...]]:
        return set(self.all) - self.refused

    def configuration(self, key: tuple[Any, ...]) -> Configuration:
        return dict(zip(self.parameters, key, strict=True))

    def sampler(self, name: str | None, **options: Any) -> Sampler:
        return make_sampler(name, self.parameters, self.refusal, **options)


_CHOICES = st.permutations([1, 2, 4, 8]).map(lambda values: tuple(values[:3])) | st.sampled_from(
    [(True, False), ("local", "private", "global"), (0.5,), (16, 32, 64, 128)]
)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Spaces of at most 256 points, from none accepted to all."""
    parameters = draw(st.dictionaries(st.sampled_from(["tile", "unroll", "memory", "vector"]), _CHOICES, max_size=4))
    points = list(itertools.product(*parameters.values()))
    share = draw(st.sampled_from([0, 0.3, 0.9, 1]))
    chance = random.Random(draw(st.integers(0, 1000)))
    return Space(parameters, frozenset(point for point in points if chance.random() < share))


def ask_all(sampler: Sampler, median_s: Callable[[Configuration], float | None]) -> Iterator[Configuration]:
    """Every configuration that a sampler has, each told as soon as it was asked."""
    while (configuration := sampler.ask()) is not None:
        yield configuration
        sampler.tell(configuration, median_s(configuration))


def some_time(configuration: Configuration) -> float | None:
    """A time that every parameter moves a little; a few configurations fail."""
    weight = sum(len(name) * len(str(value)) for name, value in configuration.items())
    return None if weight % 7 == 3 else 1e-3 * (1 + weight)


CUBE = Space({"a": tuple(range(7)), "b": tuple(range(7)), "c": tuple(range(7))})


def valley(configuration: Configuration) -> float:
    """The time of a configuration of the cube: fastest at a = 5, b = 2, c = 3."""
    return 1e-3 * (1 + (configuration["a"] - 5) ** 2 + (configuration["b"] - 2) ** 2 + (configuration["c"] - 3) ** 2)


@every_sampler
@few
@given(space=spaces(), seed=st.integers(0, 2**32 - 1))
def test_every_accepted_configuration_is_asked_exactly_once_and_then_none(name: str, space: Space, seed: int) -> None:
    """A sampler neither repeats itself, nor asks what is refused, nor ends before everything was asked."""
    sampler = space.sampler(name, seed=seed)
    asked = [space.key(configuration) for configuration in ask_all(sampler, some_time)]
    assert len(asked) == len(set(asked))
    assert set(asked) == space.accepted
    assert sampler.ask() is None


@every_sampler
@few
@given(space=spaces(), seed=st.integers(0, 1000))
def test_several_are_asked_before_one_is_told(name: str, space: Space, seed: int) -> None:
    """Compiling ahead changes nothing of the promise: answers may be late, out of order, or never come."""
    sampler, chance = space.sampler(name, seed=seed), random.Random(seed)
    asked: list[tuple[Any, ...]] = []
    waiting: list[Configuration] = []
    while (configuration := sampler.ask()) is not None:
        asked.append(space.key(configuration))
        waiting.append(configuration)
        while len(waiting) > chance.randrange(6):
            answered = waiting.pop(chance.randrange(len(waiting)))
            if chance.random() < 0.9:
                sampler.tell(answered, some_time(answered))
    assert sorted(map(repr, asked)) == sorted(map(repr, space.accepted))


@every_sampler
@few
@given(space=spaces(), seed=st.integers(0, 1000), share=st.floats(0, 1))
def test_a_resumed_search_asks_only_the_rest(name: str, space: Space, seed: int, share: float) -> None:
    """What is known from records is not asked again, even if the space has come to refuse it."""
    chance = random.Random(seed)
    known = [space.configuration(key) for key in space.all if chance.random() < share]
    sampler = space.sampler(name, seed=seed, known=[(c, some_time(c)) for c in known])
    asked = {space.key(configuration) for configuration in ask_all(sampler, some_time)}
    assert asked == space.accepted - set(map(space.key, known))


@every_sampler
@few
@given(space=spaces(), data=st.data())
def test_start_configurations_come_first_and_in_order(name: str, space: Space, data: st.DataObject) -> None:
    """Refused and repeated ones are skipped, and so are those of other spaces."""
    keys = data.draw(st.lists(st.sampled_from(space.all), max_size=12) if space.all else st.just([]))
    start = [space.configuration(key) for key in keys]
    foreign = [{**space.configuration(key), "stranger": 1} for key in keys]
    outside = [{**configuration, "tile": 999} for configuration in start]
    sampler = space.sampler(name, start=[*foreign, *outside, *start])
    expected = list(dict.fromkeys(key for key in keys if key in space.accepted))
    asked = [space.key(configuration) for configuration in ask_all(sampler, some_time)]
    assert asked[: len(expected)] == expected
    assert set(asked) == space.accepted


@every_sampler
def test_what_was_told_without_being_asked_is_not_asked(name: str) -> None:
    """Another worker may have measured a configuration in the meantime, start configurations included."""
    told = {"a": 5, "b": 2, "c": 3}
    sampler = CUBE.sampler(name, start=[told])
    sampler.tell(told, valley(told))
    assert told not in list(ask_all(sampler, valley))


@every_sampler
def test_a_configuration_of_another_space_says_nothing(name: str) -> None:
    """Records of other versions of a space may be told; the search goes on as if they had not been."""
    plain, disturbed = CUBE.sampler(name), CUBE.sampler(name)
    for _ in range(60):
        disturbed.tell({"a": 99, "b": 0, "c": 0}, 1e-9)
        disturbed.tell({"a": 0, "b": 0}, None)
        asked = plain.ask()
        assert disturbed.ask() == asked
        plain.tell(asked, valley(asked))
        disturbed.tell(asked, valley(asked))


@every_sampler
def test_one_and_true_are_two_choices(name: str) -> None:
    """JSON tells 1, 1.0 and true apart, and so do the kernels made with them."""
    sampler = make_sampler(name, {"depth": (1, True, 1.0, 1)}, lambda _: None, known=[({"depth": True}, 1e-3)])
    assert sorted(repr(c["depth"]) for c in ask_all(sampler, some_time)) == ["1", "1.0"]


@every_sampler
@pytest.mark.parametrize("lie", [math.nan, math.inf, -math.inf, -1.0, 0.0, None])
def test_what_is_no_time_is_a_failure(name: str, lie: float | None) -> None:
    """Neither NaN nor zero seconds lead a search, which goes to the end where everything fails."""
    failing, lying = CUBE.sampler(name), CUBE.sampler(name)
    for _ in range(60):
        asked = failing.ask()
        assert lying.ask() == asked
        truth = valley(asked) if asked["a"] % 2 else None
        failing.tell(asked, truth)
        lying.tell(asked, lie if truth is None else truth)


@every_sampler
def test_a_search_in_which_everything_fails_ends(name: str) -> None:
    """Nothing to learn from is no reason to stop early or to go on for ever."""
    assert len(list(ask_all(CUBE.sampler(name), lambda _: None))) == 7**3


@pytest.mark.parametrize("name", ["exhaustive", "parzen"])
def test_few_accepted_among_many_are_found(name: str) -> None:
    """A space that refuses nearly everything is searched to its end, though it has more points than are counted."""
    parameters = {letter: tuple(range(7)) for letter in "abcdef"}
    assert COUNTED < 7**6
    sampler = make_sampler(name, parameters, lambda c: None if set(c.values()) in ({2}, {5}, {6}) else "because")
    found = list(ask_all(sampler, lambda c: 1e-3))
    assert sorted(c["a"] for c in found) == [2, 5, 6]


@every_sampler
def test_a_space_too_large_to_enumerate_answers_at_once(name: str) -> None:
    """The first questions of a space of 10^12 points need no walk through it."""
    parameters = {letter: tuple(range(10)) for letter in "abcdefghijkl"}
    sampler = make_sampler(name, parameters, lambda c: "odd" if sum(c.values()) % 2 else None)
    asked = [configuration for configuration, _ in zip(ask_all(sampler, lambda c: 1 + c["a"]), range(40), strict=False)]
    assert len({tuple(c.values()) for c in asked}) == 40


@every_sampler
def test_equal_seeds_ask_alike(name: str) -> None:
    """A run is repeated by its seed; another seed searches otherwise, except where nothing is random."""

    def run(seed: int) -> list[Configuration]:
        sampler = CUBE.sampler(name, seed=seed)
        return list(itertools.islice(ask_all(sampler, valley), 60))

    assert run(3) == run(3)
    assert (run(3) == run(4)) == (name == "exhaustive")


_SCRIPT = """
from feinsum.search import SAMPLERS, make_sampler
parameters = {name: tuple("pqrstu") for name in ("tile", "unroll", "memory", "order")}
for name in SAMPLERS:
    sampler = make_sampler(name, parameters, lambda c: "even" if c["tile"] == c["order"] else None, seed=7)
    for _ in range(50):
        asked = sampler.ask()
        sampler.tell(asked, 1e-3 * (1 + sum(map(ord, asked.values())) % 17))
        print(name, *asked.values())
"""


def test_runs_do_not_depend_on_the_hash_seed() -> None:
    """The order of sets and the hashes of strings differ between processes; the questions do not."""
    outputs = [_python(_SCRIPT, PYTHONHASHSEED=seed) for seed in ("0", "123")]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == 50 * len(SAMPLERS)


def test_searching_needs_neither_a_device_nor_optuna() -> None:
    """The default sampler loads nothing heavy."""
    script = """
import sys
from feinsum.search import make_sampler
sampler = make_sampler(None, {"a": range(100), "b": range(100)}, lambda c: None)
for _ in range(30):
    sampler.tell(sampler.ask(), 1.0)
print(sorted({"loopy", "pyopencl", "optuna"} & set(sys.modules)))
"""
    assert _python(script) == "[]\n"


def _python(script: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", script], env=os.environ | environment, capture_output=True, text=True, check=True
    ).stdout


def test_exhaustive_search_starts_with_the_best_guesses() -> None:
    """The order goes by how far the choices are from the first ones in total."""
    asked = [sum(configuration.values()) for configuration in ask_all(CUBE.sampler("exhaustive"), valley)]
    assert asked == sorted(asked)
    assert asked[0] == 0


def test_random_search_is_uniform_over_the_accepted() -> None:
    """Each of nine accepted configurations is as often the first as it is the fourth."""
    space = Space(
        {"a": (0, 1, 2, 3), "b": (0, 1, 2, 3)}, frozenset((a, 3 - a) for a in range(4)) | {(0, 0), (1, 1), (0, 1)}
    )
    for place in (0, 3):
        counts: Counter[tuple[Any, ...]] = Counter()
        for seed in range(1800):
            asked = list(ask_all(space.sampler("random", seed=seed), some_time))
            counts[space.key(asked[place])] += 1
        assert set(counts) == space.accepted
        # 200 are expected of each, with a standard deviation of 13.
        assert max(abs(count - 200) for count in counts.values()) < 60


KNOWN = [(c, valley(c)) for c in itertools.islice(ask_all(CUBE.sampler("random", seed=1), valley), 60)]


def following(name: str, known: list[tuple[Configuration, float | None]]) -> list[float]:
    """The times of the next thirty configurations that a resumed search asks."""
    search = CUBE.sampler(name, seed=2, known=known)
    return [valley(configuration) for configuration in itertools.islice(ask_all(search, valley), 30)]


@pytest.mark.parametrize("name", GUIDED)
def test_what_is_known_guides_the_search(name: str) -> None:
    """Resumed with sixty results, a guided sampler asks faster configurations than random search does."""
    assert statistics.median(following(name, KNOWN)) < 0.75 * statistics.median(following("random", KNOWN))


@pytest.mark.parametrize("name", GUIDED)
def test_a_failure_that_worked_when_repeated_counts_as_working(name: str) -> None:
    """A time-out on a busy machine does not keep the search away from a configuration for ever."""
    known = [*((c, None) for c, _ in KNOWN), *KNOWN]
    assert statistics.median(following(name, known)) < 0.75 * statistics.median(following("random", known))


@pytest.mark.parametrize("name", GUIDED)
def test_a_slower_repetition_changes_nothing(name: str) -> None:
    """Of several times of a configuration the fastest counts, and a failure after success is none."""
    assert following(name, [*KNOWN, *((c, 1.0) for c, _ in KNOWN), *((c, None) for c, _ in KNOWN)]) == following(
        name, KNOWN
    )


def test_optuna_is_silent_and_left_as_it_was(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    """Optuna's messages belong to it, not to the user of a tuner; how loud it is for others stays theirs."""
    import optuna

    before = optuna.logging.get_verbosity()
    with caplog.at_level(logging.DEBUG):
        list(itertools.islice(ask_all(CUBE.sampler("tpe"), valley), 30))
    assert optuna.logging.get_verbosity() == before
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("trials", "chosen"), [(343, "exhaustive"), (342, "parzen"), (None, "parzen"), (1, "parzen")])
def test_the_default_tries_everything_where_the_budget_allows_it(trials: int | None, chosen: str) -> None:
    """Otherwise it is the sampler that was quickest on recorded landscapes."""
    assert CUBE.sampler(None, trials=trials).name == chosen


def test_the_default_counts_what_is_accepted() -> None:
    """A space of 343 points of which seven are accepted is a small one."""
    diagonal = Space(CUBE.parameters, frozenset(key for key in CUBE.all if len(set(key)) > 1))
    assert diagonal.sampler(None, trials=7).name == "exhaustive"
    assert diagonal.sampler(None, trials=6).name == "parzen"


def test_the_default_does_not_count_for_ever() -> None:
    """A space of 10^12 points that refuses all is not walked through before the search begins."""
    asked = 0

    def refusal(_: Any) -> str:
        nonlocal asked
        asked += 1
        return "never"

    assert make_sampler(None, {letter: range(10) for letter in "abcdefghijkl"}, refusal, trials=5).name == "parzen"
    assert asked <= 100_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "annealing"}, "there is no sampler 'annealing'; there are exhaustive, random, parzen, tpe, genetic"),
        ({"name": "random", "seed": -1}, "the seed of a sampler is -1; it must be at least 0"),
        ({"name": "random", "trials": 0}, "a search of 0 trials tries nothing; give at least 1"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], message: str) -> None:
    """Errors say what was given and what can be."""
    with pytest.raises(SearchError, match=message):
        CUBE.sampler(**options)


@given(lengths=st.lists(st.integers(0, 5), max_size=4), seed=st.integers(0, 1000))
def test_orders_hold_every_point_once(lengths: list[int], seed: int) -> None:
    """Points, ranks and configurations are three names of one thing, and both orders are complete."""
    grid = Grid({str(k): range(length) for k, length in enumerate(lengths)}, lambda _: None)
    points = [grid.point_of_rank(rank) for rank in range(grid.size)]
    assert points == list(itertools.product(*map(range, lengths)))
    assert [grid.rank(point) for point in points] == list(range(grid.size))
    assert [grid.point(grid.configuration(point)) for point in points] == points
    assert sorted(grid.graded()) == points
    assert sorted(grid.shuffled(seed)) == points
