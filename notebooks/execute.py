"""Execute the notebooks and write their outputs: ``python notebooks/execute.py [NOTEBOOK ...]``, or ``make notebooks``.

Each runs in an empty directory and with an empty store, as on the machine of somebody who begins.  The peaks of the device
are those remembered on this machine, or measured first, which tells if the machine is busy.  What would differ from one
execution to the next without meaning anything is taken out of what is written: ids, times of day, directories, widgets that
no kernel stands behind any more.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
TIMEOUT_S = 300
"""For a cell, on a machine that is busy."""
_WIDGET = "application/vnd.jupyter.widget-view+json"
_ADDRESS = re.compile(r"(<[\w.]+(?: object)?) at 0x[0-9a-f]+>")


def execute(path: Path, directory: Path, environment: Mapping[str, str]) -> Any:
    """The notebook with fresh outputs.

    :param directory: where it runs.
    :param environment: set in its kernel besides the present environment.
    :raises nbclient.exceptions.CellExecutionError: if a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(directory)}},
    )
    client.execute(env={**os.environ, **environment, "PYTHONWARNINGS": "ignore", "PYDEVD_DISABLE_FILE_VALIDATION": "1"})
    return settled(notebook, directory)


def settled(notebook: Any, directory: Path) -> Any:
    """A notebook without what differs from one execution to the next and means nothing."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        for output in cell.get("outputs", []):
            if "data" in output:
                output.data.pop(_WIDGET, None)
                output.metadata = {}
                output.data = {kind: _settled_text(text, directory) for kind, text in output.data.items()}
            if "text" in output:
                output.text = _settled_text(output.text, directory)
    return notebook


def _settled_text(text: str, directory: Path) -> str:
    return _ADDRESS.sub(r"\1>", text.replace(str(directory), "~"))


def main() -> None:
    from feinsum import device

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(HERE.glob("*.ipynb")), help="all unless given")
    notebooks = parser.parse_args().notebooks
    _ = device("cpu").peaks
    for path in notebooks:
        print(path.name, flush=True)
        with tempfile.TemporaryDirectory() as home:
            nbformat.write(execute(path, Path(home), {"FEINSUM_DATABASE": f"{home}/records.sqlite"}), path)


if __name__ == "__main__":
    main()
