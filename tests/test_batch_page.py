"""doc/guides/batch-tuning.rst is followed as written: its files are made, its commands executed, its output compared.

Only the number of processes that build is another one: a second is of no use to two trials, and takes as long to start.
"""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pages import blocks
from slurm import REASON, cluster, installed

PAGE = Path(__file__).parents[1] / "doc" / "guides" / "batch-tuning.rst"
FEINSUM = """#!/bin/bash
if [ "$1" = tune ] && [[ "$*" != *--scheduler* ]]; then set -- "$@" --workers 1; fi
exec {} -m feinsum "$@"
"""
SBATCH = r"""#!/bin/bash
# Where SLURM is not installed, as much of it as the page needs: runs the tasks of an array job one after the other.
script=${@: -1}
count=$(sed -n 's/^#SBATCH --array=1-//p' "$script")
echo "Submitted batch job 1"
for task in $(seq "$count"); do
    SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=$count bash "$script" > "feinsum-$task.log" 2>&1 || exit 1
done
"""


def session(text: str) -> tuple[str, str]:
    """The commands of a console block as one script, and what it should print."""
    lines = text.splitlines()
    return "\n".join(x[2:] for x in lines if x.startswith("$ ")), "\n".join(x for x in lines if not x.startswith("$ "))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page is followed, with the commands that it takes for granted."""
    place = tmp_path_factory.mktemp("night")
    commands = place / "bin"
    commands.mkdir()
    texts = {"feinsum": FEINSUM.format(sys.executable)}
    if not installed():
        texts["sbatch"] = SBATCH
    for name, text in texts.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    return place


def test_the_page_has_what_is_looked_for() -> None:
    """So that a page whose blocks are not found is not said to work."""
    languages = [language for language, _, _ in blocks(PAGE)]
    assert languages == ["toml", "console", "console", "console", "bash", "console", "console"]


@pytest.mark.parametrize(("language", "name", "text"), list(blocks(PAGE)), ids=lambda value: str(value).split("\n")[0][:30])
def test_the_page_works_as_written(directory: Path, language: str, name: str, text: str) -> None:
    """From top to bottom: later blocks build on earlier ones."""
    if name:
        (directory / name).write_text(text)
        return
    if "dask" in text:
        pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
    slurm = cluster() if "sbatch" in text and installed() else {}
    script, expected = session(text)
    path = os.pathsep.join([str(directory / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    root = os.pathsep.join(filter(None, (str(PAGE.parents[1]), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=directory,
        env={**os.environ, **slurm, "PATH": path, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    found = done.stdout.strip() + "\n"
    assert doctest.OutputChecker().check_output(expected + "\n", found, doctest.ELLIPSIS), found


@pytest.mark.slow
def test_the_array_job_ran_on_a_real_slurm(directory: Path) -> None:
    """Each task by the node's own daemon, which numbers the job and its tasks; the page before this test submits it."""
    if not installed():
        pytest.skip(REASON)
    assert sorted(path.name for path in directory.glob("feinsum-*.log")) == ["feinsum-1.log", "feinsum-2.log"]
    accounts = subprocess.run(
        ["scontrol", "show", "job"], env={**os.environ, **cluster()}, capture_output=True, text=True, check=True
    ).stdout
    assert accounts.count("JobState=COMPLETED") == 2, accounts
