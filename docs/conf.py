"""Sphinx configuration. Build the site with: pip install -e ".[docs]" && python -m sphinx -W docs site."""

import sys
from pathlib import Path

import sphinx.ext.autosummary

from vicinal import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "vicinal"
author = "The vicinal developers"
copyright = "the vicinal developers"
release = version = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "executed",
    "options",
]
html_math_renderer = "mathml"
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "examples", "**/.ipynb_checkpoints"]
templates_path = ["_templates"]

pygments_dark_style = "monokai"

html_theme = "furo"
html_title = f"vicinal {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e6e", "color-brand-content": "#0b6e6e"},
    "dark_css_variables": {"color-brand-primary": "#5cc8c2", "color-brand-content": "#5cc8c2"},
}

autodoc_default_options = {"members": True, "inherited-members": True}
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
autosummary_generate = True
# A summary ends with its first sentence; these end no sentence.
sphinx.ext.autosummary.WELL_KNOWN_ABBREVIATIONS += ("sec.", "Eq.", "Fig.")

# Every example is executed when the site is built, with data that it generates or that scikit-learn includes.
sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "subsection_order": [f"examples/{name}" for name in ("see", "search", "outliers", "densities", "groups")],
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("vicinal",),
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "remove_config_comments": True,
    "plot_gallery": True,
    "capture_repr": (),  # only what an example prints is shown, and not the value of its last line
    "thumbnail_size": (480, 320),
    "min_reported_time": 1e9,  # the time depends on the machine, and a site should not
}
suppress_warnings = ["config.cache"]


def _skip_inherited(app, what, name, member, skip, options):
    """Leave out members that scikit-learn documents itself (its references lead nowhere here), and those of all tuples."""
    module = getattr(getattr(member, "func", member), "__module__", "") or ""
    of_sklearn = module.startswith("sklearn") or (name.startswith("set_") and name.endswith("_request"))
    of_tuples = type(member).__name__ == "_tuplegetter" or getattr(tuple, name, None) is member
    return True if of_sklearn or of_tuples else None


def setup(app):
    """Register the hook."""
    app.connect("autodoc-skip-member", _skip_inherited)
