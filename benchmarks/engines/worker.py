"""The process of one engine: ``python -m benchmarks.engines.worker ENGINE``.

It reads requests, one JSON object a line, from its standard input and answers each with one line, until the input ends.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from benchmarks.engines.problem import Problem, read_problem
from benchmarks.peers import PEERS, Engine


def make_engine(name: str) -> Engine:
    """The engine called so."""
    if name == "feinsum":
        from benchmarks.engines.ours import Feinsum

        return Feinsum()
    if name == "language":
        from benchmarks.engines.programs import Language

        return Language()
    return PEERS[name]()


class Server:
    """Answers requests with an engine that is made at the first of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._engine: Engine | None = None
        self._problem: Problem | None = None

    def answer(self, do: str, **how: Any) -> dict[str, Any]:
        """What :meth:`Engine` returns for `do`; ``{"error": ...}`` where that fails."""
        try:
            return getattr(self, f"_{do}")(**how)  # type: ignore[no-any-return]
        except Exception as error:  # anything that a library may raise is a result of the benchmark
            return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}

    def _hello(self) -> dict[str, Any]:
        self._engine = make_engine(self._name)
        return {"versions": self._engine.versions(), "libraries": self._engine.libraries()}

    def _load(self, directory: str, **how: Any) -> dict[str, Any]:
        self._problem = read_problem(directory)
        return self.engine.load(self._problem, **how)

    def _first(self) -> dict[str, Any]:
        return {"first_s": self.engine.first()}

    def _check(self) -> dict[str, Any]:
        assert self._problem is not None  # the parent loads first
        return {"error_of_bound": self._problem.error(self.engine.outputs())}

    def _turn(self, seconds: float) -> dict[str, Any]:
        return self.engine.turn(seconds)

    def _peaks(self, device: str) -> dict[str, Any]:
        return self.engine.peaks(device)  # type: ignore[attr-defined, no-any-return]

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = make_engine(self._name)
        return self._engine


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # compilers write to the standard output what they like
    server = Server(sys.argv[1])
    for line in sys.stdin:
        answers.write(json.dumps(server.answer(**json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
