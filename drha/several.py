"""Several sensitive attributes: which cells are homogeneous in some or all, and joint disclosure.

With q >= 2 sensitive attributes a cell of the quasi-identifiers is homogeneous or heterogeneous in
each of them. Either each attribute has a frequency table of its own over the same cells, sanitised
with noise of its own (:class:`SensitiveTables`), or one table crosses all of them
(:func:`joint_risk`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from drha.counts import check_counts
from drha.errors import DrhaError, InvalidCounts, InvalidNoise, InvalidTable
from drha.noise import CountNoise
from drha.risk import check_noise, local_risk
from drha.table import FrequencyTable

if TYPE_CHECKING:
    import pandas as pd


class Homogeneity(enum.IntEnum):
    """How homogeneous a cell is in several sensitive attributes (after Definitions 4 and 5)."""

    COMPLETELY_HETEROGENEOUS = 0
    PARTIALLY_HOMOGENEOUS = 1
    COMPLETELY_HOMOGENEOUS = 2


def joint_risk(counts, noise: CountNoise, attribute: int, kind: str = "exact"):
    """Local risk in one attribute, when one table crosses several sensitive attributes.

    Parameters
    ----------
    counts : array_like of int, shape (cells, levels of attribute 0, levels of attribute 1, ...)
        Records of each cell by all sensitive attributes at once.
    noise : CountNoise
        The mechanism that sanitises every count of the table.
    attribute : int
        Which attribute the adversary is after, from 0.
    kind : {"exact", "refined"}
        As in :func:`drha.local_risk`.

    Returns
    -------
    ndarray of float, shape (cells,)

    Raises
    ------
    InvalidCounts
        If a count is not whole and non-negative, or the array has fewer than three axes.
    InvalidTable
        If there is no such attribute.
    InvalidNoise
        If ``noise`` is not a count mechanism.
    DrhaError
        If ``kind`` is unknown.

    Notes
    -----
    A level g of the attribute is seen unless all counts of its slice vanish, which has probability
    U_g, the product of their vanishing probabilities. The adversary learns the attribute when
    exactly one level is seen; she is right about the n_g records that have it:

        T = sum over g with n_g > 0 of         (1 - U_g) product over h != g of U_h,
        R = sum over g              of (n_g/n) (1 - U_g) product over h != g of U_h.

    With one sensitive attribute this is :func:`drha.local_risk`.
    """
    check_noise(noise)
    if kind not in ("exact", "refined"):
        raise DrhaError(f"kind {kind!r} is unknown; choose 'exact' or 'refined'")
    counts = check_counts(counts)
    if counts.ndim < 3 or 0 in counts.shape[1:]:
        raise InvalidCounts(
            f"counts of shape {counts.shape} cross fewer than two attributes; "
            "pass (cells, levels, levels, ...), or use drha.local_risk"
        )
    if not 0 <= attribute < counts.ndim - 1:
        raise InvalidTable(f"attribute {attribute!r} is not one of 0, ..., {counts.ndim - 2}")
    slices = np.moveaxis(counts, attribute + 1, 1).reshape(
        len(counts), counts.shape[attribute + 1], -1
    )
    log_gone = noise.log_vanishing(slices).sum(axis=2)
    records = slices.sum(axis=2)
    collect = np.where(records > 0, -np.expm1(log_gone), 0.0)
    if kind == "refined":
        collect *= records / np.maximum(records.sum(axis=1, keepdims=True), 1)
    none, one = np.ones(len(counts)), np.zeros(len(counts))
    for gone, kept in zip(np.exp(log_gone).T, collect.T, strict=True):
        one = one * gone + none * kept
        none = none * gone
    return one


@dataclass(frozen=True, eq=False, repr=False)
class SensitiveTables:
    """Frequency tables of several sensitive attributes over the same quasi-identifier cells.

    Attributes
    ----------
    tables : tuple of FrequencyTable
        One for each sensitive attribute, all with the same cells in the same order.
    """

    tables: tuple[FrequencyTable, ...]

    def __post_init__(self):
        tables = tuple(self.tables)
        object.__setattr__(self, "tables", tables)
        if not tables:
            raise InvalidTable("there is no table; give one for each sensitive attribute")
        first = tables[0]
        for table in tables[1:]:
            same = (
                table.quasi_identifiers == first.quasi_identifiers
                and np.array_equal(table.sizes, first.sizes)
                and all(
                    np.array_equal(table.labels[name], first.labels[name]) for name in first.codes
                )
            )
            if not same:
                raise InvalidTable(
                    f"the tables of {first.sensitive!r} and {table.sensitive!r} count different "
                    "records or cells; build them from one frame with SensitiveTables.from_frame"
                )

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        quasi_identifiers: Iterable,
        sensitive: Iterable,
        *,
        levels: Mapping[object, Sequence] | None = None,
    ) -> SensitiveTables:
        """Count the records of a frame, once for each sensitive attribute.

        Parameters
        ----------
        frame : pandas.DataFrame
            One row per record.
        quasi_identifiers : iterable of column names
        sensitive : iterable of column names
            At least one; none of them a quasi-identifier.
        levels : mapping of column name to sequence, optional
            The possible levels of a sensitive attribute, as in ``FrequencyTable.from_frame``.

        Returns
        -------
        SensitiveTables

        Raises
        ------
        InvalidFrame, InvalidTable
            As ``FrequencyTable.from_frame``; if no sensitive attribute is named, or one twice.
        """
        if isinstance(sensitive, str) or not isinstance(sensitive, Iterable):
            raise InvalidTable(f"sensitive must be a list of column names, not {sensitive!r}")
        names, levels = list(sensitive), dict(levels or {})
        for name in names:
            if names.count(name) > 1:
                raise InvalidTable(f"column {name!r} is named twice among the sensitive ones")
        for name in levels:
            if name not in names:
                raise InvalidTable(f"levels are declared for {name!r}, which is not sensitive")
        identifiers = (
            quasi_identifiers if isinstance(quasi_identifiers, str) else list(quasi_identifiers)
        )
        return cls(
            tuple(
                FrequencyTable.from_frame(frame, identifiers, name, levels=levels.get(name))
                for name in names
            )
        )

    def __repr__(self) -> str:
        names = ", ".join(repr(name) for name in self.sensitive)
        whole, part = (
            np.count_nonzero(self.homogeneity == kind)
            for kind in (Homogeneity.COMPLETELY_HOMOGENEOUS, Homogeneity.PARTIALLY_HOMOGENEOUS)
        )
        return (
            f"SensitiveTables({names}: {self.n_cells} cells, {whole} completely and {part} "
            "partially homogeneous)"
        )

    @property
    def sensitive(self) -> tuple:
        """Names of the sensitive attributes."""
        return tuple(table.sensitive for table in self.tables)

    @property
    def n_cells(self) -> int:
        """Number of non-empty cells."""
        return self.tables[0].n_cells

    @property
    def sizes(self) -> np.ndarray:
        """Records per cell, shape (cells,)."""
        return self.tables[0].sizes

    @property
    def homogeneous(self) -> np.ndarray:
        """Whether each cell is homogeneous in each attribute, shape (cells, attributes)."""
        return np.stack([table.homogeneous for table in self.tables], axis=1)

    @property
    def homogeneity(self) -> np.ndarray:
        """Homogeneity of each cell over all attributes, shape (cells,); see `Homogeneity`."""
        mask = self.homogeneous
        return mask.any(axis=1).astype(int) + mask.all(axis=1)

    def local_risk(self, noise, kind: str = "exact") -> np.ndarray:
        """Local risk of each cell in each attribute.

        Parameters
        ----------
        noise : CountNoise, or sequence of CountNoise
            One mechanism for every table, or one for each. The privacy losses of the tables add
            up, because one record is counted in all of them.
        kind : {"exact", "refined", "paper_bound"}

        Returns
        -------
        ndarray of float, shape (cells, attributes)

        Raises
        ------
        InvalidNoise
            If ``noise`` is neither a mechanism nor one for each table.
        """
        noises = [noise] * len(self.tables) if isinstance(noise, CountNoise) else list(noise)
        if len(noises) != len(self.tables):
            raise InvalidNoise(
                f"{len(noises)} mechanisms were given for {len(self.tables)} tables; "
                "give one for all, or one for each"
            )
        columns = [
            local_risk(table, its_noise, kind)
            for table, its_noise in zip(self.tables, noises, strict=True)
        ]
        return np.stack(columns, axis=1)

    def number_disclosed(self, noise) -> np.ndarray:
        """Distribution of the number of attributes that a release discloses of each cell.

        Parameters
        ----------
        noise : CountNoise, or sequence of CountNoise
            As in :meth:`local_risk`.

        Returns
        -------
        ndarray of float, shape (cells, attributes + 1)
            Column j holds the probability that exactly j attributes are disclosed: column 0 that
            none is, the last that all are, because the tables have independent noises.
        """
        risk = self.local_risk(noise)
        pmf = np.zeros((len(risk), risk.shape[1] + 1))
        pmf[:, 0] = 1.0
        for column in risk.T:
            pmf[:, 1:] = pmf[:, 1:] * (1.0 - column[:, None]) + pmf[:, :-1] * column[:, None]
            pmf[:, 0] *= 1.0 - column
        return pmf
