"""How many random cases tests try: a few, always the same; or by the thousand, on each OpenCL runtime for the CPU.

``make fuzz FUZZ="--of tensor --on pocl --programs 1000"``, or ``python tests/fuzzing.py`` with these options, runs random
programs in batches, each in a process of its own and with the next seed.  A line for each says how many ran, how many were
wrong, and what they took of processors; what pytest said lies in ``build/fuzz/``.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("FEINSUM_FUZZ", "0"))
"""How many cases the environment asks for; 0 where it does not."""

RUNTIMES = ("intel", "pocl")
SUBJECTS = {
    "einsums": [
        "tests/test_fuzz.py::test_contract_equals_numpy[{runtime}]",
        "tests/test_fuzz.py::test_described_einsums_equal_numpy[{runtime}]",
        "tests/test_fuzz.py::test_any_configuration_is_right[{runtime}]",
    ],
    "callers": [
        "tests/test_fuzz.py::test_a_limit_of_the_caller_reaches_it[{runtime}]",
        "tests/test_fuzz.py::test_threads_lose_no_candidate_to_warnings[{runtime}]",
    ],
    "transforms": ["tests/test_transform_lengths.py::test_lengths_of_any_type_keep_any_configuration_within_its_arrays"],
    "epilogues": ["tests/test_epilogue_kernels.py::test_any_epilogue_of_any_configuration_is_right[{runtime}]"],
    "tensor": ["tests/test_languages_tensor_devices.py::test_random_programs_give_what_the_interpreter_gives"],
    "immediate": [
        "tests/test_languages_immediate_running.py::test_random_programs_with_one_kernel",
        "tests/test_languages_immediate_running.py::test_random_programs_on_a_device",
    ],
    "declarative": [
        "tests/test_languages_declarative_random.py::test_expressions_on_a_device",
        "tests/test_languages_declarative_random.py::test_programs_on_a_device",
        "tests/test_languages_declarative_random.py::test_programs_with_an_empty_axis",
    ],
}
"""The tests of random programs, by what these are of."""

_COUNTS = re.compile(
    r"^(tests/\S+?):\n\n(?:  - during (?!generate).*\n(?:    .*\n)+\n)*"
    r"  - during generate phase .*\n.*\n    - (\d+) passing, (\d+) failing",
    re.MULTILINE,
)
"""What ``--hypothesis-show-statistics`` says of a test: its name, and how many cases were right and wrong."""


def cases(few: int) -> settings:
    """Settings of a test with `few` cases, the same ones always; or with as many others as the environment asks for."""
    return settings(
        max_examples=EXAMPLES or few,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


@dataclass(frozen=True)
class Batch:
    """What came of one process: programs that ran and that were wrong, by test, and seconds of processors."""

    ran: Counter[str]
    wrong: Counter[str]
    status: int
    processor_s: float


def counted(said: str) -> tuple[Counter[str], Counter[str]]:
    """How many programs ran, and how many were wrong, by test, as pytest says."""
    ran, wrong = Counter[str](), Counter[str]()
    for test, right, failing in _COUNTS.findall(said):
        ran[test] += int(right) + int(failing)
        wrong[test] += int(failing)
    return ran, wrong


def run_batch(subject: str, runtime: str, programs: int, seed: int, log: Path) -> Batch:
    """Run the tests of a subject with so many programs each, and keep what pytest says."""
    tests = [test.format(runtime=runtime) for test in SUBJECTS[subject]]
    options = [f"--cpu={runtime}", f"--hypothesis-seed={seed}", "--hypothesis-show-statistics", "-p", "no:cacheprovider"]
    environment = {**os.environ, "FEINSUM_FUZZ": str(programs)}
    with log.open("w", encoding="utf-8") as file:
        before = os.times()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *options, *tests],
            env=environment, stdout=file, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        after = os.times()
    processor_s = sum(after[2:4]) - sum(before[2:4])
    return Batch(*counted(log.read_text(encoding="utf-8", errors="replace")), done.returncode, processor_s)


def batches(programs: int, largest: int) -> Iterator[int]:
    for begin in range(0, programs, largest):
        yield min(largest, programs - begin)


def fuzz(subject: str, runtime: str, programs: int, seed: int, largest: int, logs: Path) -> bool:
    """Run so many programs of a subject, print what came of each batch and of all, and say whether all were right."""
    ran, wrong, processor_s, failed = Counter[str](), Counter[str](), 0.0, 0
    for k, count in enumerate(batches(programs, largest)):
        log = logs / f"{subject}-{runtime}-{seed + k}.log"
        batch = run_batch(subject, runtime, count, seed + k, log)
        ran, wrong, processor_s = ran + batch.ran, wrong + batch.wrong, processor_s + batch.processor_s
        line = f"{subject} on {runtime}, seed {seed + k}: {batch.ran.total()} ran, {batch.wrong.total()} wrong"
        if batch.status or not batch.ran:
            failed += 1
            line += f"; pytest ended with {batch.status}, see {log}"
        print(f"{line}; {batch.processor_s:.0f} s", flush=True)
    for test, count in ran.items():
        print(f"  {count:6} ran, {wrong[test]} wrong: {test.partition('::')[2]}")
    print(f"{subject} on {runtime}: {ran.total()} ran, {wrong.total()} wrong, {failed} batches failed; {processor_s:.0f} s")
    return not failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", nargs="+", choices=SUBJECTS, default=list(SUBJECTS), help="what the programs are of")
    parser.add_argument("--on", nargs="+", choices=RUNTIMES, default=["intel"], help="OpenCL runtimes")
    parser.add_argument("--programs", type=int, default=100, help="for each test and runtime")
    parser.add_argument("--seed", type=int, default=1, help="of the first batch")
    parser.add_argument("--batch", type=int, default=100, help="programs of a process")
    parser.add_argument("--logs", type=Path, default=Path("build/fuzz"), help="the directory for what pytest says")
    asked = parser.parse_args()
    asked.logs.mkdir(parents=True, exist_ok=True)
    found = [
        fuzz(subject, runtime, asked.programs, asked.seed, asked.batch, asked.logs)
        for subject in asked.of
        for runtime in asked.on
    ]
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
