"""Processors with fewer and shorter vector registers than this one's, to which Intel's runtime is restricted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from feinsum.devices import Device

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
SPACES = ("contraction_steps", "packed_product", "permutation", "reduction", "vector_panels")
"""Those whose plans depend on vectors and their registers most."""


@pytest.mark.parametrize("target", ["core-avx2", "corei7"])
def test_kernels_are_right_on_a_restricted_processor(target: str, cpu: Device) -> None:
    """With AVX2 and SSE 4.2 vectors are of 32 and 16 bytes, so plans are other ones; proved in a process of its own."""
    if cpu.profile.runtime != "intel":
        pytest.skip(f"{cpu.profile.platform} cannot be restricted to other processors")
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    chosen = f"test_the_kernels_of_a_space_are_right and ({' or '.join(SPACES)})"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_spaces.py", "-k", chosen]
    played = own | {"CL_CONFIG_CPU_TARGET_ARCH": target}
    done = subprocess.run(command, cwd=ROOT, env=played, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"\b{len(SPACES)} passed", done.stdout), done.stdout
    assert "skipped" not in done.stdout
