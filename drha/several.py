"""Several sensitive attributes: which cells are homogeneous in some or all, and joint disclosure.

With q >= 2 sensitive attributes a cell of the quasi-identifiers is homogeneous or heterogeneous in
each of them. Each attribute has a frequency table of its own over the same cells, sanitised with
noise of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from drha.errors import InvalidNoise, InvalidTable
from drha.noise import CountNoise
from drha.risk import local_risk
from drha.table import FrequencyTable

if TYPE_CHECKING:
    import pandas as pd


class Homogeneity(enum.IntEnum):
    """How homogeneous a cell is in several sensitive attributes (after Definitions 4 and 5)."""

    COMPLETELY_HETEROGENEOUS = 0
    PARTIALLY_HOMOGENEOUS = 1
    COMPLETELY_HOMOGENEOUS = 2


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
