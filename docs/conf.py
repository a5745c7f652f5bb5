"""Settings of Sphinx. `sphinx-build docs FOLDER`, in the root of a checkout, builds the site into FOLDER.

`-D iocourse_lite=FOLDER` adds the pages that docs/lite/build.py has made, and links to them.
"""

import importlib.util
import os
import sys
from pathlib import Path

from sphinx.errors import ConfigError

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]  # the extension, and the library of this checkout
os.environ.setdefault("TRITON_INTERPRET", "1")
# JupyterLab installs a URL checker, which takes two seconds to import and is not needed here.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

from iocourse import __version__  # noqa: E402
from iocourse.doctor import install_command  # noqa: E402
from iocourse.doctor.triton_missing import missing  # noqa: E402

project = "iocourse"
author = "The iocourse authors"
copyright = "the iocourse authors; text and figures CC BY 4.0, code MIT"
version = release = __version__
language = "en"
smartquotes = False  # C'' is a name
default_role = "code"  # docstrings write `names` as Markdown does
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.githubpages",  # writes .nojekyll; otherwise GitHub Pages omits folders that begin with _
    "site_extension",
]
templates_path = ["_templates"]

# ---- lessons ---------------------------------------------------------------------------------------------
nb_execution_mode = "off"  # outputs are those that python -m tools.build saved
nb_code_prompt_show = "Show the set-up"  # the only cells that are folded
nb_code_prompt_hide = "Hide the set-up"
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# ---- formulas: MathJax is served from the site -----------------------------------------------------------
mathjax_path = "mathjax/tex-chtml.js"
mathjax_package = importlib.util.find_spec("sphinx-mathjax-offline")
if mathjax_package is None or mathjax_package.origin is None:
    line = install_command.command("sphinx-mathjax-offline>=0.0.2")
    raise ConfigError(f"MathJax is not installed here: {line}")
# Parts of MathJax that no page needs.
exclude_patterns = [
    f"mathjax/{part}" for part in ("*svg*", "*mml*", "*full*", "input/asciimath", "input/mml")
]

# ---- the library -----------------------------------------------------------------------------------------
autodoc_mock_imports = list(missing())
# The page of a module lists the names in its __all__, including imported ones.
autosummary_ignore_module_all = False
autosummary_imported_members = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# ---- theme -----------------------------------------------------------------------------------------------
html_theme = "furo"
html_title = "iocourse"
html_static_path = ["_static", "explore/static", str(Path(mathjax_package.origin).parent / "static")]
html_css_files = ["site.css"]
html_js_files = ["enlarge.js", "copy.js"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": False}
