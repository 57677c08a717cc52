"""A real SLURM of one node for the tests: Debian's ``slurmctld`` and ``slurmd``, with no root, munge or accounting.

Both listen on free ports of the loopback, keep their state in a temporary directory and end with the test process.
"""

from __future__ import annotations

import atexit
import functools
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

NEEDED = ("slurmctld", "slurmd", "sbatch", "sinfo")
REASON = "NO SLURM, so array jobs run by a stand-in: install Debian's slurmctld, slurmd and slurm-client"
_PATIENCE_S = 60.0

_CONFIGURATION = """\
ClusterName=feinsum
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={processors} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def installed() -> bool:
    """Whether this machine has what :func:`cluster` starts."""
    return all(_program(name) for name in NEEDED)


@functools.cache
def cluster() -> dict[str, str]:
    """The environment in which ``sbatch`` finds a cluster of one node that runs until the process ends.

    :raises RuntimeError: with what SLURM logged, if the node is not ready within a minute.
    """
    directory = Path(tempfile.mkdtemp(prefix="feinsum-slurm-", dir="/tmp"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    for name in ("state", "spool"):
        (directory / name).mkdir()
    controller, node = _free_ports(2)
    file = directory / "slurm.conf"
    file.write_text(
        _CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0],
            controller=controller,
            node=node,
            user=getpass.getuser(),
            directory=directory,
            processors=os.cpu_count(),
        )
    )
    environment = {"SLURM_CONF": str(file)}
    for name in ("slurmctld", "slurmd"):
        process = subprocess.Popen(
            [_program(name) or name, "-D"],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(process.wait, 10)
        atexit.register(process.terminate)
    _wait_for_node(directory, environment)
    return environment


def _wait_for_node(directory: Path, environment: dict[str, str]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        state = subprocess.run(
            ["sinfo", "--noheader", "--format=%t"],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if state.stdout.strip() == "idle":
            return
        time.sleep(0.2)
    logs = "\n".join(path.read_text() for path in sorted(directory.glob("*.log")))
    raise RuntimeError(f"SLURM's node is not ready after {_PATIENCE_S:.0f} s:\n{logs}")


def _program(name: str) -> str | None:
    """Daemons lie where only root's PATH may lead."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
