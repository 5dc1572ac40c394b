"""What several test files share: the executed chapters and the built book."""

import pytest

from book import build


@pytest.fixture(scope="session")
def outcomes():
    """Every chapter, executed once; `make book` reuses the same files."""
    return build.execute_chapters(build.chapters())


@pytest.fixture(scope="session")
def pages(outcomes):
    """The built book's HTML pages, the redirect at the top left out."""
    html = build.build()
    found = sorted(path for path in html.rglob("*.html") if "_static" not in path.parts)
    return [path for path in found if path != html / "index.html"]
