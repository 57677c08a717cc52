"""Processes that begin anew: a fork would have the threads of JAX and of OpenCL runtimes, which do not survive it."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def pool_of(count: int | None = None) -> ProcessPoolExecutor:
    """A pool of so many processes; by default one for each core."""
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))
