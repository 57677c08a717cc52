r"""The formula of a batched einsum, in LaTeX and in MathML, which browsers draw without a script.

out_{xei} = \sum_{r,j} J_{xre} D_{rij} u_{ej}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from feinsum.report.html import Markup, element

if TYPE_CHECKING:
    from feinsum.einsum import BatchedEinsum

_ROWS = 4
"""Outputs that are written out; of more, the last stands for those left out."""
_SPECIAL = re.compile(r"[\\{}$&#^_~%]")


def latex(e: BatchedEinsum) -> str:
    """The formula in LaTeX, in math mode, a line for each output.

    >>> from feinsum.einsum import array, einsum
    >>> print(latex(einsum("ij,ej->ei", array("D", (35, 35)), array("u_old", ("E", 35)))))
    \\mathrm{out}_{ei} = \\sum_{j} D_{ij}\\, \\mathrm{u\\_old}_{ej}
    """
    letters = ",".join(e.indexing.summed)
    sign = rf"\sum_{{{letters}}} " if letters else ""
    lines = []
    for row in _shown_formula(e):
        factors = r"\, ".join(_latex_term(name, indices) for name, indices in _formula_factors(e, row))
        lines.append((_latex_term(_formula_result(e, row), e.indexing.output), sign + factors))
    if len(lines) == 1:
        return " = ".join(lines[0])
    body = [f"{left} &= {right}" for left, right in lines]
    if e.b > _ROWS:
        body.insert(-1, r"&\;\;\vdots")
    return r"\begin{aligned} " + r" \\ ".join(body) + r" \end{aligned}"


def mathml(e: BatchedEinsum) -> Markup:
    """The formula in MathML, with the LaTeX as its annotation."""
    rows = [_mathml_row(e, row) for row in _shown_formula(e)]
    if e.b > _ROWS:
        rows.insert(-1, element("mtr", element("mtd"), element("mtd", element("mo", "⋮"))))
    drawn = Markup(f'<mtable displaystyle="true">{"".join(rows)}</mtable>') if len(rows) > 1 else rows[0]
    note = Markup(f'<annotation encoding="application/x-tex">{element("i", latex(e))[3:-4]}</annotation>')
    return element("div", Markup(f'<math displaystyle="true">{element("semantics", drawn, note)}</math>'), kind="formula")


def _mathml_row(e: BatchedEinsum, row: int) -> Markup:
    sum_: Sequence[Markup] = ()
    if e.indexing.summed:
        letters = [element("mi", letter) for letter in e.indexing.summed]
        listed = [part for letter in letters for part in (element("mo", ","), letter)][1:]
        sum_ = (element("munder", element("mo", "∑"), element("mrow", *listed)),)
    left = _mathml_term(_formula_result(e, row), e.indexing.output)
    right = [*sum_, *(_mathml_term(name, indices) for name, indices in _formula_factors(e, row))]
    if e.b == 1:
        return element("mrow", left, element("mo", "="), *right)
    cells = (element("mtd", cell) for cell in (left, element("mrow", element("mo", "="), *right)))
    return element("mtr", *cells)


def _formula_result(e: BatchedEinsum, row: int) -> str:
    """The output that a row is, or what its sum is called where one output is made of all rows."""
    return f"v{row}" if e.combines else e.output_names[row]


def _shown_formula(e: BatchedEinsum) -> list[int]:
    return list(range(e.b)) if e.b <= _ROWS else [*range(_ROWS - 1), e.b - 1]


def _formula_factors(e: BatchedEinsum, row: int) -> list[tuple[str, str]]:
    """The arrays of a row with their indices; those of one entry are multiplied like all others."""
    return [(a.name, at) for entry, at in zip(e.args[row], e.indexing.inputs, strict=True) for a in entry]


def _latex_term(name: str, indices: str) -> str:
    escaped = _SPECIAL.sub(lambda found: rf"\{found[0]}" if found[0] in "{}$&#_%" else r"\ ", name)
    symbol = name if len(name) == 1 and name.isalpha() else rf"\mathrm{{{escaped}}}"
    return f"{symbol}_{{{indices}}}" if indices else symbol


def _mathml_term(name: str, indices: str) -> Markup:
    symbol = element("mi", name)
    if not indices:
        return symbol
    return element("msub", symbol, element("mrow", *(element("mi", letter) for letter in indices)))
