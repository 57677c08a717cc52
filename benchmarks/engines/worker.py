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
            if self._engine is None or do == "hello":
                self._engine = make_engine(self._name)
            return getattr(self, f"_{do}")(self._engine, **how)  # type: ignore[no-any-return]
        except Exception as error:  # anything that a library may raise is a result of the benchmark
            return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}

    def _hello(self, engine: Engine) -> dict[str, Any]:
        return {"versions": engine.versions(), "libraries": engine.libraries()}

    def _load(self, engine: Engine, directory: str, **how: Any) -> dict[str, Any]:
        self._problem = read_problem(directory)
        return engine.load(self._problem, **how)

    def _first(self, engine: Engine) -> dict[str, Any]:
        return {"first_s": engine.first()}

    def _check(self, engine: Engine) -> dict[str, Any]:
        assert self._problem is not None  # the parent loads first
        return {"error_of_bound": self._problem.error(engine.outputs())}

    def _turn(self, engine: Engine, seconds: float) -> dict[str, Any]:
        return engine.turn(seconds)

    def _peaks(self, engine: Any, device: str) -> dict[str, Any]:
        return engine.peaks(device)  # type: ignore[no-any-return]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # compilers write to the standard output what they like
    server = Server(sys.argv[1])
    for line in sys.stdin:
        answers.write(json.dumps(server.answer(**json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
