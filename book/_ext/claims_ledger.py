"""Two directives fed by the executed chapters: ``{claims-ledger}`` and ``{build-status}``.

Both read the notebooks that myst-nb leaves in ``jupyter_execute`` once it has read every page,
so they work the same whether papermill or Jupyter Book executed the chapters.
"""

import html
import platform
import sys
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import nbformat
from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

sys.path.append(str(Path(__file__).resolve().parents[2] / "notebooks"))
from claims import (
    Claim,
    InvalidClaim,
    label,
    markup,
    number_html,
    read_claims,
    require_unique,
)

LOGGER = logging.getLogger(__name__)
PACKAGES = ["numpy", "scipy", "pandas", "numba", "cvxpy", "highspy", "matplotlib", "jupyter-book"]


@dataclass(frozen=True)
class Chapter:
    """One executed chapter: where it stands, what it claims and how its execution went."""

    docname: str
    title: str
    claims: list[Claim]
    execution: dict


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
        tables = {
            "claims-ledger": lambda: ledger(self.app.executed, self.link),
            "build-status": lambda: status(self.app.executed, self.link) + versions(),
        }
        for node in list(self.document.findall(Placeholder)):
            node.replace_self(nodes.raw("", tables[node["kind"]](), format="html"))

    def link(self, docname):
        """Return a chapter's address as seen from this page."""
        return self.app.builder.get_relative_uri(self.env.docname, docname)


def executed_chapters(env) -> list[Chapter]:
    """Return the chapters in the order of the table of contents."""
    folder = Path(env.mystnb_config.output_folder)
    chapters = []
    for docname in reading_order(env):
        if docname.startswith("notebooks/"):
            notebook = nbformat.read(folder / f"{docname}.ipynb", as_version=4)
            title = env.titles[docname].astext()
            execution = dict(notebook.metadata.get("execution", {}))
            chapters.append(Chapter(docname, title, read_claims(notebook), execution))
    return chapters


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


def ledger(chapters, link) -> str:
    """Return the ledger: how many claims came out how, then a table for each chapter."""
    states = Counter(state(claim) for chapter in chapters for claim in chapter.claims)
    if not states:
        return "<p>No executed chapter has recorded a claim.</p>"
    counts = ", ".join(f"{count} {name}" for name, count in states.items())
    columns = ["Claim", "Evidence", "Verdict"]
    parts = [f"<p>{states.total()} claims: {counts}.</p>"]
    for chapter in chapters:
        address = link(chapter.docname)
        rows = [ledger_row(claim, address) for claim in chapter.claims]
        parts.append(f'<h2><a href="{address}">{html.escape(chapter.title)}</a></h2>')
        parts.append(table("stacked ledger", columns, rows))
    return "".join(parts)


def ledger_row(claim: Claim, address: str) -> list[str]:
    """Return the cells of one claim."""
    values = "".join(
        f"<span><i>{html.escape(label(name))}</i> {number_html(value)}</span>"
        for name, value in claim.numbers.items()
    )
    return [
        f'<a href="{address}#claim-{claim.id}">{claim.id}</a><br>{markup(claim.statement)}'
        f'<div class="claim-numbers">{values}</div>'
        f'<div class="claim-source">{markup(claim.source)}</div>',
        ", ".join(map(html.escape, claim.evidence)),
        f'<span class="claim-state claim-{state(claim)}">{state(claim)}</span>',
    ]


def state(claim: Claim) -> str:
    """Return what became of a claim: its verdict, unless its check failed."""
    return claim.verdict if claim.holds else "failed"


def status(chapters, link) -> str:
    """Return when each chapter was executed, how long it took and how many claims it made."""
    if not chapters:
        return "<p>No chapter has been executed.</p>"
    rows = []
    for chapter in chapters:
        seconds = chapter.execution.get("seconds")
        finished = chapter.execution.get("finished", "by Jupyter Book")
        rows.append(
            [
                f'<a href="{link(chapter.docname)}">{html.escape(chapter.title)}</a>',
                finished[:16].replace("T", " "),
                "—" if seconds is None else f"{seconds:.1f}",
                str(len(chapter.claims)),
            ]
        )
    return table("stacked status", ["Chapter", "Executed (UTC)", "Seconds", "Claims"], rows)


def versions() -> str:
    """Return the versions of what the chapters were computed with."""
    rows = [["Python", platform.python_version()]]
    rows += [[name, version(name)] for name in PACKAGES]
    return table("versions", ["Software", "Version"], rows)


def collect(app, env):
    """Read what was executed, warn of what failed, and have the generated pages written anew."""
    app.executed = executed_chapters(env)
    claims = [claim for chapter in app.executed for claim in chapter.claims]
    for claim in claims:
        if not claim.holds:
            LOGGER.warning("claim failed its check: %s", claim.to_text())
    try:
        require_unique(claims)
    except InvalidClaim as error:
        LOGGER.warning(str(error))
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
    app.connect("env-updated", collect)
    app.connect("html-page-context", show_mathematics, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
