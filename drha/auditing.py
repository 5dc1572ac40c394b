"""Audit: records in, and out what a noisy frequency table of them would disclose."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from drha.calibrate import PURE, Mechanism, choose_epsilon, resolve_mechanism
from drha.conventions import RoundAndClip
from drha.errors import InvalidQuestion, NoSafeEpsilon
from drha.noise import CountNoise
from drha.risk import local_risk
from drha.several import Homogeneity, SensitiveTables
from drha.table import FrequencyTable
from drha.table_risk import TableRisk, average_risk, table_risk
from drha.utility import mean_absolute_error

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_EPSILONS = tuple(np.geomspace(0.1, 10.0, 40).tolist())


def audit(
    frame: pd.DataFrame,
    quasi_identifiers: Iterable,
    sensitive,
    *,
    mechanisms: str | Sequence[str] | Mapping[str, Mechanism] = ("laplace", "geometric"),
    epsilons: Iterable[float] = DEFAULT_EPSILONS,
    delta: float | None = None,
    sensitivity: float | str = "add_remove",
    levels: Sequence | Mapping | None = None,
    missing: str = "error",
    target: float | None = None,
) -> Audit:
    """Tell what frequency tables of the records would disclose, noise by noise.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row per record.
    quasi_identifiers : iterable of column names
        What the adversary knows of the target; at least one.
    sensitive : column name, or list of column names
        What the adversary wants to learn. Each gets a table, and noise, of its own.
    mechanisms : str, sequence of str, or mapping of name to callable
        Names in ``drha.calibrate.MECHANISMS``, or functions from epsilon to a count mechanism.
    epsilons : iterable of float
        Privacy losses of one table, positive; by default 40 from 0.1 to 10, in equal ratios.
    delta : float, optional
        For the named mechanisms that need it.
    sensitivity : float or {"add_remove", "substitution"}, default "add_remove"
        For the named mechanisms: what changes between neighbouring tables.
    levels : sequence, or mapping of column name to sequence, optional
        All possible levels of the sensitive attribute, or of several; see
        :meth:`FrequencyTable.from_frame`.
    missing : {"error", "drop"}, default "error"
        Whether a missing value in a used column is an error, or its record is left out and
        counted in ``Audit.dropped``.
    target : float, optional
        Largest accepted average risk over cells; an epsilon is then chosen for it.

    Returns
    -------
    Audit

    Raises
    ------
    InvalidFrame, InvalidTable
        As :meth:`FrequencyTable.from_frame`.
    InvalidQuestion
        If a mechanism is unknown or named twice, no epsilon is given, or an option is unknown.
    InvalidNoise
        If an epsilon, delta or sensitivity is out of range.

    Notes
    -----
    The risks are those of :func:`drha.local_risk`, computed once for cells that are equal up to
    the order of their levels. If several sensitive attributes are released, their privacy losses
    add up: one record is counted in each table.

    Examples
    --------
    >>> import drha, pandas as pd
    >>> people = pd.DataFrame({"zip": [1, 1, 2, 2, 2], "ill": ["no", "no", "no", "yes", "yes"]})
    >>> drha.audit(people, ["zip"], "ill", epsilons=[0.5, 1.0])
    Audit(5 records, 2 cells; 'ill'; laplace, geometric; epsilon 0.5 to 1)
    """
    builds = _mechanisms(mechanisms, delta, sensitivity)
    epsilons = _check_epsilons(epsilons)
    names = sensitive if isinstance(sensitive, list | tuple) else [sensitive]
    quasi_identifiers = (
        quasi_identifiers if isinstance(quasi_identifiers, str) else list(quasi_identifiers)
    )
    if levels is not None and not isinstance(levels, Mapping):
        if len(names) > 1:
            raise InvalidQuestion("levels of several sensitive attributes go by name: pass a dict")
        levels = {names[0]: levels}
    frame, dropped = _complete(frame, quasi_identifiers, names, missing)
    tables = SensitiveTables.from_frame(frame, quasi_identifiers, names, levels=levels)
    return Audit(tables, builds, epsilons, delta, dropped, target)


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What noisy frequency tables would disclose; made by :func:`audit`.

    Attributes
    ----------
    tables : SensitiveTables
        The tables without noise, one for each sensitive attribute.
    mechanisms : dict of str to callable
        The audited mechanisms, as functions of epsilon.
    epsilons : ndarray of float
    delta : float or None
    dropped : int
        Records left out for a missing value.
    target : float or None
        Largest accepted average risk over cells.
    original : pandas.DataFrame
        The tables as they are, one row for each sensitive attribute: records, cells, levels,
        ``k`` (the smallest cell: k-anonymity), ``distinct_l`` and ``entropy_l`` (l-diversity: the
        smallest number of levels in a cell, and the smallest exponential of the entropy of a
        cell), homogeneous cells, the records in them, and cells of one record.
    risks : pandas.DataFrame
        One row for each sensitive attribute, mechanism and epsilon: delta, scale of the noise,
        ``risk_cells`` and ``risk_people`` (exact risk, averaged), ``refined_cells`` and
        ``refined_people`` (the last is the expected share of people disclosed), ``worst_risk``,
        ``disclosed_cells`` (expected number), ``any_disclosed`` (probability) and
        ``mean_absolute_error`` of the counts (NaN unless they are rounded and clipped).
    choices : pandas.DataFrame or None
        If there is a target, one row for each sensitive attribute and mechanism: ``epsilon``, NaN
        where disclosure risk cannot choose, ``roots``, and ``reason`` for no choice.
    """

    tables: SensitiveTables
    mechanisms: Mapping[str, Mechanism]
    epsilons: np.ndarray
    delta: float | None
    dropped: int
    target: float | None

    def __post_init__(self):
        import pandas as pd

        tables = self.tables.tables
        original = pd.DataFrame([describe(table) for table in tables])
        original.insert(0, "sensitive", list(self.tables.sensitive))
        risks = pd.DataFrame([row for table in tables for row in self._risks(table)])
        object.__setattr__(self, "original", original)
        object.__setattr__(self, "risks", risks)
        choices = None
        if self.target is not None:
            choices = pd.DataFrame([row for table in tables for row in self._choices(table)])
        object.__setattr__(self, "choices", choices)

    def __repr__(self) -> str:
        first, secrets = self.tables.tables[0], ", ".join(map(repr, self.tables.sensitive))
        return (
            f"Audit({first.n_records} records, {first.n_cells} cells; {secrets}; "
            f"{', '.join(self.mechanisms)}; epsilon {self.epsilons[0]:g} to {self.epsilons[-1]:g})"
        )

    @property
    def completely_homogeneous(self) -> int:
        """Number of cells that are homogeneous in every sensitive attribute."""
        return int((self.tables.homogeneity == Homogeneity.COMPLETELY_HOMOGENEOUS).sum())

    def table(self, sensitive=None) -> FrequencyTable:
        """Return the table of a sensitive attribute, by default of the first."""
        names = self.tables.sensitive
        if sensitive is not None and sensitive not in names:
            raise InvalidQuestion(f"{sensitive!r} was not audited; choose from {list(names)}")
        return self.tables.tables[0 if sensitive is None else names.index(sensitive)]

    def noise(self, mechanism: str, epsilon: float) -> CountNoise:
        """Return an audited mechanism at any epsilon."""
        if mechanism not in self.mechanisms:
            raise InvalidQuestion(
                f"{mechanism!r} was not audited; choose from {list(self.mechanisms)}"
            )
        return self.mechanisms[mechanism](epsilon)

    def at(self, mechanism: str, epsilon: float, sensitive=None) -> TableRisk:
        """Risk of every cell at one epsilon: its worst cells, its subgroups, its distribution.

        Returns
        -------
        TableRisk
            With ``worst()``, ``by(quasi_identifier)`` and ``disclosed_cells``.
        """
        return table_risk(self.table(sensitive), self.noise(mechanism, epsilon))

    def plot_risk(self, sensitive=None, *, measure: str = "risk_cells", ax=None):
        """Draw a risk against epsilon, one curve for each mechanism.

        Parameters
        ----------
        sensitive : column name, optional
            By default the first sensitive attribute.
        measure : str
            A column of ``risks``.
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
        """
        ax, rows = self._axes(ax), self._rows(sensitive)
        for name, curve in rows.groupby("mechanism", sort=False):
            ax.plot(curve["epsilon"], curve[measure], label=name)
        ax.set(xscale="log", xlabel="privacy loss ε", ylabel=LABELS.get(measure, measure))
        ax.set(ylim=(0, None))
        ax.legend()
        return ax

    def plot_risk_utility(self, sensitive=None, *, measure: str = "risk_cells", ax=None):
        """Draw a risk against the mean absolute error of the counts, along epsilon.

        Parameters
        ----------
        sensitive : column name, optional
            By default the first sensitive attribute.
        measure : str
            A column of ``risks``.
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
            Small errors are to the right, as they go with large epsilon.
        """
        ax, rows = self._axes(ax), self._rows(sensitive)
        for name, curve in rows.groupby("mechanism", sort=False):
            seen = curve[curve["mean_absolute_error"] > 0]  # it underflows at huge epsilon
            ax.plot(seen["mean_absolute_error"], seen[measure], label=name)
        ax.set(xscale="log", xlabel="mean absolute error of a count, in records")
        ax.set(ylabel=LABELS.get(measure, measure), ylim=(0, None))
        ax.xaxis.set_inverted(True)
        ax.legend()
        return ax

    def to_html(self, path=None) -> str:
        """Return the report as one self-contained page, and write it if a path is given.

        Parameters
        ----------
        path : path-like, optional

        Returns
        -------
        str
            HTML with its pictures inside; it asks for nothing from any network.
        """
        from pathlib import Path

        from drha.report import report

        page = report(self)
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def _rows(self, sensitive) -> pd.DataFrame:
        name = self.table(sensitive).sensitive
        return self.risks[[secret == name for secret in self.risks["sensitive"]]]

    @staticmethod
    def _axes(ax):
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots()
        return ax

    def _risks(self, table: FrequencyTable):
        shapes, shape = table.shapes
        cells, sizes = np.bincount(shape), shapes.sum(axis=1)
        people = cells * sizes
        counts, number = np.unique(table.counts, return_counts=True)
        for name, build in self.mechanisms.items():
            for epsilon in self.epsilons.tolist():
                noise = build(epsilon)
                exact, refined = (local_risk(shapes, noise, kind) for kind in ("exact", "refined"))
                yield {
                    "sensitive": table.sensitive,
                    "mechanism": name,
                    "epsilon": epsilon,
                    "delta": math.nan if name in PURE or self.delta is None else self.delta,
                    "scale": noise.scale,
                    "risk_cells": float(average_risk(exact, cells)),
                    "risk_people": float(average_risk(exact, people)),
                    "refined_cells": float(average_risk(refined, cells)),
                    "refined_people": float(average_risk(refined, people)),
                    "worst_risk": float(exact.max()),
                    "disclosed_cells": float(exact @ cells),
                    "any_disclosed": _at_least_one(exact, cells),
                    "mean_absolute_error": _mean_error(counts, number, noise),
                }

    def _choices(self, table: FrequencyTable):
        for name, build in self.mechanisms.items():
            choice = choose_epsilon(table, self.target, build)
            row = {"sensitive": table.sensitive, "mechanism": name, "target": self.target}
            try:
                row |= {"epsilon": choice.epsilon, "reason": ""}
            except NoSafeEpsilon as error:
                row |= {"epsilon": math.nan, "reason": str(error)}
            yield row | {"roots": choice.roots}


