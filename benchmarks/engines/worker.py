"""The process of one engine: ``python -m benchmarks.engines.worker ENGINE``.

It reads requests, one JSON object a line, from its standard input and answers each with one line, until the input ends.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

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


def serve(function_of: Callable[[str], Callable[..., dict[str, Any]]]) -> None:
    """Answer with what the function of a request returns, or ``{"error": ...}`` where it fails, until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # compilers write to the standard output what they like
    for line in sys.stdin:
        how = json.loads(line)
        try:
            answer = function_of(how.pop("do"))(**how)
        except Exception as error:  # anything that a library may raise is a result of the benchmark
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    made: list[Engine] = []

    def function_of(do: str) -> Callable[..., dict[str, Any]]:
        if not made or do == "hello":
            made[:] = [make_engine(sys.argv[1])]
        return getattr(made[0], do)  # type: ignore[no-any-return]

    serve(function_of)


if __name__ == "__main__":
    main()
