"""What sanitising can do to a cell: the eight scenarios and their probabilities."""

from __future__ import annotations

import enum

import numpy as np

from drha.counts import check_cells, map_cells, tabulate
from drha.noise import CountNoise
from drha.risk import check_noise


class Scenario(enum.IntEnum):
    """The eight scenarios of Liu & Zhao, by their numbers: true cell, then released cell."""

    HOMOGENEOUS_SAME_LEVEL = 1
    HOMOGENEOUS_WRONG_LEVEL = 2
    HOMOGENEOUS_BECOMES_HETEROGENEOUS = 3
    HOMOGENEOUS_BECOMES_EMPTY = 4
    HETEROGENEOUS_STAYS_HETEROGENEOUS = 5
    HETEROGENEOUS_BECOMES_EMPTY = 6
    HETEROGENEOUS_WRONG_LEVEL = 7
    HETEROGENEOUS_TRUE_LEVEL = 8


def scenario_probabilities(counts, noise: CountNoise):
    """Probability of each of the eight scenarios, cell by cell.

    Parameters
    ----------
    counts : array_like of int, shape (cells, levels) or (levels,), or FrequencyTable
        Records per cell and sensitive level.
    noise : CountNoise
        The mechanism that sanitises every count, e.g. ``drha.laplace(1.0)``.

    Returns
    -------
    ndarray of float, shape (cells, 8)
        Column j holds ``Scenario(j + 1)``. A row sums to 1: over scenarios 1 to 4 for a
        homogeneous cell, 5 to 8 for a heterogeneous one. The scenarios are about cells with
        records; a cell without any has a row of zeros.

    Raises
    ------
    InvalidCounts
        If a count is negative, fractional or not finite.
    InvalidNoise
        If ``noise`` is not a count mechanism.

    Notes
    -----
    The levels are added one at a time, keeping the probabilities that so far none survived, a
    true level alone did, a wrong level alone did, or at least two did. Only positive terms are
    added, so small probabilities keep their relative precision. Scenarios 1 and 8 together are
    the exact :func:`drha.local_risk`.

    Examples
    --------
    >>> import drha
    >>> drha.scenario_probabilities([3, 0], drha.laplace(1.0)).round(3)
    array([0.668, 0.012, 0.291, 0.029, 0.   , 0.   , 0.   , 0.   ])
    """
    check_noise(noise)
    cells = check_cells(counts)
    vanishing, survival = tabulate(noise.vanishing, cells), tabulate(noise.survival, cells)

    def rule(levels: np.ndarray) -> np.ndarray:
        width = levels.shape[1]
        none, true, wrong, several = np.ones(width), *np.zeros((3, width))
        for count in levels:
            vanish, survive = vanishing(count), survival(count)
            several += (true + wrong) * survive
            true *= vanish
            wrong *= vanish
            first = none * survive
            true += np.where(count > 0, first, 0.0)
            wrong += np.where(count > 0, 0.0, first)
            none *= vanish
        support = np.count_nonzero(levels, axis=0)
        homogeneous = np.stack([true, wrong, several, none]) * (support == 1)
        heterogeneous = np.stack([several, none, wrong, true]) * (support > 1)
        return np.concatenate([homogeneous, heterogeneous])

    return map_cells(rule, cells, width=len(Scenario))
