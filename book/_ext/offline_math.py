"""Put MathJax beside the pages, so that formulas render with no network."""

import importlib.util
import shutil
from pathlib import Path

# what tex-chtml.js loads at run time, out of the 15 MB that the package ships
PARTS = ["tex-chtml.js", "output/chtml/fonts/woff-v2", "input/tex/extensions", "a11y", "sre"]


def copy_mathjax(app, error):
    """Copy the needed parts of sphinx-mathjax-offline into ``_static/mathjax``."""
    if error or app.builder.format != "html":
        return
    (package,) = importlib.util.find_spec("sphinx-mathjax-offline").submodule_search_locations
    for part in PARTS:
        origin = Path(package, "static", "mathjax", part)
        target = Path(app.outdir, "_static", "mathjax", part)
        target.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_dir():
            shutil.copytree(origin, target, dirs_exist_ok=True)
        else:
            shutil.copy(origin, target)


def setup(app):
    """Register with Sphinx."""
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
