"""Loopy kernels for the tests of matching: short to write, and run on the CPU device."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import loopy as lp
import numpy as np
from simulated_units import UNOPTIMISED

from feinsum.devices import device

RULES = """
D_(a, b) := D[a, b]
u_(a, b) := u[a, b]
v_(a, b) := v[a, b]
x_(a) := x[a]
w_(a) := w[a]
"""
"""The substitution rules that most kernels here use, one for each array of :data:`ARRAYS` that is read."""

ARRAYS: dict[str, tuple[Any, ...]] = {
    "D": (4, 4),
    "u": ("n", 4),
    "v": ("n", 4),
    "x": (4,),
    "w": ("n",),
    "y": ("n", 4),
    "z": ("n", 4),
    "s": (),
    "t": ("n",),
}

DOMAIN = "[n] -> {[e, i, j, k]: 0 <= e < n and 0 <= i, j, k < 4}"
"""``e`` runs over elements, of which there are n; ``i``, ``j`` and ``k`` over the four nodes of one."""


def make_kernel(
    text: str,
    domain: str | Sequence[str] = DOMAIN,
    rules: str | Sequence[lp.SubstitutionRule] = RULES,
    arrays: dict[str, tuple[Any, ...]] | None = None,
    dtypes: dict[str, Any] | None = None,
    more: Sequence[Any] = (),
    **options: Any,
) -> lp.TranslationUnit:
    """A kernel of some instructions; arrays are those of :data:`ARRAYS` and `arrays`, float64 unless `dtypes` says else.

    :param more: further arguments and temporaries.
    """
    known = {**ARRAYS, **(arrays or {})}
    kinds = dict.fromkeys(known, "float64") | (dtypes or {})
    arguments = [lp.GlobalArg(name, dtype=kinds[name], shape=shape) for name, shape in known.items()]
    return lp.make_kernel(
        [domain] if isinstance(domain, str) else list(domain),
        [rules + text] if isinstance(rules, str) else [*rules, text],
        [*arguments, *more, lp.ValueArg("n", dtype="int32"), ...],
        target=lp.PyOpenCLTarget(),
        lang_version=(2018, 2),
        **options,
    )


def run(t_unit: lp.TranslationUnit, **inputs: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays that a kernel writes, computed on the CPU device from those that it uses.

    It is built as :data:`simulated_units.UNOPTIMISED`, once for several calls in a row.  loopy keeps nothing of it on disk,
    which would take a quarter of the time again.
    """
    with lp.CacheMode(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyopencl warns of any text in the log of a successful build
        _, outputs = _executor(_Same(t_unit))(device("cpu").queue, **inputs)
    return dict(outputs)


@dataclass(frozen=True, eq=False)
class _Same:
    """A kernel that equals itself alone."""

    t_unit: lp.TranslationUnit

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.t_unit is other.t_unit

    def __hash__(self) -> int:
        return id(self.t_unit)


@lru_cache(maxsize=2)
def _executor(same: _Same) -> Any:
    t_unit = lp.remove_unused_arguments(same.t_unit)
    return lp.set_options(t_unit, return_dict=True, build_options=list(UNOPTIMISED)).executor(device("cpu").context)
