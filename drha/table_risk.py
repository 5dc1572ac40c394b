"""Risk of a whole table: averages, how many cells are disclosed, the worst cells, subgroups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from drha.counts import check_counts
from drha.errors import DrhaError, InvalidCounts, InvalidTable
from drha.noise import CountNoise
from drha.risk import local_risk
from drha.table import FrequencyTable

if TYPE_CHECKING:
    import pandas as pd

TRIMMED = 1e-32  # probability of each tail that one merge of two groups of cells may leave out


def average_risk(risk, sizes=None):
    """Average a measure over the cells of a table, or over their records (Eq. 12).

    Parameters
    ----------
    risk : array_like of float, shape (..., cells)
        Any of the five measures for every non-empty cell, e.g. ``drha.local_risk(table, noise)``.
    sizes : array_like of int, shape (cells,), optional
        Records of each cell. With them every record has the same weight, without them every cell.

    Returns
    -------
    float, or ndarray of shape (...)

    Raises
    ------
    DrhaError
        If there is no cell, a risk is no probability, or the shapes do not match.
    InvalidCounts
        If a size is below 1 or not whole.

    Examples
    --------
    >>> import drha
    >>> drha.average_risk([0.5, 0.1]), drha.average_risk([0.5, 0.1], [1, 3])
    (np.float64(0.3), np.float64(0.2))
    """
    risk = _check_risk(risk)
    if sizes is None:
        return risk.mean(axis=-1)
    sizes = check_counts(sizes)
    if sizes.shape != risk.shape[-1:]:
        raise DrhaError(f"sizes of shape {sizes.shape} do not match risks of shape {risk.shape}")
    if (sizes < 1).any():
        raise InvalidCounts("a cell without records has no weight; average over non-empty cells")
    return risk @ (sizes / sizes.sum())


@dataclass(frozen=True, eq=False, repr=False)
class DisclosedCells:
    """Distribution of the number of cells that one release discloses (Poisson binomial).

    Attributes
    ----------
    risk : ndarray of float, shape (cells,)
        Probability that each cell is disclosed, independently of the others.
    """

    risk: np.ndarray

    def __post_init__(self):
        risk = _check_risk(self.risk)
        if risk.ndim != 1:
            raise DrhaError(f"risk has shape {risk.shape}; it needs one probability for each cell")
        object.__setattr__(self, "risk", risk)

    def __repr__(self) -> str:
        return f"DisclosedCells({len(self.risk)} cells, mean {self.mean:.6g})"

    @property
    def mean(self) -> float:
        """Expected number of disclosed cells."""
        return float(self.risk.sum())

    @property
    def variance(self) -> float:
        """Variance of the number of disclosed cells."""
        return float((self.risk * (1.0 - self.risk)).sum())

    @property
    def at_least_one(self) -> float:
        """Probability that at least one cell is disclosed, 1 - prod(1 - risk), in log space."""
        with np.errstate(divide="ignore"):
            return float(-np.expm1(np.log1p(-self.risk).sum()))

    @cached_property
    def pmf(self) -> np.ndarray:
        """Probability of each number 0, ..., cells of disclosed cells, shape (cells + 1,).

        Notes
        -----
        Cells are merged in pairs, then pairs of pairs, each merge the convolution of two
        distributions of positive numbers. Tails of probability below 1e-32 are left out on the
        way and appear as 0, so the cost is about the cells times their standard deviation.
        """
        first, merged = _sum_of_bernoullis(self.risk)
        pmf = np.zeros(len(self.risk) + 1)
        pmf[first : first + len(merged)] = merged
        pmf.flags.writeable = False
        return pmf

    def quantile(self, level: float) -> int:
        """Smallest number of cells not exceeded with probability at least ``level``.

        Raises
        ------
        DrhaError
            If ``level`` is outside (0, 1).
        """
        if not 0.0 < level < 1.0:
            raise DrhaError(f"level must lie strictly between 0 and 1, not {level!r}")
        return int(np.searchsorted(np.cumsum(self.pmf), level))


def table_risk(table: FrequencyTable, noise: CountNoise) -> TableRisk:
    """Local risk of every cell of a table, and what follows from it for the table.

    Parameters
    ----------
    table : FrequencyTable
    noise : CountNoise
        The mechanism that sanitises every count, e.g. ``drha.laplace(1.0)``.

    Returns
    -------
    TableRisk

    Raises
    ------
    InvalidTable
        If ``table`` is no FrequencyTable.
    InvalidNoise
        If ``noise`` is not a count mechanism.

    Examples
    --------
    >>> import drha
    >>> table = drha.FrequencyTable.from_counts([[3, 0], [2, 1]])
    >>> drha.table_risk(table, drha.laplace(1.0))
    TableRisk(2 cells, 6 records: 0.5077 over cells, 0.4368 of the records disclosed)
    """
    if not isinstance(table, FrequencyTable):
        raise InvalidTable(
            f"table must be a FrequencyTable, not {type(table).__name__}; "
            "build one with drha.FrequencyTable.from_frame or .from_counts"
        )
    return TableRisk(table, local_risk(table, noise), local_risk(table, noise, "refined"))


@dataclass(frozen=True, eq=False, repr=False)
class TableRisk:
    """Local risks of the cells of a table; made by :func:`table_risk`.

    Attributes
    ----------
    table : FrequencyTable
    exact : ndarray of float, shape (cells,)
        Probability that each cell is disclosed.
    refined : ndarray of float, shape (cells,)
        Expected share of each cell's records whose true value is disclosed.
    """

    table: FrequencyTable
    exact: np.ndarray
    refined: np.ndarray

    def __repr__(self) -> str:
        return (
            f"TableRisk({self.table.n_cells} cells, {self.table.n_records} records: "
            f"{self.average():.4g} over cells, {self.average('refined', weighted=True):.4g} of the "
            "records disclosed)"
        )

    def average(self, kind: str = "exact", *, weighted: bool = False) -> float:
        """Average over the cells, or over the records when ``weighted`` (Eq. 12).

        The weighted average of the refined risk is the expected share of all records whose true
        value is disclosed.

        Raises
        ------
        DrhaError
            If ``kind`` is not "exact" or "refined".
        """
        if kind not in ("exact", "refined"):
            raise DrhaError(f"kind {kind!r} is unknown; choose 'exact' or 'refined'")
        return float(average_risk(getattr(self, kind), self.table.sizes if weighted else None))

    @cached_property
    def disclosed_cells(self) -> DisclosedCells:
        """Distribution of the number of cells that one release discloses."""
        return DisclosedCells(self.exact)

    @property
    def disclosed_records(self) -> float:
        """Expected number of records whose true value one release discloses."""
        return float(self.refined @ self.table.sizes)

    def worst(self, number: int = 10) -> pd.DataFrame:
        """Cells of the largest exact risk, larger cells first among equals.

        Parameters
        ----------
        number : int, default 10

        Returns
        -------
        pandas.DataFrame
            Indexed by the quasi-identifiers, with columns records, levels present, exact, refined.
        """
        order = np.lexsort((-self.table.sizes, -self.exact))[:number]
        return self._cells().iloc[order]

    def by(self, quasi_identifier) -> pd.DataFrame:
        """Risk in each subgroup that a quasi-identifier forms.

        Parameters
        ----------
        quasi_identifier : column name, or list of column names
            One or more of the table's quasi-identifiers.

        Returns
        -------
        pandas.DataFrame
            One row for each value: cells, records, the averages of the exact risk over cells and
            over records, the expected share of records disclosed (refined), the largest exact risk
            and the probability that at least one cell of the subgroup is disclosed.

        Raises
        ------
        InvalidTable
            If the table has no such quasi-identifier.
        """
        names = quasi_identifier if isinstance(quasi_identifier, list) else [quasi_identifier]
        for name in names:
            if name not in self.table.codes:
                raise InvalidTable(
                    f"{name!r} is no quasi-identifier of the table; "
                    f"choose from {list(self.table.quasi_identifiers)}"
                )
        cells = self._cells()
        cells["over records"] = cells["exact"] * cells["records"]
        cells["share disclosed"] = cells["refined"] * cells["records"]
        with np.errstate(divide="ignore"):
            cells["log none"] = np.log1p(-cells["exact"])
        groups = cells.groupby(level=names, sort=True)
        records = groups["records"].sum()
        result = groups.size().to_frame("cells")
        result["records"] = records
        result["over cells"] = groups["exact"].mean()
        result["over records"] = groups["over records"].sum() / records
        result["share disclosed"] = groups["share disclosed"].sum() / records
        result["largest"] = groups["exact"].max()
        result["at least one"] = -np.expm1(groups["log none"].sum())
        return result

    def _cells(self) -> pd.DataFrame:
        import pandas as pd

        table = self.table
        index = pd.MultiIndex.from_arrays(
            list(table.labels.values()), names=table.quasi_identifiers
        )
        columns = {
            "records": table.sizes,
            "levels present": table.support_sizes,
            "exact": self.exact,
            "refined": self.refined,
        }
        return pd.DataFrame(columns, index=index)


def _check_risk(risk) -> np.ndarray:
    try:
        risk = np.asarray(risk, dtype=float)
    except (TypeError, ValueError) as error:
        raise DrhaError("risk must be an array of probabilities") from error
    if risk.ndim == 0 or risk.shape[-1] == 0:
        raise DrhaError(f"risk has shape {risk.shape}; the last axis runs over at least one cell")
    if not ((risk >= 0.0) & (risk <= 1.0 + 1e-12)).all():
        raise DrhaError("risk must hold probabilities between 0 and 1")
    return np.minimum(risk, 1.0)  # a sum of probabilities may exceed 1 by a rounding error


_SIDE_BY_SIDE = 32  # groups up to this many cells are merged all at once, larger ones pair by pair


def _sum_of_bernoullis(risk: np.ndarray) -> tuple[int, np.ndarray]:
    """First number of positive probability, and the probabilities from there on."""
    cells = 1 << max(0, len(risk) - 1).bit_length()
    padded = np.concatenate([risk, np.zeros(cells - len(risk))])
    rows = np.stack([1.0 - padded, padded], axis=1)
    while len(rows) > 1 and rows.shape[1] <= _SIDE_BY_SIDE:
        left, right = rows[::2], rows[1::2]
        rows = np.zeros((len(left), 2 * left.shape[1] - 1))
        for k in range(left.shape[1]):
            rows[:, k : k + right.shape[1]] += left[:, k, None] * right
    groups = [_trim(0, row) for row in rows]
    while len(groups) > 1:
        groups = [
            _trim(a + b, np.convolve(left, right))
            for (a, left), (b, right) in zip(groups[::2], groups[1::2], strict=True)
        ]
    return groups[0]


def _trim(first: int, pmf: np.ndarray) -> tuple[int, np.ndarray]:
    """Drop negligible tails."""
    low = int(np.searchsorted(np.cumsum(pmf), TRIMMED))
    high = len(pmf) - int(np.searchsorted(np.cumsum(pmf[::-1]), TRIMMED))
    return first + low, pmf[low:high]
