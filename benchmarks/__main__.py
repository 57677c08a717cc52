"""``python -m benchmarks COMMAND``: every measurement of this directory by its name."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NamedTuple

from benchmarks import HANDICAPS


class Entry(NamedTuple):
    """A command: what it says, and the module and function that run it."""

    summary: str
    module: str
    function: str = "main"


COMMANDS = {
    "suite": Entry("feinsum and its peers on benchmarks/suite.json, in one run", "suite", "suite"),
    "wide": Entry("untuned einsums compared with the peers: python -m benchmarks wide --limit 2", "suite", "wide"),
    "seissol": Entry("kernels of SeisSol as programs, compared with launches and the peers", "suite", "seissol"),
    "gate": Entry("whether this checkout is slower than the last release: python -m benchmarks gate --base REV", "gate"),
    "declarative": Entry("programs of the declarative language compared with torch, JAX and numba", "cases.declarative"),
    "tensor": Entry("programs of the tensor language by both routes, compared with peers", "cases.tensor"),
    "epilogues": Entry("functions of sums and updates, fused and in launches of their own, and peers", "cases.epilogues"),
    "forms": Entry("kernels in the style of a form compiler, as given and transformed", "cases.forms"),
    "arrays": Entry("calls with arrays of torch, JAX and CuPy, bare kernels, and training steps", "arrays.groups"),
    "costs": Entry("import, generate and calls: the cost of feinsum without the kernel", "costs"),
    "report": Entry("the rows that any of these kept, as tables and as a page with plots", "report"),
    "job": Entry("the cases of benchmarks/suite.json as a job file for `feinsum tune`", "job"),
    "cost-model": Entry("train the cost model, and measure how well it chooses", "cost_model"),
    "collect": Entry("times of configurations for the cost model: built first, timed together", "collect"),
    "selection": Entry(
        "what candidate selection gains for patterns that the cost model has not seen", "cost_model", "selection"
    ),
    "samplers": Entry("how quickly each sampler finds fast configurations", "samplers"),
    "canonical": Entry("how long canonical forms take", "costs", "canonical"),
    "demo": Entry("look up or tune three einsums and compare with numpy", "demo"),
    "tour": Entry("run the commands of the first ten minutes and write down what they print", "tour"),
}


def main() -> None:
    """Run the function of the command."""
    command, *arguments = sys.argv[1:] or [""]
    if command not in COMMANDS:
        known = "\n".join(f"  {name:<11} {entry.summary}" for name, entry in COMMANDS.items())
        sys.exit(f"usage: python -m benchmarks COMMAND [--help | ...]\n\n{known}")
    for name in HANDICAPS:  # before numpy is imported, as commands may run peers in their own process
        os.environ.pop(name, None)
    sys.argv = [f"python -m benchmarks {command}", *arguments]
    entry = COMMANDS[command]
    getattr(importlib.import_module(f"benchmarks.{entry.module}"), entry.function)()


if __name__ == "__main__":
    main()
