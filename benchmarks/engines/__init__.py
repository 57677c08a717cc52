"""Engines and their processes, which answer requests: one JSON object a line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


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
