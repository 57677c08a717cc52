"""The process of one engine: ``python -m benchmarks.engines.worker ENGINE``.

It reads requests, one JSON object a line, from its standard input and answers each with one line, until the input ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benchmarks.engines import serve
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


def main() -> None:
    made: list[Engine] = []

    def function_of(do: str) -> Callable[..., dict[str, Any]]:
        if not made or do == "hello":
            made[:] = [make_engine(sys.argv[1])]
        return getattr(made[0], do)  # type: ignore[no-any-return]

    serve(function_of)


if __name__ == "__main__":
    main()
