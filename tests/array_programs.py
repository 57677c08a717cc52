"""Kernels as an array compiler emits them: one domain for each loop, inclusive bounds, offsets that the call tells.

They are written as pytato writes its own: each array expression is one instruction over loops named after the result, its
sums are inlined in the expressions around them, and arguments have ``offset=loopy.auto``.  What einsums are there to be
seen is what 35 plain products of arrays and 8 with arithmetic around the sum come to.
"""

from __future__ import annotations

import re

import loopy as lp

SHAPES: dict[str, tuple[int, ...]] = {
    "A": (6, 6), "B": (6, 6), "x": (6,), "y": (6,), "w": (70,), "M": (6, 6), "P": (6, 6), "u": (70, 6), "v": (70, 6),
    "J": (3, 3, 70), "D": (3, 6, 6), "V": (3, 70, 6), "R": (6, 4, 5), "F": (4, 70), "f": (4, 70, 5), "T": (6, 7, 8),
    "U": (8, 9), "Ms": (6, 6), "us": (70, 6), "uc": (70, 6),
}  # fmt: skip
TYPES = {"Ms": "float32", "us": "float32", "uc": "complex128"}
LENGTHS = dict(zip("eijklmnpqrxb", (70, 6, 6, 6, 6, 5, 9, 7, 8, 3, 3, 4), strict=True))
"""The length of a loop by the first letter of its name."""

PRODUCTS: dict[str, tuple[str, str]] = {
    "matrix times vector": ("i", "sum(j, A[i, j]*x[j])"),
    "vector times matrix": ("j", "sum(i, x[i]*A[i, j])"),
    "matrix product": ("i, k", "sum(j, A[i, j]*B[j, k])"),
    "inner product": ("", "sum(i, x[i]*y[i])"),
    "outer product": ("i, j", "x[i]*y[j]"),
    "trace": ("", "sum(i, A[i, i])"),
    "transpose": ("i, j", "A[j, i]"),
    "elementwise product": ("i, j", "A[i, j]*B[i, j]"),
    "sum of rows": ("i", "sum(j, A[i, j])"),
    "sum of all": ("", "sum((i, j), A[i, j])"),
    "three matrices": ("i, l", "sum((j, k), A[i, j]*B[j, k]*A[k, l])"),
    "mass": ("e, i", "sum(j, M[i, j]*u[e, j])"),
    "mass transposed": ("e, i", "sum(j, M[j, i]*u[e, j])"),
    "gradient": ("x, e, i", "sum((r, j), J[x, r, e]*D[r, i, j]*u[e, j])"),
    "divergence": ("e, i", "sum((x, r, j), J[x, r, e]*D[r, i, j]*V[x, e, j])"),
    "lift": ("e, i", "sum((b, m), R[i, b, m]*F[b, e]*f[b, e, m])"),
    "scaled by element": ("e, i", "sum(j, w[e]*M[i, j]*u[e, j])"),
    "bilinear": ("e", "sum((i, j), u[e, i]*M[i, j]*v[e, j])"),
    "inner products": ("e", "sum(i, u[e, i]*v[e, i])"),
    "squares": ("e", "sum(i, u[e, i]*u[e, i])"),
    "derivatives": ("r, e, i", "sum(j, D[r, i, j]*u[e, j])"),
    "tensor": ("i, p, n", "sum(q, T[i, p, q]*U[q, n])"),
    "tensor transposed": ("n, i, p", "sum(q, T[i, p, q]*U[q, n])"),
    "sum of fields": ("e, i", "sum(j, M[i, j]*(u[e, j] + v[e, j]))"),
    "difference of fields": ("e, i", "sum(j, (M[i, j] + (-1)*P[i, j])*(u[e, j] + (-1)*v[e, j]))"),
    "scaled field": ("e, i", "sum(j, M[i, j]*(2*u[e, j]))"),
    "product of fields": ("e, i", "sum(j, M[i, j]*(u[e, j]*v[e, j]))"),
    "sum of matrices": ("e, i", "sum(j, (M[i, j] + P[i, j])*u[e, j])"),
    "function of a field": ("e, i", "sum(j, M[i, j]*exp(u[e, j]))"),
    "negative matrix": ("e, i", "sum(j, ((-1)*M[i, j])*u[e, j])"),
    "two scales": ("e, i", "sum(j, (0.5*M[i, j])*(u[e, j] + 3*v[e, j]))"),
    "backwards": ("e, i", "sum(j, M[i, j]*u[69 - e, j])"),
    "single precision": ("e, i", "sum(j, Ms[i, j]*us[e, j])"),
    "complex": ("e, i", "sum(j, M[i, j]*uc[e, j])"),
    "sum of a product": ("e", "sum(j, u[e, j]*v[e, j]*w[e])"),
}

_APPLY = "sum(j, M[i, j]*u[e, j])"
FUSED: dict[str, tuple[str, str]] = {
    "a number times": ("e, i", f"3.5*{_APPLY}"),
    "minus": ("e, i", f"(-1)*{_APPLY}"),
    "divided": ("e, i", f"{_APPLY} / 3.0"),
    "added to": ("e, i", f"{_APPLY} + v[e, i]"),
    "a function of": ("e, i", f"exp({_APPLY})"),
    "two sums": ("e, i", f"{_APPLY} + sum(k, P[i, k]*v[e, k])"),
    "a chain": ("e, i", "sum(k, P[i, k]*sum(j, M[k, j]*u[e, j]))"),
    "a chain with a term": ("e, i", "sum(k, P[i, k]*(sum(j, M[k, j]*u[e, j]) + v[e, k]))"),
}
"""Of these the last is not seen: a sum of a sum and an array, under a sum, is no einsum."""
PROGRAMS = PRODUCTS | FUSED


def array_program(name: str, *, bounds: bool = False) -> lp.TranslationUnit:
    """The kernel of one of :data:`PROGRAMS`.

    :param bounds: whether sums end at temporaries that the kernel sets, as newer versions write them.
    """
    at, value = PROGRAMS[name]
    inames = sorted(set(re.findall(r"\b[eijklmnpqrxb]\b(?!\[)", f"{at} {value}")))
    output = [iname for iname in at.split(", ") if iname]
    summed = [iname for iname in inames if iname not in output]
    domains, lines, temporaries = [], [], []
    for iname in inames:
        if bounds and iname in summed:
            domains.append(f"[{iname}_end] -> {{ [{iname}] : 0 <= {iname} < {iname}_end }}")
            lines.append(f"{iname}_end = {LENGTHS[iname]} {{id=set_{iname}, inames={':'.join(output)}}}")
            temporaries.append(lp.TemporaryVariable(f"{iname}_end", "int64", shape=()))
        else:
            domains.append(f"{{ [{iname}] : 0 <= {iname} <= {LENGTHS[iname] - 1} }}")
    wait = f", dep={':'.join(f'set_{iname}' for iname in summed)}" if bounds and summed else ""
    lines.append(f"out{f'[{at}]' if at else ''} = {value} {{id=store{wait}}}")
    used = [array for array in SHAPES if re.search(rf"\b{array}\[", value)]
    dtype = "float32" if "us" in used else "complex128" if "uc" in used else "float64"
    arguments = [lp.GlobalArg(a, TYPES.get(a, "float64"), shape=SHAPES[a], offset=lp.auto) for a in used]
    shape = tuple(LENGTHS[iname] for iname in output)
    result = lp.GlobalArg("out", dtype, shape=shape, is_input=False)
    return lp.make_kernel(
        domains or "{ : }", lines, [*arguments, result, *temporaries], target=lp.PyOpenCLTarget(), lang_version=(2018, 2)
    )
