"""A process with threads that outlive it ends as if they were not there."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from feinsum.devices import Device
from feinsum.ending import Calling

THREADS = """
import threading, time
import numpy as np, feinsum as fe
e = fe.einsum("ij,jk->ik", fe.array("A", (64, 64)), fe.array("B", (64, 64)))
kernel = fe.generate(e, "cpu")
a = np.ones((64, 64))
called = threading.Event()

def work():
    while True:
        {call}
        called.set()

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
called.wait()
time.sleep(0.2)
"""


@pytest.mark.parametrize("call", ["kernel(A=a, B=a)", "fe.contract('ij,jk->ik', a, a)"])
def test_daemon_threads_that_call_kernels_do_not_abort_the_process(call: str) -> None:
    """They did each time: Python ends such threads inside of C++ that bears no ending."""
    done = subprocess.run([sys.executable, "-c", THREADS.format(call=call)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


KERNEL_BUILD = """
import threading
import numpy as np, feinsum as fe

def make():
    e = fe.einsum("ij,jk->ik", fe.array("A", (6, 4)), fe.array("B", (4, 5)))
    begun.set()
    print(fe.generate(e, "cpu")(A=np.ones((6, 4)), B=np.ones((4, 5)))[0, 0])

begun = threading.Event()
threading.Thread(target=make).start()
begun.wait()
"""


def test_a_kernel_is_made_after_the_main_thread_has_ended(tmp_path: Path) -> None:
    """The process waits for its other threads, but pools of threads take nothing more."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", KERNEL_BUILD], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "4.0\n", "")


def test_the_end_waits_for_calls_and_lets_no_daemon_begin_one() -> None:
    """The main thread may go on to call, as functions registered with atexit do."""
    calling = Calling()
    inside, leave, after = threading.Event(), threading.Event(), []

    def work() -> None:
        with calling, calling:
            inside.set()
            leave.wait(60)
        with pytest.raises(SystemExit), calling:
            after.append("called")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert inside.wait(60)
    ending = threading.Thread(target=calling.end)
    ending.start()
    ending.join(0.05)
    assert ending.is_alive()
    leave.set()
    ending.join(60)
    thread.join(60)
    assert (ending.is_alive(), thread.is_alive(), after) == (False, False, [])
    with calling:
        pass


def test_devices_can_be_pickled_and_copied(cpu: Device, tmp_path: Path) -> None:
    """Here and in another process, where it is the device of the same id."""
    assert pickle.loads(pickle.dumps(cpu)) is cpu
    assert copy.copy(cpu) is copy.deepcopy(cpu) is cpu
    (tmp_path / "device").write_bytes(pickle.dumps(cpu))
    script = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).queue.device.name)"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "device")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == cpu.cl_device.name
