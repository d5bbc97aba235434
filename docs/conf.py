"""Sphinx configuration: python -m sphinx -W docs site."""

from vicinal import __version__

project = "vicinal"
author = "The vicinal developers"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
html_theme = "furo"
html_title = "vicinal"
autodoc_default_options = {"members": True, "inherited-members": True, "show-inheritance": True}
autodoc_typehints = "none"
napoleon_use_rtype = False
autosummary_generate = True
suppress_warnings = ["myst.xref_missing"]
