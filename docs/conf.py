"""Sphinx configuration: python -m sphinx -W docs site."""

from vicinal import __version__

project = "vicinal"
author = "The vicinal developers"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
html_theme = "furo"
html_title = "vicinal"
autodoc_default_options = {"members": True, "inherited-members": True, "show-inheritance": True}
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
autosummary_generate = True
templates_path = ["_templates"]


def _skip_inherited(app, what, name, member, skip, options):
    """Leave out what scikit-learn documents itself (its references lead nowhere here)."""
    module = getattr(getattr(member, "func", member), "__module__", "") or ""
    return True if module.startswith("sklearn") or (name.startswith("set_") and name.endswith("_request")) else None


def setup(app):
    """Register the hook."""
    app.connect("autodoc-skip-member", _skip_inherited)
