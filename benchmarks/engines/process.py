"""The other end of worker.py: a process that can be cut off, and is started again when it is next needed."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from benchmarks import HANDICAPS
from benchmarks.peers import PEERS

_ROOT = Path(__file__).parents[2]
_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "1000000000000", "MALLOC_TOP_PAD_": "67108864"}
"""glibc keeps what is freed, so that no peer pays for fresh pages at every result: feinsum is given its output too."""
_MODEST = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""All engines share the memory of one GPU."""

_AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "LIBXSMM_TARGET": "hsw",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "NUMBA_CPU_NAME": "haswell",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}
"""Where ``CL_CONFIG_CPU_TARGET_ARCH=core-avx2`` restricts Intel's runtime, peers have the same instructions; only TBLIS has
no such setting."""


class CutOffError(Exception):
    """No answer in time; the process was killed."""


class FailedError(Exception):
    """The engine, or its process, failed."""


class EngineProcess:
    """An engine in a process of its own.

    :param python: the interpreter that has the engine installed.
    :param engine: that of :func:`benchmarks.engines.worker.make_engine`, where several processes have the same; by
        default `name`.
    :param how: what to tell it with every problem, see :meth:`benchmarks.peers.base.Engine.load`.
    :param command: what to run, if not that engine's worker.
    :param environment: variables that differ from those of all engines.
    """

    def __init__(
        self,
        name: str,
        python: str = sys.executable,
        engine: str | None = None,
        how: Mapping[str, Any] | None = None,
        *,
        command: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.how = dict(how or {})
        self._engine = engine or name
        self._command = command or [python, "-m", "benchmarks.engines.worker", self._engine]
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def ask(self, timeout_s: float, do: str, **how: Any) -> dict[str, Any]:
        """The answer to a request.

        :raises CutOffError: if there is none in time.
        :raises FailedError: if the engine raised something or the process ended.
        """
        process = self._process or self._start()
        assert process.stdin is not None  # both are pipes, by construction
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"do": do, **how}).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise FailedError(self._post_mortem()) from None
        with selectors.DefaultSelector() as ready:  # select() knows 1024 files
            ready.register(process.stdout, selectors.EVENT_READ)
            is_ready = bool(ready.select(timeout_s))
        if not is_ready:
            self.close()
            raise CutOffError(f"no answer to '{do}' within {timeout_s:g} s")
        line = process.stdout.readline()
        if not line:
            raise FailedError(self._post_mortem())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise FailedError(answer["error"])
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout, self._log):
                if stream is not None:
                    stream.close()
        self._process = self._log = None

    def _start(self) -> subprocess.Popen[bytes]:
        environment = engine_environment(self._engine) | dict(self._environment)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=environment
        )
        return self._process

    def _post_mortem(self) -> str:
        assert self._process is not None
        assert self._log is not None
        code = self._process.wait()
        self._log.seek(0)
        said = " ".join(self._log.read().decode(errors="replace").split())[-300:]
        self.close()
        return f"the process ended with code {code}: {said}"


def engine_environment(engine: str) -> dict[str, str]:
    """What the process of an engine has in its environment: all cores, and no settings that slow a library down."""
    inherited = {name: value for name, value in os.environ.items() if name not in HANDICAPS}
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    cores = dict.fromkeys(_THREADS, str(len(os.sched_getaffinity(0))))
    own = PEERS[engine].environment if engine in PEERS else {}
    restricted = _AVX2 if inherited.get("CL_CONFIG_CPU_TARGET_ARCH") == "core-avx2" and engine in PEERS else {}
    return {**inherited, **cores, **_KEEP_MEMORY, **_MODEST, **restricted, **own, "PYTHONPATH": path}
