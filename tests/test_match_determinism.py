"""Matching, isolation and extraction give the same in every process, whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent

SCRIPT = """
import loopy as lp
from kernels import make_kernel
from wave_equation import wave_equation
from feinsum.match import extract_operands, find_einsums, isolate

def show(t_unit):
    kernel = t_unit.default_entrypoint
    for name, rule in kernel.substitutions.items():
        print(name, rule.arguments, rule.expression)
    for insn in kernel.instructions:
        print(insn.id, getattr(insn, "assignee", ""), getattr(insn, "expression", ""))
    print(kernel.domains, sorted(kernel.all_inames()))

for t_unit in (wave_equation(1), extract_operands(wave_equation(1, rules=False))):
    show(t_unit)
    for match in find_einsums(t_unit):
        print(match, match.names)
        t_unit, match = isolate(t_unit, match)
        print(match)
    show(t_unit)
rows = "y[e, i] = sum((j, k), D[i, j]*u[e, k]*x[k]*x[j])\\nz[p, q] = sum((r, l), v[p, l]*D[q, r]*x[r]*x[l])"
domains = [f"[n] -> {{[{a}, {b}, {c}, {d}]: 0 <= {a} < n and 0 <= {b}, {c}, {d} < 4}}" for a, b, c, d in ("eijk", "pqrl")]
t_unit = extract_operands(make_kernel(rows, domains, rules=""))
(match,) = find_einsums(t_unit)
t_unit, match = isolate(t_unit, match)
print(match)
show(t_unit)
"""


def test_results_do_not_depend_on_the_hash_seed() -> None:
    """Two processes with other seeds see, name and rewrite alike."""
    shown = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "0123"
    }
    assert len(shown) == 1
    assert len(shown.pop()) > 1000
