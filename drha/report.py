"""The report of an audit: one HTML page that carries its pictures and asks no network."""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING

import numpy as np

from drha.auditing import LABELS, Audit

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 9  # values of epsilon in the short table
WORST = 12  # cells in the list of worst cells
GROUPS = 12  # values of a quasi-identifier in the list of subgroups

STYLE = """
:root { color-scheme: light; --line: #d5d9de; --soft: #f4f6f8; --ink: #1c2430; --link: #0b5394; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: #fff; font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 52rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { margin-top: 2.5rem; font-size: 1.3rem; }
h3 { margin-top: 1.8rem; font-size: 1.05rem; }
.wide { overflow-x: auto; margin: 0.8rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
caption { text-align: left; padding-bottom: 0.3rem; color: #4a5564; }
th, td { padding: 0.3rem 0.7rem 0.3rem 0; text-align: right; border-bottom: 1px solid var(--line); }
th { font-weight: 600; vertical-align: bottom; } .text { text-align: left; }
figure { margin: 1rem 0; } figure svg { width: 100%; height: auto; max-width: 34rem; }
figcaption { color: #4a5564; font-size: 0.9rem; }
.note { background: var(--soft); border-left: 4px solid var(--link); padding: 0.6rem 0.9rem; }
dt { font-weight: 600; } dd { margin: 0 0 0.6rem 0; } summary { cursor: pointer; }
"""

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
LINES = ["-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)), "-"]


def report(audit: Audit) -> str:
    """Write the report of an audit.

    Parameters
    ----------
    audit : Audit

    Returns
    -------
    str
        A complete HTML page. Text from the data is escaped, pictures are inline SVG with a text
        alternative, and there is no script, style sheet, font or picture from elsewhere.
    """
    first = audit.tables.tables[0]
    secrets = ", ".join(map(str, audit.tables.sensitive))
    parts = [
        f"<h1>Disclosure risk from homogeneity attack: {_text(secrets)}</h1>",
        f"<p>{first.n_records:,} people in {first.n_cells:,} cells, formed by "
        f"{_text(', '.join(map(str, first.quasi_identifiers)))}.{_dropped(audit)}</p>",
        _original(audit),
        *(_secret(audit, table) for table in audit.tables.tables),
        _choices(audit),
        READING,
    ]
    title = _text(f"Disclosure risk: {secrets}")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


READING = """<h2>How to read this</h2>
<dl>
<dt>The attack</dt>
<dd>Somebody knows the quasi-identifiers of a person, looks up the person's cell, and sees exactly
one sensitive level with a positive count. If that level is truly present, the cell is disclosed
(exact risk); it tells the truth about those in the cell who have it (refined risk).</dd>
<dt>Average risk of a cell, of a person's cell</dt>
<dd>The exact risk averaged over cells, and over people. The share of people disclosed averages the
refined risk over people.</dd>
<dt>Risk can fall as ε grows</dt>
<dd>Without noise a diverse cell shows that it is diverse. So a small risk never justifies a large
ε by itself: the guarantee of differential privacy does not depend on this attack.</dd>
<dt>Risk has a floor</dt>
<dd>However strong the noise, a homogeneous cell among K levels is shown correctly by chance, with
probability 2 to the power −K. At the floor the release says nothing about anybody.</dd>
<dt>What is not covered</dt>
<dd>Other attacks, for instance guessing the level with the largest noisy count, can succeed more
often. Noise is added to every count, zeros included, also in cells without people. Tables of
several sensitive attributes about the same people add up their privacy losses.</dd>
</dl>"""


def _dropped(audit: Audit) -> str:
    if not audit.dropped:
        return ""
    return f" {audit.dropped:,} records with a missing value are left out."


def _original(audit: Audit) -> str:
    rows = audit.original
    columns = {
        "sensitive attribute": rows["sensitive"].map(str),
        "levels": rows["levels"],
        "k": rows["k"],
        "distinct ℓ": rows["distinct_l"],
        "entropy ℓ": rows["entropy_l"].map("{:.2f}".format),
        "homogeneous cells": rows["homogeneous_cells"].map("{:,}".format),
        "people in them": rows["exposed_people"].map("{:,}".format),
        "share": rows["exposed_share"].map("{:.1%}".format),
        "cells of one person": rows["cells_of_one"].map("{:,}".format),
    }
    both = ""
    if len(rows) > 1:
        both = (
            f"<p>{audit.completely_homogeneous:,} cells are homogeneous in all "
            f"{len(rows)} sensitive attributes at once.</p>"
        )
    return (
        "<h2>Before any noise</h2>\n<p>If the tables were published as they are, whoever knows "
        "the quasi-identifiers of a person in a homogeneous cell would read off the sensitive "
        "value. A table is <i>k</i>-anonymous when no cell has fewer than <i>k</i> people, and "
        "ℓ-diverse when no cell has fewer than ℓ levels (distinct), or an entropy below that of "
        "ℓ equally frequent levels.</p>\n" + _table(columns, text=1) + both
    )


def _secret(audit: Audit, table) -> str:
    name = table.sensitive
    rows = audit.risks[[secret == name for secret in audit.risks["sensitive"]]]
    mechanism, epsilon = _focus(audit, name)
    risk = audit.at(mechanism, epsilon, name)
    at = f"{_text(mechanism)}, ε = {epsilon:.4g}"
    return "\n".join(
        [
            f"<h2>With noise: {_text(name)}</h2>",
            _figure(audit, name, rows, "plot_risk", "epsilon", "risk_cells"),
            _figure(audit, name, rows, "plot_risk", "epsilon", "refined_people"),
            _figure(audit, name, rows, "plot_risk_utility", "mean_absolute_error", "risk_cells"),
            _short(rows, audit.epsilons),
            f"<h3>Cells at most risk ({at})</h3>",
            _cells(risk.worst(WORST)),
            f"<h3>Subgroups ({at})</h3>",
            *(_subgroups(risk, qid) for qid in table.quasi_identifiers),
            "<details><summary>All computed values</summary>",
            _values(rows),
            "</details>",
        ]
    )


def _focus(audit: Audit, sensitive) -> tuple[str, float]:
    """Mechanism and epsilon at which cells and subgroups are shown: the choice, or the middle."""
    if audit.choices is not None:
        same = [secret == sensitive for secret in audit.choices["sensitive"]]
        chosen = audit.choices[same].dropna(subset=["epsilon"])
        if len(chosen):
            return chosen["mechanism"].iloc[0], float(chosen["epsilon"].iloc[0])
    return next(iter(audit.mechanisms)), float(audit.epsilons[len(audit.epsilons) // 2])


def _short(rows: pd.DataFrame, epsilons: np.ndarray) -> str:
    """Average risk over cells and share of people disclosed, at a few epsilons."""
    places = np.unique(np.linspace(0, len(epsilons) - 1, SHOWN).round().astype(int))
    some = rows[rows["epsilon"].isin(epsilons[places])]
    tables = []
    for measure, write in (
        ("risk_cells", "{:.4f}"),
        ("refined_people", "{:.4f}"),
        ("mean_absolute_error", "{:.3g}"),
    ):
        grid = some.pivot(index="epsilon", columns="mechanism", values=measure)
        columns = {"ε": grid.index.map("{:.4g}".format)}
        columns |= {name: grid[name].map(write.format) for name in dict.fromkeys(rows["mechanism"])}
        tables.append(_table(columns, caption=LABELS[measure].capitalize()))
    return "\n".join(tables)


def _cells(worst: pd.DataFrame) -> str:
    frame = worst.reset_index()
    identifiers = list(frame.columns[: worst.index.nlevels])
    columns = {str(name): frame[name].map(str) for name in identifiers}
    columns |= {
        "people": frame["records"].map("{:,}".format),
        "levels present": frame["levels present"],
        "exact risk": frame["exact"].map("{:.4f}".format),
        "refined risk": frame["refined"].map("{:.4f}".format),
    }
    return _table(columns, text=len(identifiers))


def _subgroups(risk, quasi_identifier) -> str:
    groups = risk.by(quasi_identifier)
    shown = groups.sort_values("share disclosed", ascending=False, kind="stable").iloc[:GROUPS]
    caption = f"By {quasi_identifier}"
    if len(groups) > len(shown):
        caption += f": the {len(shown)} of {len(groups)} values with the largest share disclosed"
    columns = {
        str(quasi_identifier): shown.index.map(str),
        "people": shown["records"].map("{:,}".format),
        "average risk of a cell": shown["over cells"].map("{:.4f}".format),
        "share disclosed": shown["share disclosed"].map("{:.4f}".format),
        "worst cell": shown["largest"].map("{:.4f}".format),
    }
    return _table(columns, text=1, caption=caption)


def _values(rows: pd.DataFrame) -> str:
    numbers = [name for name in rows.columns if name not in ("sensitive", "mechanism")]
    columns = {"mechanism": rows["mechanism"].map(str)}
    columns |= {name: rows[name].map("{:.5g}".format).replace("nan", "") for name in numbers}
    return _table(columns, text=1)


def _choices(audit: Audit) -> str:
    if audit.choices is None:
        return ""
    rows = audit.choices
    columns = {
        "sensitive attribute": rows["sensitive"].map(str),
        "mechanism": rows["mechanism"].map(str),
        "largest safe ε": rows["epsilon"].map("{:.4g}".format).replace("nan", "none"),
        "risk equals the target at": rows["roots"].map(
            lambda roots: ", ".join(f"{root:.4g}" for root in roots) or "no ε"
        ),
    }
    reasons = "".join(
        f'<p class="note">{_text(row["sensitive"])}, {_text(row["mechanism"])}: '
        f"{_text(row['reason'])}.</p>"
        for _, row in rows.iterrows()
        if row["reason"]
    )
    return (
        f"<h2>Choosing ε for an average risk of at most {audit.target:g}</h2>\n"
        "<p>The largest safe ε has no smaller ε that exceeds the target.</p>\n"
        + _table(columns, text=2)
        + reasons
    )


def _table(columns: dict, text: int = 0, caption: str | None = None) -> str:
    """Write columns as a table; the first ``text`` of them hold words."""
    kinds = [' class="text"' if i < text else "" for i in range(len(columns))]
    head = "".join(
        f'<th scope="col"{kind}>{_text(name)}</th>'
        for name, kind in zip(columns, kinds, strict=True)
    )
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{kind}>{_text(value)}</td>" for value, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row in zip(*columns.values(), strict=True)
    )
    title = f"<caption>{_text(caption)}</caption>" if caption else ""
    return (
        f'<div class="wide" tabindex="0"><table>{title}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def _figure(audit: Audit, sensitive, rows, plot: str, across: str, measure: str) -> str:
    """Draw one picture as inline SVG, with a text alternative made from its curves."""
    import matplotlib
    from cycler import cycler
    from matplotlib.figure import Figure

    look = {
        "font.size": 11,
        "svg.fonttype": "path",
        "svg.hashsalt": f"{plot} {measure} {sensitive}",
        "axes.grid": True,
        "grid.color": "#e3e3e3",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=COLOURS) + cycler(linestyle=LINES),
    }
    with matplotlib.rc_context(look):
        figure = Figure(figsize=(4.8, 3.4), layout="constrained")
        ax = figure.add_subplot()
        getattr(audit, plot)(sensitive, measure=measure, ax=ax)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    label = f"{LABELS[measure]} against {LABELS.get(across, 'epsilon')}, {sensitive}"
    ends = "; ".join(
        f"{name} from {curve[measure].iloc[0]:.3g} at epsilon {curve['epsilon'].iloc[0]:.3g} "
        f"to {curve[measure].iloc[-1]:.3g} at epsilon {curve['epsilon'].iloc[-1]:.3g}"
        for name, curve in rows.groupby("mechanism", sort=False)
    )
    svg = drawn.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{_text(f"{label}: {ends}")}" ', 1)
    caption = f"{LABELS[measure].capitalize()} against {LABELS.get(across, 'ε')}."
    return f"<figure>{svg}<figcaption>{_text(caption)}</figcaption></figure>"


def _text(value) -> str:
    return html.escape(str(value))
