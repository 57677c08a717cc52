"""The pages "How do I add ..." are followed in a copy of the checkout: files and rows are written, and examples run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import DOC, blocks, copy_checkout, run

pytestmark = pytest.mark.slow

TABLES = {
    "feinsum/elementwise.py": ("EXPANDED: Final[Mapping[str, tuple[str, str]]] = {\n", "MATH: Final = _table(\n"),
    "feinsum/interop/host_adapter.py": ("_KNOWN = {\n",),
    "feinsum/languages/tensor/definitions.py": ("_ALL: Final = (\n",),
    "benchmarks/peers/__init__.py": ("PEERS: dict[str, type[Engine]] = {\n",),
}
"""Where the rows of a page go, in order; what is for another file is a new file, or is added to its end."""
CHECKS = {
    "array-libraries": "",
    "elementwise-functions": """
from feinsum.compile.executable import build_executable
from feinsum.compile.realize import realize
from feinsum.registry import find_space
from feinsum.validate import proof

cpu, space = fe.device("cpu"), find_space("vector_panels")
A, B = fe.array("A", ("N", 8), "float32"), fe.array("B", (8, 64), "float32")
e = fe.einsum("ik,kj->ij", A, B).then("exp10(v)*softplus(v)")
sizes = {"N": 67}
program = realize(e, sizes, space, space.default(space.problem(e, sizes, cpu.profile)), cpu.profile)
assert "exp10(((float" in program.source
executable = build_executable(cpu.context, program)
assert all(w.check(executable).ok for w in proof(e, e.resolve(sizes), cpu.queue, 1))
""",
    "peers": """
import feinsum as fe
from benchmarks.engines.problem import write_problem
from benchmarks.peers import PEERS

e = fe.einsum("ij,ej->ei", fe.array("D", (4, 5)), fe.array("u", ("E", 5)))
problem, peer = write_problem(".", e, {"E": 7}, side="cpu", device=fe.device("cpu")), PEERS["numpy_loops"]()
peer.take(problem)
peer.first()
assert problem.error(peer.outputs()) <= 1
""",
    "tensor-instructions": "",
}
"""What is tried besides the example of each page."""


@pytest.mark.parametrize("page", CHECKS)
def test_a_page_says_all_that_an_addition_needs(page: str, tmp_path: Path) -> None:
    """In few words."""
    path = DOC / "guides" / f"{page}.rst"
    assert len(path.read_text(encoding="utf-8").split()) <= 600
    if page == "array-libraries":
        pytest.importorskip("xarray")
    copy_checkout(tmp_path)
    tables = {file: iter(lines) for file, lines in TABLES.items()}
    for block in blocks(path):
        if block.file:
            add(tmp_path / block.file, block.text, next(tables.get(block.file, iter(())), ""))
    add(tmp_path / "try.py", CHECKS[page], "")
    run("python try.py", tmp_path, tmp_path)


def add(file: Path, text: str, table: str) -> None:
    """Write a file, or add to its end, or imports and rows to a table in it."""
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    after = before + text
    if table:
        assert before.count(table) == 1
        future, lines = "from __future__ import annotations\n", text.splitlines(keepends=True)
        rows = [line for line in lines if not line.startswith("from ")]
        imports = [line for line in lines if line not in rows]
        after = before.replace(future, future + "".join(imports)).replace(table, table + "".join(rows))
    file.write_text(after, encoding="utf-8")
