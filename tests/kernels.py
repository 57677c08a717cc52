"""Loopy kernels for the tests of matching: short to write, and run on the CPU device."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import loopy as lp
import numpy as np

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
    """The arrays that a kernel writes, computed on the CPU device from those that it uses."""
    t_unit = lp.set_options(lp.remove_unused_arguments(t_unit), return_dict=True)
    queue = device("cpu").queue
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyopencl warns of any text in the log of a successful build
        _, outputs = t_unit.executor(queue.context)(queue, **inputs)
    return dict(outputs)
