"""How the site is built: python -m sphinx -W --keep-going -b html docs build/docs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]
os.environ["PYTHONPATH"] = str(HERE.parent)  # for the processes that run examples

import fastcmdp  # noqa: E402

project = "fastcmdp"
author = "The fastcmdp developers"
project_copyright = author
version = release = fastcmdp.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "reference",
    "docstrings",
]
exclude_patterns = ["gallery/*", "_ext/*", "auto_gallery/*.ipynb"]
suppress_warnings = [
    "config.cache",  # functions of the gallery's settings are no part of a cache
    "ref.python",  # words of prose in types, such as "policy", that are names of several attributes
]

# Markdown
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 4

# Docstrings
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_use_param = True
default_role = "code"

# The gallery
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"gallery[/\\]\w+\.py",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "parallel": 2,
    "min_reported_time": 1,
    "write_computation_times": False,
    "abort_on_example_error": False,
    "image_scrapers": ("matplotlib", "pictures.figures"),
    "matplotlib_animations": False,
    "reset_modules": ("pictures.reset",),
    "capture_repr": (),
    "default_thumb_file": None,
}

# Pages
html_theme = "pydata_sphinx_theme"
html_title = "fastcmdp"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"start": [], "glossary": []}
