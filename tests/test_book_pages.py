"""Every built page in a headless Chromium with no network, at a desk's width and a phone's."""

import shutil

import pytest
from playwright.sync_api import sync_playwright

from book import build

WIDTHS = (390, 1280)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OFFLINE = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

# what a reader would see wrong; run once MathJax has typeset the page
INSPECT = r"""async () => {
  if (window.MathJax?.startup?.promise) await MathJax.startup.promise;
  const all = (selector) => [...document.querySelectorAll(selector)];
  all('details').forEach((e) => { e.open = true; });  // folded proofs, code and solutions
  all('.toggle-hidden').forEach((e) => e.classList.remove('toggle-hidden'));
  const inline = all("mjx-container:not([display='true'])");
  const raw = all('.math').filter((e) => !e.querySelector('mjx-container'));
  const text = document.querySelector('article')?.innerText ?? '';
  return {
    untypeset: raw.map((e) => e.textContent),
    delimiters: text.match(/\\[()\[\]]|\$\$/g) ?? [],
    errors: all('mjx-merror').map((e) => e.getAttribute('data-mjx-error') ?? e.textContent),
    formulas: all('mjx-container').length,
    unnamed: all('article img').filter((e) => !e.alt.trim()).map((e) => e.src),
    broken: all('img').filter((e) => e.complete && !e.naturalWidth).map((e) => e.src),
    cut: inline.filter(sticksOutOfItsLine).map((e) => e.closest('.math')?.textContent.slice(0, 80)),
    wide: all('body *').filter(sticksOut).slice(0, 5).map((e) => e.outerHTML.slice(0, 200)),
    width: document.scrollingElement.scrollWidth,
  };
  function sticksOutOfItsLine(e) {
    const line = e.closest('p, li, td, th, dt, dd, div');
    return e.getBoundingClientRect().right > line.getBoundingClientRect().right + 1;
  }
  function sticksOut(e) {
    if (e.getBoundingClientRect().right <= innerWidth + 1) return false;
    for (let p = e; p; p = p.parentElement)
      if (getComputedStyle(p).overflowX !== 'visible' && p !== document.body) return false;
    return true;
  }
}"""


@pytest.fixture(scope="module")
def browser(pages):
    """A headless Chromium, started once the pages are built; its absence is a failure."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.fail(
            f"none of {', '.join(BROWSERS)} is installed (Debian: apt-get install chromium)"
        )
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=path, args=list(OFFLINE))


def test_pages_look_right_with_no_network(browser, pages):
    assert len(pages) > len(build.chapters())
    problems = [
        f"{path.relative_to(build.HTML)}: {problem}"
        for path in pages
        for problem in inspect(browser, path)
    ]
    assert not problems, "\n".join(problems)


def inspect(browser, path):
    """Open one page on a phone, then widen it to a desk's screen; return what is wrong with it."""
    problems = []
    page = browser.new_page(viewport={"width": WIDTHS[0], "height": 900})

    def only_files(route):
        if route.request.url.startswith(("file:", "data:", "blob:")):
            route.continue_()
        else:
            problems.append(f"asks the network for {route.request.url}")
            route.abort()

    page.route("**/*", only_files)
    page.on("pageerror", lambda error: problems.append(f"script error: {error}"))
    page.on("console", lambda m: m.type == "error" and problems.append(f"console: {m.text}"))
    page.on("requestfailed", lambda request: problems.append(f"not found: {request.url}"))
    page.goto(path.as_uri(), wait_until="load")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        seen = page.evaluate(INSPECT)
        for kind in ("untypeset", "delimiters", "errors", "cut", "unnamed", "broken"):
            problems += [f"{kind} at {width} px: {item}" for item in seen[kind]]
        if seen["width"] > width:
            problems.append(f"{seen['width']} px wide on a screen of {width} px: {seen['wide']}")
    page.close()
    return problems


def test_inspection_sees_what_it_is_for(browser, tmp_path):
    """The checks above can fail: a page with one fault of each kind is caught on all counts."""
    page = tmp_path / "page.html"
    page.write_text(
        r"""<article><span class="math">\(x\)</span><img src="absent.png">
        <script src="https://example.invalid/script.js"></script><script>undefinedName</script>
        <mjx-merror data-mjx-error="no macro"></mjx-merror>
        <p><span class="math">a<mjx-container style="padding:250px">y</mjx-container></span></p>
        <div style="width:600px">wide</div>"""
    )
    found = "\n".join(inspect(browser, page))
    for expected in (
        "asks the network for https://example.invalid",
        "script error",
        "console",
        "not found",
        "untypeset at 390 px",
        "delimiters at 1280 px",
        "errors at 390 px: no macro",
        "cut at 390 px: ay",
        "unnamed",
        "broken",
        "px wide on a screen of 390 px",
    ):
        assert expected in found, f"{expected!r} not in:\n{found}"


def test_the_front_door_opens_the_book(browser, pages):
    page = browser.new_page()
    page.goto((build.HTML / "index.html").as_uri())
    page.wait_for_url("**/book/index.html")
    page.close()


def test_a_second_build_leaves_the_pages_alone(pages):
    before = build.STAMP.stat().st_mtime_ns
    build.build()
    assert build.STAMP.stat().st_mtime_ns == before


def test_ledger_page_typesets_every_claim(browser, pages, outcomes):
    claims = [claim for outcome in outcomes.values() for claim in outcome.claims()]
    page = browser.new_page()
    page.goto((build.HTML / "book" / "ledger.html").as_uri())
    seen = page.evaluate(INSPECT)
    rows = page.locator("table.ledger tbody tr").count()
    page.close()
    assert rows == len(claims)
    assert seen["formulas"] >= sum(claim.statement.count("$") // 2 for claim in claims) > 0
    assert seen["errors"] == seen["untypeset"] == []
