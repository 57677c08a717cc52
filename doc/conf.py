"""How Sphinx makes the pages: `make doc`.  Nothing is fetched, and a warning is an error."""

import filecmp
import gc
import importlib.util
import shutil
import sys
from pathlib import Path

from feinsum import __version__

HERE = Path(__file__).parent
gc.set_threshold(100_000, 20, 20)  # trees of pages live on; looking through them takes a tenth of the time
sys.path[:0] = [str(HERE), str(HERE.parent)]  # where `directives` and `benchmarks` are

# Sphinx takes no pages from elsewhere.  The notebooks come with their outputs and are not executed.
(HERE / "notebooks").mkdir(exist_ok=True)
for notebook in (HERE.parent / "notebooks").glob("*.ipynb"):
    copy = HERE / "notebooks" / notebook.name
    if not copy.exists() or not filecmp.cmp(notebook, copy, shallow=False):
        shutil.copy(notebook, copy)

project = "feinsum"
author = "feinsum developers"
copyright = "2026, feinsum developers"
version = release = __version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx_copybutton", "myst_nb", "directives"]
exclude_patterns = ["_*"]
default_role = "code"
smartquotes_action = "D"  # dashes; quotes stay what they are in code
highlight_language = "default"  # Python where it is, and plain where it is not
show_warning_types = True

nb_execution_mode = "off"

# The operators of feinsum.torch and feinsum.jax are shown where these are not installed, too.
autodoc_mock_imports = [name for name in ("jax", "torch") if importlib.util.find_spec(name) is None]
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
add_module_names = False
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"feinsum {version}"
html_static_path = ["_static"]
html_css_files = ["feinsum.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
