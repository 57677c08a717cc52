"""Peers that multiply matrices: einsums along the cheapest path by oneMKL, and by libxsmm where matrices are small."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.metadata
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines.problem import Problem, Values
from benchmarks.peers.base import Engine
from benchmarks.peers.loops import Step, Term, steps_of

_BLOCK = 64
"""Rows of a long matrix that libxsmm multiplies by a small one at a time."""


@dataclass(frozen=True)
class Product:
    """A contraction of two operands as a batch of matrix products.

    ``C[batch, m, n] = sum_k A[batch, m, k] B[batch, k, n]``; each field has the indices of its axes.
    """

    batch: str
    m: str
    n: str
    k: str

    @classmethod
    def of(cls, factors: Sequence[Term], kept: str) -> Product | None:
        """That of a step; None where it has no sum over indices of both operands, or no matrix."""
        if len(factors) != 2:
            return None
        a, b = (term.letters for term in factors)
        shared = [x for x in a if x in b]
        found = cls(
            *("".join(letters) for letters in (
                [x for x in shared if x in kept],
                [x for x in a if x not in b],
                [x for x in b if x not in a],
                [x for x in shared if x not in kept],
            ))
        )  # fmt: skip
        has_matrix = found.k and found.m + found.n and len(set(a)) == len(a) and len(set(b)) == len(b)
        return found if has_matrix and set(found.m + found.n) <= set(kept) else None


def _arranged(values: Values, letters: str, wanted: str, lengths: dict[str, int], shape: tuple[str, str, str]) -> Values:
    """An operand as a contiguous batch of matrices; a copy only where its axes lie in another order."""
    ordered = values.transpose([letters.index(x) for x in wanted])
    return np.ascontiguousarray(ordered).reshape([prod(lengths[x] for x in part) for part in shape])


class Matrices(Engine):
    """Contracts operands as batches of matrices; what is no product of matrices is left to numpy."""

    def multiply(self, a: Values, b: Values, c: Values) -> None:
        """``c[i] = a[i] @ b[i]`` for contiguous arrays."""
        raise NotImplementedError

    def prepare(self, problem: Problem, inputs: dict[str, Any]) -> Callable[[dict[str, Any]], list[Any]]:
        steps = steps_of(problem)
        factors = [_longest_first(step, problem.lengths) for step in steps]
        products = [Product.of(own, step.result.letters) for own, step in zip(factors, steps, strict=True)]
        outputs = [f"out_{i}" for i in range(len(problem.rows))]

        def evaluate(a: dict[str, Any]) -> list[Any]:
            values = {f"in_{name}": value for name, value in a.items()}
            for step, terms, product in zip(steps, factors, products, strict=True):
                operands = [values[term.name] for term in terms]
                values[step.result.name] = (
                    np.einsum(f"{','.join(term.letters for term in terms)}->{step.result.letters}", *operands)
                    if product is None
                    else self._contracted(terms, step.result.letters, product, operands, problem.lengths)
                )
            return [values[name] for name in outputs]

        return evaluate

    def _contracted(
        self, terms: Sequence[Term], wanted: str, p: Product, operands: list[Values], lengths: dict[str, int]
    ) -> Values:
        (first, second), result = terms, p.batch + p.m + p.n
        a = _arranged(operands[0], first.letters, p.batch + p.m + p.k, lengths, (p.batch, p.m, p.k))
        b = _arranged(operands[1], second.letters, p.batch + p.k + p.n, lengths, (p.batch, p.k, p.n))
        c = np.empty((len(a), a.shape[1], b.shape[2]), a.dtype)
        self.multiply(a, b, c)
        return c.reshape([lengths[x] for x in result]).transpose([result.index(x) for x in wanted])


def _longest_first(step: Step, lengths: dict[str, int]) -> list[Term]:
    """The factors of a step, so that the rows of the first are the longer side of the result."""
    return sorted(step.factors, key=lambda term: -prod(lengths[x] for x in term.letters if x in step.result.letters))


class Onemkl(Matrices):
    """Batches of matrix products by oneMKL through its C interface."""

    packages = ("mkl", "numpy")
    environment = {"MKL_THREADING_LAYER": "GNU"}  # noqa: RUF012 (a constant of the class)

    def __init__(self) -> None:
        super().__init__()
        self._library = ctypes.CDLL(_onemkl())

    def multiply(self, a: Values, b: Values, c: Values) -> None:
        letter = {"f": "s", "d": "d", "F": "c", "D": "z"}[a.dtype.char]
        call = self._library[f"cblas_{letter}gemm_batch_strided"]
        one, zero = (self._scalar(a.dtype, value) for value in (1, 0))
        (batch, m, k), n = a.shape, b.shape[2]
        row_major, as_it_is, size = 101, 111, ctypes.c_int
        call(
            size(row_major), size(as_it_is), size(as_it_is), size(m), size(n), size(k),
            one, a.ctypes, size(k), size(m * k), b.ctypes, size(n), size(k * n),
            zero, c.ctypes, size(n), size(m * n), size(batch),
        )  # fmt: skip

    def _scalar(self, dtype: np.dtype[Any], value: int) -> Any:
        """A real scalar by value, a complex one by its address, as CBLAS takes them."""
        if dtype.kind == "f":
            return (ctypes.c_float if dtype.itemsize == 4 else ctypes.c_double)(value)
        return np.array([value], dtype).ctypes


def _onemkl() -> str:
    """The path of the library that picks kernels when it is loaded.

    :raises ImportError: if it is not installed.
    """
    try:
        files = importlib.metadata.files("mkl") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = [path for file in files if file.name.startswith("libmkl_rt.so") and (path := Path(str(file.locate()))).exists()]
    path = str(found[0].resolve()) if found else ctypes.util.find_library("mkl_rt")
    if path is None:
        raise ImportError("oneMKL is not installed: pip install mkl")
    return path


class Libxsmm(Matrices):
    """Batches of small matrix products by libxsmm, cores sharing the batch; float32 and float64."""

    packages = ("numpy",)

    def __init__(self) -> None:
        super().__init__()
        with tempfile.TemporaryDirectory(prefix="feinsum-libxsmm-") as directory:
            self._library = ctypes.CDLL(_libxsmm(Path(directory)))  # stays loaded without its file

    def versions(self) -> dict[str, str]:
        version = ctypes.c_char_p.in_dll(self._library, "version").value or b""
        return {**super().versions(), "libxsmm": version.decode()}

    def multiply(self, a: Values, b: Values, c: Values) -> None:
        (batch, m, k), n = a.shape, b.shape[2]
        block = _BLOCK if batch == 1 and m > _BLOCK else m
        shared_b = batch == 1
        self._call(a, b, c, (block, n, k), (m // block * batch, block * k, 0 if shared_b else k * n, block * n))
        if rest := m % block:  # of one long matrix
            self._call(a[:, m - rest :], b, c[:, m - rest :], (rest, n, k), (1, 0, 0, 0))

    def _call(self, a: Values, b: Values, c: Values, sizes: tuple[int, ...], steps: tuple[int, ...]) -> None:
        call = self._library[{"f": "multiply_f", "d": "multiply_d"}[a.dtype.char]]
        if call(*map(ctypes.c_int, sizes), a.ctypes, b.ctypes, c.ctypes, *map(ctypes.c_long, steps)):
            raise ValueError(f"libxsmm has no kernel for matrices of {sizes[0]} x {sizes[2]} x {sizes[1]}")


def _libxsmm(directory: Path) -> str:
    """A shared library made of libxsmm; the compiler looks in ``CPATH`` and ``LIBRARY_PATH``, too.

    :raises ImportError: if there is no compiler or no libxsmm.
    """
    source, library = Path(__file__).with_name("libxsmm.c"), directory / "libmultiply.so"
    command = [os.environ.get("CC", "cc"), "-O2", "-fopenmp", "-fPIC", "-shared", source, "-o", library]
    try:
        made = subprocess.run(
            [*command, "-lxsmm", "-lxsmmnoblas", "-lpthread", "-ldl", "-lm"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise ImportError(f"no C compiler for libxsmm: {error}") from None
    if made.returncode:
        first = (made.stderr.splitlines() or [""])[0]
        raise ImportError(f"libxsmm is not installed (apt install libxsmm-dev): {first}")
    return str(library)