LABELS = {
    "risk_cells": "average risk of a cell",
    "risk_people": "average risk of a person's cell",
    "refined_cells": "refined risk, average over cells",
    "refined_people": "share of people disclosed",
    "worst_risk": "risk of the worst cell",
    "any_disclosed": "probability that a cell is disclosed",
    "disclosed_cells": "expected number of disclosed cells",
    "mean_absolute_error": "mean absolute error of a count",
}


def describe(table: FrequencyTable) -> dict:
    """Describe a table without noise: its size, k-anonymity, l-diversity and homogeneous cells.

    Parameters
    ----------
    table : FrequencyTable

    Returns
    -------
    dict
        The columns of ``Audit.original``. The table is k-anonymous for ``k`` (Sweeney 2002), and
        distinct and entropy l-diverse for ``distinct_l`` and ``entropy_l``, which is
        min over cells of exp(-sum p ln p) (Machanavajjhala et al. 2007).
    """
    shares = table.shapes[0] / table.shapes[0].sum(axis=1, keepdims=True)
    entropy = -(shares * np.log(shares, out=np.zeros_like(shares), where=shares > 0)).sum(axis=1)
    exposed = int(table.sizes[table.homogeneous].sum())
    return {
        "records": table.n_records,
        "cells": table.n_cells,
        "levels": table.n_levels,
        "k": int(table.sizes.min()),
        "distinct_l": int(table.support_sizes.min()),
        "entropy_l": float(np.exp(max(entropy.min(), 0.0))),
        "homogeneous_cells": int(table.homogeneous.sum()),
        "exposed_people": exposed,
        "exposed_share": exposed / table.n_records,
        "cells_of_one": int((table.sizes == 1).sum()),
    }


