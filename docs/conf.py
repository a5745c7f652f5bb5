"""Sphinx's settings. `iocourse site` prepares the sources and builds with them; docs/ alone is no site."""

import re
import sys
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from iocourse import __version__
from iocourse.doctor.needs_triton import missing

# JupyterLab brings a checker of web addresses, which whoever reads notebooks waits two seconds for. There are
# none to be checked here.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

project = "iocourse"
author = "The iocourse authors"
copyright = "the iocourse authors; text and figures CC BY 4.0, code MIT"
version = release = __version__
language = "en"
smartquotes = False  # C'' is a name

MARKS = re.compile(
    r"``.+?``|`[^`]+`|^ *>>> .*$|[*|]", re.MULTILINE
)  # names, examples, and what RST would read

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["made"]

# ---- lessons ---------------------------------------------------------------------------------------------
nb_execution_mode = "off"  # outputs are those that python -m tools.build saved
nb_code_prompt_show = "Show the set-up"  # all that is folded
nb_code_prompt_hide = "Hide the set-up"
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# ---- formulas: from the site itself ----------------------------------------------------------------------
mathjax_path = "mathjax/tex-chtml.js"

# ---- the library -----------------------------------------------------------------------------------------
autodoc_mock_imports = list(missing())
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
FRIENDS = {
    "Tiles": "iocourse.kernels",
    "bytes": "",
    "words": "",
}  # name of a type: the one room that it links in
default_role = "code"  # docstrings write `names` as Markdown does

# ---- looks -----------------------------------------------------------------------------------------------
html_theme = "furo"
html_title = "iocourse"
html_static_path = ["_static", "explore/static"]
html_css_files = ["site.css"]
html_js_files = ["enlarge.js", "copy.js"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options: dict[str, Any] = {"navigation_with_keys": False}


def numbered_as_written(app: Sphinx, doctree: nodes.document) -> None:
    r"""Display formulas as they are: Sphinx puts those with \\ into an environment that allows no \tag."""
    for block in doctree.findall(nodes.math_block):
        if not block.get("no-wrap", block.get("nowrap")):
            formula = block.astext()
            block.children = [nodes.Text(rf"\[{formula}\]")]
            block["no-wrap"] = block["nowrap"] = True


def without_false_friends(app: Sphinx, doctree: nodes.document) -> None:
    """Types that have the name of something else: Sphinx links a name to whatever ends with it."""
    for link in list(doctree.findall(addnodes.pending_xref)):
        room = FRIENDS.get(link.get("reftarget", ""))
        if room is not None and link.get("py:module") != room:
            link.replace_self(link.children)


def as_plain_words(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain words and `names`: a bar or a star outside of names means itself, in RST too.

    What a property says begins after an empty comment, or napoleon takes the words before a colon for a type.
    """
    text = "\n".join(lines)
    lines[:] = MARKS.sub(lambda mark: mark[0] if mark[0][0] in "`>" else f"\\{mark[0]}", text).split("\n")
    if what in ("property", "attribute"):
        lines[:0] = ["..", ""]


def without_field_numbers(
    app: Sphinx, what: str, name: str, found: Any, skip: bool, options: Any
) -> bool | None:
    """A named tuple's fields stand in its signature; of them Python says "Alias for field number 0"."""
    return True if (getattr(found, "__doc__", "") or "").startswith("Alias for field number") else None


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", without_field_numbers)
    app.connect("autodoc-process-docstring", as_plain_words, priority=400)  # before napoleon
    app.connect("doctree-read", numbered_as_written)
    app.connect("doctree-read", without_false_friends)
