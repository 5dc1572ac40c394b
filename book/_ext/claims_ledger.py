"""Two directives fed by the executed chapters: ``{claims-ledger}`` and ``{build-status}``.

Both read the notebooks that myst-nb leaves in ``jupyter_execute`` once it has read every page,
so they work the same whether papermill or Jupyter Book executed the chapters.
"""

import html
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import nbformat
from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

sys.path.append(str(Path(__file__).resolve().parents[2] / "notebooks"))
from claims import Claim, label, markup, number_html, read_claims, require_unique

LOGGER = logging.getLogger(__name__)
PACKAGES = ["numpy", "scipy", "pandas", "numba", "cvxpy", "highspy", "matplotlib", "jupyter-book"]
CLAIM_COLUMNS = ["Claim", "Source", "Evidence", "Verdict", "Numbers"]
STATUS_COLUMNS = ["Chapter", "Executed (UTC)", "Seconds", "Claims"]


class Placeholder(nodes.General, nodes.Element):
    """Stands for a table until every chapter has been read."""


class Table(SphinxDirective):
    """A directive with neither argument nor content; its name says which table it stands for."""

    def run(self):
        """Leave a placeholder."""
        self.env.metadata[self.env.docname]["generated"] = True
        return [Placeholder(kind=self.name)]


class FillTables(SphinxPostTransform):
    """Replace each placeholder by its table."""

    default_priority = 5

    def run(self, **kwargs):
        """Fill the tables of one page."""
        for node in list(self.document.findall(Placeholder)):
            executed = executed_chapters(self.env)
            if node["kind"] == "claims-ledger":
                text = ledger_table(
                    [(claim, self.link(name)) for name, book in executed for claim in book.claims]
                )
            else:
                text = status_table(executed, self.link) + versions_table()
            node.replace_self(nodes.raw("", text, format="html"))

    def link(self, docname):
        """Return a chapter's address as seen from this page."""
        return self.app.builder.get_relative_uri(self.env.docname, docname)


class Executed:
    """One executed chapter: its title, its claims and how its execution went."""

    def __init__(self, env, docname, path):
        notebook = nbformat.read(path, as_version=4)
        self.title = env.titles[docname].astext()
        self.claims = read_claims(notebook)
        self.execution = dict(notebook.metadata.get("execution", {}))


def executed_chapters(env):
    """Return ``(docname, Executed)`` for each chapter in the order of the table of contents."""
    folder = Path(env.mystnb_config.output_folder)
    found = [
        (docname, Executed(env, docname, folder / f"{docname}.ipynb"))
        for docname in reading_order(env)
        if docname.startswith("notebooks/")
    ]
    try:
        require_unique(claim for _, chapter in found for claim in chapter.claims)
    except ValueError as error:
        LOGGER.warning(str(error))
    for docname, chapter in found:
        for claim in chapter.claims:
            if not claim.holds:
                LOGGER.warning("claim %s failed its check", claim.id, location=docname)
    return found


def reading_order(env):
    """Return every page name, depth first from the root page."""
    order, stack = [], [env.config.root_doc]
    while stack:
        docname = stack.pop()
        order.append(docname)
        stack.extend(reversed(env.toctree_includes.get(docname, [])))
    return order


def table(css, columns, rows):
    """Return an HTML table whose cells carry their column's name, for narrow screens."""
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f'<td data-label="{n}">{c}</td>' for n, c in zip(columns, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<table class="table {css}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def ledger_table(claims: list[tuple[Claim, str]]) -> str:
    """Return the ledger: a row for each claim, with its chapter's address."""
    if not claims:
        return "<p>No executed chapter has recorded a claim.</p>"
    return table(
        "stacked ledger", CLAIM_COLUMNS, [ledger_row(claim, link) for claim, link in claims]
    )


def ledger_row(claim: Claim, link: str) -> list[str]:
    """Return the cells of one claim."""
    state = claim.verdict if claim.holds else "failed"
    values = "<br>".join(
        f"{html.escape(label(name))}: {number_html(value)}" for name, value in claim.numbers.items()
    )
    return [
        f'<a href="{link}#claim-{claim.id}">{claim.id}</a><br>{markup(claim.statement)}',
        markup(claim.source),
        html.escape(" + ".join(claim.evidence)),
        f'<span class="claim-state claim-{state}">{state}</span>',
        values or "—",
    ]


def status_table(executed, link) -> str:
    """Return when each chapter was executed, how long it took and what became of its claims."""
    if not executed:
        return "<p>No chapter has been executed.</p>"
    rows = []
    for docname, chapter in executed:
        seconds = chapter.execution.get("seconds")
        failed = sum(not claim.holds for claim in chapter.claims)
        rows.append(
            [
                f'<a href="{link(docname)}">{html.escape(chapter.title)}</a>',
                chapter.execution.get("finished", "by Jupyter Book")[:19].replace("T", " "),
                "—" if seconds is None else f"{seconds:.1f}",
                f"{len(chapter.claims)}" + (f", {failed} failed" if failed else ""),
            ]
        )
    return table("stacked status", STATUS_COLUMNS, rows)


def versions_table() -> str:
    """Return the versions of what the chapters were computed with."""
    rows = [["Python", platform.python_version()]]
    rows += [[name, version(name)] for name in PACKAGES]
    return table("versions", ["Software", "Version"], rows)


def generated_pages(app, env):
    """Rewrite the generated pages whenever any page was read again."""
    return [docname for docname, data in env.metadata.items() if "generated" in data]


def show_mathematics(app, pagename, templatename, context, doctree):
    """Load MathJax on generated pages: their formulas are not in the document tree."""
    if "generated" in app.env.metadata.get(pagename, {}):
        app.env.get_domain("math").data["has_equations"][pagename] = True


def forget_stamp(app):
    """Drop the mark of `book.build`, which vouches only for pages it built itself."""
    Path(app.outdir, ".inputs").unlink(missing_ok=True)


def setup(app):
    """Register with Sphinx."""
    app.add_node(Placeholder)
    app.add_directive("claims-ledger", Table)
    app.add_directive("build-status", Table)
    app.add_post_transform(FillTables)
    app.connect("builder-inited", forget_stamp)
    app.connect("env-updated", generated_pages)
    app.connect("html-page-context", show_mathematics, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