def _at_least_one(risk: np.ndarray, cells: np.ndarray) -> float:
    """Probability that at least one cell is disclosed, when each risk holds for several cells."""
    with np.errstate(divide="ignore"):
        return float(-np.expm1(np.log1p(-np.minimum(risk, 1.0)) @ cells))


def _mean_error(counts: np.ndarray, number: np.ndarray, noise: CountNoise) -> float:
    """Mean absolute error of counts that occur so often; NaN where it is not known."""
    if not isinstance(noise.convention, RoundAndClip):
        return math.nan
    return float(mean_absolute_error(counts, noise) @ (number / number.sum()))


def _mechanisms(mechanisms, delta, sensitivity) -> dict[str, Mechanism]:
    if isinstance(mechanisms, Mapping):
        builds = {name: resolve_mechanism(build)[1] for name, build in mechanisms.items()}
    else:
        names = [mechanisms] if isinstance(mechanisms, str) else list(mechanisms)
        builds = {name: resolve_mechanism(name, delta, sensitivity)[1] for name in names}
        if len(builds) < len(names):
            raise InvalidQuestion(f"a mechanism is named twice in {names}")
    if not builds:
        raise InvalidQuestion("no mechanism is given; name at least one")
    return {name: cache(build) for name, build in builds.items()}  # calibrated once for all tables


def _check_epsilons(epsilons) -> np.ndarray:
    try:
        values = np.unique(np.asarray(list(epsilons), dtype=float))
    except (TypeError, ValueError) as error:
        raise InvalidQuestion(f"epsilons must be numbers, not {epsilons!r}") from error
    if not values.size or not (np.isfinite(values) & (values > 0)).all():
        raise InvalidQuestion(f"epsilons must be positive and finite, at least one: {epsilons!r}")
    return values


def _complete(frame, quasi_identifiers, sensitive, missing: str):
    """Leave out records with a missing value in a used column, if that is asked for."""
    import pandas as pd

    if missing not in ("error", "drop"):
        raise InvalidQuestion(f"missing={missing!r} is unknown; choose 'error' or 'drop'")
    if missing == "error" or not isinstance(frame, pd.DataFrame):
        return frame, 0
    used = [name for name in [*quasi_identifiers, *sensitive] if name in frame.columns]
    kept = frame.dropna(subset=used)
    return kept, len(frame) - len(kept)
