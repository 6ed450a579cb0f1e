"""The documentation site. docs/build.sh calls Sphinx with this file, after Doxygen and TypeDoc did their parts in build/docs."""

import os
import sys
from pathlib import Path
from unittest.mock import MagicMock

BUILD = Path(os.environ["POOLGRAD_DOCS_BUILD"])

project = "poolgrad"
author = "The poolgrad authors"
copyright = "2026 The poolgrad authors, MIT licence"  # noqa: A001  # Sphinx's own name
release = version = "1.0.0"

extensions = ["myst_parser", "breathe", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["typedoc"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 7
breathe_projects = {"poolgrad": str(BUILD / "doxygen" / "xml")}
breathe_default_project = "poolgrad"
breathe_domain_by_extension = {"h": "c", "hpp": "cpp"}

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"show-inheritance": True}
python_use_unqualified_type_names = True


def _missing(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        return True
    return False


# What is not installed is stood in for. JAX is registered with while the module is imported, which Sphinx's own stand-in cannot take.
autodoc_mock_imports = [name for name in ("torch",) if _missing(name)]
if _missing("jax"):
    parts = ("numpy", "sharding", "interpreters", "extend", "extend.core", "experimental", "experimental.custom_partitioning")
    for name in ("jax", "jaxlib", *(f"jax.{part}" for part in parts)):
        sys.modules[name] = MagicMock()
    sys.modules["jax"].Array = type("Array", (), {"__module__": "jax"})

html_theme = "furo"
html_title = "poolgrad"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "static/icon.svg"
html_search_scorer = str(Path(__file__).parent / "search_scorer.js")
html_copy_source = False
html_show_sphinx = False
pygments_style = "default"  # of those with colours the one whose comments can be read: 4.5 to 1
pygments_dark_style = "native"
