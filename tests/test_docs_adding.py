"""The pages "How do I add ..." are followed in a copy of the checkout: files and rows are written, and examples run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import DOC, blocks, copy_checkout, run

pytestmark = pytest.mark.slow

TABLES = {
    "feinsum/interop/arrays.py": "_KNOWN = {\n",
    "feinsum/languages/tensor/definitions.py": "_ALL: Final = (\n",
    "benchmarks/peers/__init__.py": "PEERS: dict[str, type[Engine]] = {\n",
}
"""Where rows go; what is for another file is a new file, or is added to its end."""
CHECKS = {
    "array-libraries": "python try.py",
    "tensor-instructions": "python try.py",
    "peers": """python -c '
import feinsum as fe
from benchmarks.engines.problem import write_problem
from benchmarks.peers import PEERS
e = fe.einsum("ij,ej->ei", fe.array("D", (4, 5)), fe.array("u", ("E", 5)))
problem, peer = write_problem(".", e, {"E": 7}, side="cpu", device=fe.device("cpu")), PEERS["numpy_loops"]()
assert problem.error(peer.prepare(problem, problem.inputs())(problem.inputs())) <= 1
'""",
}
"""By what command each page is tried."""


@pytest.mark.parametrize("page", CHECKS)
def test_a_page_says_all_that_an_addition_needs(page: str, tmp_path: Path) -> None:
    """It has at most 500 words, besides its heading."""
    path = DOC / "guides" / f"{page}.rst"
    assert len(path.read_text(encoding="utf-8").split()) <= 510
    if page == "array-libraries":
        pytest.importorskip("xarray")
    copy_checkout(tmp_path)
    for block in blocks(path):
        if block.file:
            add(tmp_path / block.file, block.text, TABLES.get(block.file, ""))
    run(CHECKS[page], tmp_path, tmp_path)


def add(file: Path, text: str, table: str) -> None:
    """Write a file, or add imports and a row of a table to it."""
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    if table:
        assert before.count(table) == 1
        lines = text.splitlines(keepends=True)
        future = "from __future__ import annotations\n"
        imports = "".join(line for line in lines if line.startswith("from "))
        rows = "".join(line for line in lines if not line.startswith("from "))
        after = before.replace(future, future + imports).replace(table, table + rows)
    else:
        after = before + text
    file.write_text(after, encoding="utf-8")
