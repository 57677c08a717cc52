"""``python -m benchmarks COMMAND``: every measurement of this directory by its name."""

from __future__ import annotations

import os
import runpy
import sys

from benchmarks import HANDICAPS

COMMANDS = {
    "suite": "feinsum beside its peers on benchmarks/suite.json, in one run",
    "wide": "einsums that nobody tuned beside the peers, on benchmarks/wide/cases.csv: python -m benchmarks wide --limit 2",
    "gate": "whether this checkout is slower than the last release, in pairs: python -m benchmarks gate --base REV",
    "races": "what races say of kernels whose times are known, on simulated machines",
    "declarative": "programs of the declarative language beside torch, JAX and numba",
    "arrays": "arrays of torch, JAX and CuPy beside the bare kernels, and training steps beside torch",
    "epilogues": "functions of sums and updates, fused and in launches of their own, beside the bare kernels and the peers",
    "tensor": "programs of the tensor language by both routes, beside peers",
    "seissol": "kernels of SeisSol as programs of the immediate language, beside launches and the peers",
    "forms": "kernels in the style of a form compiler, as given and transformed",
    "job": "the cases of benchmarks/suite.json as a job file for `feinsum tune`",
    "report": "the results of `suite` as a page with a roofline plot",
    "cost-model": "train the cost model, and measure how well it chooses",
    "collect": "times of configurations for the cost model: built first, timed together",
    "heats": "what it gains to try a few configurations of patterns that the cost model has not seen",
    "ladder": "how well the ladder chooses for problems that were never tuned",
    "costs": "import, generate and calls: what using feinsum costs besides the kernel",
    "trials": "where the time of a trial goes in tuning, and how many variants a minute",
    "canonical": "how long canonical forms take",
    "lookup": "how long the look-up of a record takes",
    "samplers": "how quickly each sampler finds fast configurations",
    "demo": "tune three einsums and compare with numpy",
}


def main() -> None:
    """Run the module of the command as a program of its own."""
    command, *arguments = sys.argv[1:] or [""]
    if command not in COMMANDS:
        known = "\n".join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())
        sys.exit(f"usage: python -m benchmarks COMMAND [--help | ...]\n\n{known}")
    for name in HANDICAPS:  # before numpy is imported, as commands may run peers in their own process
        os.environ.pop(name, None)
    sys.argv = [f"python -m benchmarks {command}", *arguments]
    runpy.run_module(f"benchmarks.{command.replace('-', '_')}", run_name="__main__")


if __name__ == "__main__":
    main()
