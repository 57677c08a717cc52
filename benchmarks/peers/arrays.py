"""Peers on numpy arrays: numpy, opt_einsum, TBLIS, and loops compiled by numba."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.engines.problem import Problem
from benchmarks.peers.base import CORES, Engine, Offer, Work
from benchmarks.peers.loops import loops_source


class Numpy(Engine):
    """numpy.einsum along the cheapest path; with BLAS where it sees a matrix product."""

    packages = ("numpy",)

    def functions(self) -> Any:
        return SimpleNamespace(einsum=partial(np.einsum, optimize=True))


class OptEinsum(Engine):
    """opt_einsum on numpy along the cheapest path; several outputs share their partial results."""

    packages = ("opt_einsum", "numpy")

    def prepare(self, problem: Problem, inputs: dict[str, Any]) -> Callable[[dict[str, Any]], list[Any]]:
        import opt_einsum

        shapes = [inputs[name].shape for name in problem.rows[0]]
        contract = opt_einsum.contract_expression(problem.subscripts, *shapes, optimize=list(problem.path))

        def evaluate(a: dict[str, Any]) -> list[Any]:
            if len(problem.rows) == 1:
                return [contract(*(a[x] for x in problem.rows[0]))]
            with opt_einsum.shared_intermediates():
                return [contract(*(a[x] for x in row)) for row in problem.rows]

        return evaluate


class Tblis(Engine):
    """TBLIS along the cheapest path; it contracts tensors where they lie, without matrices in between."""

    packages = ("pytblis", "numpy")

    def __init__(self) -> None:
        super().__init__()
        import pytblis

        self._pytblis = pytblis
        pytblis.set_num_threads(CORES)

    def functions(self) -> Any:
        return self._pytblis


class Numba(Engine):
    """The loops of :mod:`benchmarks.peers.loops`, compiled in parallel with fast mathematics."""

    packages = ("numba", "numpy")

    def __init__(self) -> None:
        super().__init__()
        import numba

        self._numba = numba

    def prepare(self, problem: Problem, inputs: dict[str, Any]) -> Callable[[dict[str, Any]], list[Any]]:
        numba = self._numba
        scope: dict[str, Any] = {"np": np, "prange": numba.prange}
        exec(compile(loops_source(problem), "<loops>", "exec"), scope)
        shape = tuple(problem.lengths[letter] for letter in problem.output)
        results = [np.empty(shape, problem.dtype) for _ in problem.rows]
        run = numba.njit(parallel=True, fastmath=True)(scope["run"])
        run.compile(tuple(numba.typeof(values) for values in (*inputs.values(), *results)))

        def evaluate(a: dict[str, Any]) -> list[Any]:
            run(*a.values(), *results)
            return results

        return evaluate

    def offers(self, name: str, work: Work, side: str) -> Iterator[Offer]:
        """Where there are loops for it, given by a function of numba."""
        if name in work.special:
            loops = self._numba.njit(parallel=True, fastmath=True)(work.special[name](self._numba))
            yield self.offer(name, partial(loops, *work.arrays.values()))
