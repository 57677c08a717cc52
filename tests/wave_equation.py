"""A discontinuous-Galerkin right-hand side of the acoustic wave equation as one loopy kernel of three parts.

    gradient      g[x, e, i] = Σ_rj  (J[x, r, e] k[e])  D[r, i, j]  (p1[e, j] + 2 p2[e, j])      xre,rij,ej->xei
    divergence    d[e, i]    = Σ_xrj  J[x, r, e]        D[r, i, j]  (g[x, e, j] + v[x, e, j])    xre,rij,xej->ei
    lift          l[e, i]    = Σ_fj   R[i, f, j]  F[f, e]  (jump[f, e, j] Z[f, e, j])            ifj,fe,fej->ei

The operands are substitution rules, as a compiler would write them: a metric term J times a coefficient k of the material,
a combination of the pressures of two stages, a jump over faces times an impedance.  Global barriers stand between the
parts, since each reads everywhere what the one before wrote, or is to be timed by itself.
"""

from __future__ import annotations

from math import comb
from typing import Any

import loopy as lp
import numpy as np

from feinsum.einsum import BatchedEinsum, array, einsum

FACES = 4
"""A tetrahedron has four."""

PARTS = ("gradient", "divergence", "lift")
"""The names of the instructions, in the order in which they run."""

_RULES = """
metric_material(x, r, e) := J[x, r, e]*k[e]
metric(x, r, e) := J[x, r, e]
derivative(r, i, j) := D[r, i, j]
pressure(e, j) := p1[e, j] + 2*p2[e, j]
velocity(x, e, j) := g[x, e, j] + v[x, e, j]
lifting(i, f, j) := R[i, f, j]
face_metric(f, e) := F[f, e]
flux(f, e, j) := jump[f, e, j]*Z[f, e, j]
"""

_INSTRUCTIONS = """
g[x0, e0, i0] = sum((r0, j0), {metric_material}*{derivative0}*{pressure}) {{id=gradient}}
... gbarrier {{id=after_gradient, dep=gradient}}
d[e1, i1] = sum((x1, r1, j1), {metric}*{derivative1}*{velocity}) {{id=divergence, dep=after_gradient}}
... gbarrier {{id=after_divergence, dep=divergence}}
l[e2, i2] = sum((f2, j2), {lifting}*{face_metric}*{flux}) {{id=lift, dep=after_divergence}}
"""

_INVOKED = {
    "metric_material": "metric_material(x0, r0, e0)",
    "derivative0": "derivative(r0, i0, j0)",
    "pressure": "pressure(e0, j0)",
    "metric": "metric(x1, r1, e1)",
    "derivative1": "derivative(r1, i1, j1)",
    "velocity": "velocity(x1, e1, j1)",
    "lifting": "lifting(i2, f2, j2)",
    "face_metric": "face_metric(f2, e2)",
    "flux": "flux(f2, e2, j2)",
}

_EMITTED = {
    "metric_material": "J[x0, r0, e0]*k[e0]",
    "derivative0": "D[r0, i0, j0]",
    "pressure": "(p1[e0, j0] + 2*p2[e0, j0])",
    "metric": "J[x1, r1, e1]",
    "derivative1": "D[r1, i1, j1]",
    "velocity": "(g[x1, e1, j1] + v[x1, e1, j1])",
    "lifting": "R[i2, f2, j2]",
    "face_metric": "F[f2, e2]",
    "flux": "jump[f2, e2, j2]*Z[f2, e2, j2]",
}


def nodes(order: int) -> tuple[int, int]:
    """The nodes of a tetrahedron and of one of its faces: 10 and 6 at order 2, 20 and 10 at order 3."""
    return comb(order + 3, 3), comb(order + 2, 2)


def _shapes(order: int, elements: Any) -> dict[str, tuple[Any, ...]]:
    volume, face = nodes(order)
    return {
        "J": (3, 3, elements),
        "k": (elements,),
        "D": (3, volume, volume),
        "p1": (elements, volume),
        "p2": (elements, volume),
        "v": (3, elements, volume),
        "R": (volume, FACES, face),
        "F": (FACES, elements),
        "jump": (FACES, elements, face),
        "Z": (FACES, elements, face),
        "g": (3, elements, volume),
        "d": (elements, volume),
        "l": (elements, volume),
    }


def wave_equation(order: int = 3, dtype: Any = "float64", rules: bool = True) -> lp.TranslationUnit:
    """The kernel, for any number of elements E.

    :param rules: whether operands are substitution rules; without, they are the plain reads and the arithmetic of an
        array compiler, for :func:`feinsum.extract_operands` to take apart.
    """
    volume, face = nodes(order)
    return lp.make_kernel(
        [
            f"[E] -> {{[x0, r0, e0, i0, j0]: 0 <= x0, r0 < 3 and 0 <= e0 < E and 0 <= i0, j0 < {volume}}}",
            f"[E] -> {{[x1, r1, e1, i1, j1]: 0 <= x1, r1 < 3 and 0 <= e1 < E and 0 <= i1, j1 < {volume}}}",
            f"[E] -> {{[f2, e2, i2, j2]: 0 <= f2 < {FACES} and 0 <= e2 < E and 0 <= i2 < {volume} and 0 <= j2 < {face}}}",
        ],
        (_RULES if rules else "") + _INSTRUCTIONS.format(**(_INVOKED if rules else _EMITTED)),
        [
            *(
                lp.GlobalArg(name, dtype=dtype, shape=shape, is_input=name not in ("g", "d", "l"))
                for name, shape in _shapes(order, "E").items()
            ),
            lp.ValueArg("E", dtype="int32"),
        ],
        name="wave_equation",
        target=lp.PyOpenCLTarget(),
        assumptions="E >= 1",
        lang_version=(2018, 2),
    )


def wave_einsums(order: int = 3, dtype: Any = "float64") -> dict[str, BatchedEinsum]:
    """The einsum of each part; an operand that is no function of arrays at one index tuple has the name of its rule."""
    made = {name: array(name, shape, dtype) for name, shape in _shapes(order, "E").items()}
    metric_material = array("metric_material", (3, 3, "E"), dtype)
    return {
        "gradient": einsum("xre,rij,ej->xei", metric_material, made["D"], (made["p1"], made["p2"])),
        "divergence": einsum("xre,rij,xej->ei", made["J"], made["D"], (made["g"], made["v"])),
        "lift": einsum("ifj,fe,fej->ei", made["R"], made["F"], (made["jump"], made["Z"])),
    }


def wave_data(elements: int, order: int = 3, dtype: Any = "float64", seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs of mixed sign."""
    rng = np.random.default_rng(seed)
    shapes = _shapes(order, elements)
    return {name: rng.uniform(-1, 1, shapes[name]).astype(dtype) for name in shapes if name not in ("g", "d", "l")}


def wave_reference(data: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """What the kernel computes, by numpy."""
    J, D = data["J"], data["D"]
    gradient = np.einsum("xre,e,rij,ej->xei", J, data["k"], D, data["p1"] + 2 * data["p2"], optimize=True)
    return {
        "g": gradient,
        "d": np.einsum("xre,rij,xej->ei", J, D, gradient + data["v"], optimize=True),
        "l": np.einsum("ifj,fe,fej->ei", data["R"], data["F"], data["jump"] * data["Z"], optimize=True),
    }
