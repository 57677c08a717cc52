"""Processes that begin anew: a fork would have the threads of JAX and of OpenCL runtimes, which do not survive it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any


def pool_of(count: int | None = None, begin: Callable[..., object] | None = None, *arguments: Any) -> ProcessPoolExecutor:
    """A pool of so many processes; by default one for each core.

    :param begin: what each of them calls first, with these arguments.
    """
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=begin, initargs=arguments)
