"""Which pairs of states need their privacy rows, and the lists that each output keeps of them.

A row z_k >= E_ik z_i follows from two others, exactly when d(i, j) + d(j, k) = d(i, k), and nearly
when that sum is little larger. Nearly implied rows are what makes the program large and its
interior points slow, and each output needs few of them. So every output starts from the pairs of a
spanner and takes further pairs in when its own column comes close to violating them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from dephdp.optimal.kernels import Rows

# Relative tolerance of "d(i, j) + d(j, k) = d(i, k)": rounding of sums of a few distances.
COLLINEAR = 1e-12
# The rows are imposed at a budget smaller by this factor: far above the rounding of levels, of
# COLLINEAR and of row sums, far below any gap that is asked for.
TIGHTENED = 1 - 1e-9
# Stretches of the starting spanner: two per cent leave about ten pairs a state in the plane, but
# products of nominal attributes need more to leave few.
STRETCHES = 0.02, 0.1, 0.5
FEW_PAIRS = 16  # a state
# An unlisted pair is taken in once ln(z_i / z_j) has used up all but a small share of
# epsilon d(i, j): NEAR / n of it, but at most NEAREST. The more states, the more pairs come near.
NEAR, NEAREST = 15.0, 0.2


@dataclass(frozen=True)
class Neighbourhood:
    """The states as the privacy rows see them.

    Attributes
    ----------
    decay : ndarray, shape (n, n)
        E_ij = exp(-epsilon d(i, j)) at the tightened budget.
    essential : ndarray of bool, shape (n, n)
        Pairs that no third state implies.
    near : ndarray, shape (n, n)
        E to a power a little below one: where z_j < near_ij z_i, little slack is left.
    base : ndarray of int64, shape (pairs,)
        The pairs of the spanner, j < i, numbered i n + j, ascending.
    """

    decay: np.ndarray
    essential: np.ndarray
    near: np.ndarray
    base: np.ndarray

    @classmethod
    def build(cls, distances, epsilon, stretches=STRETCHES) -> Neighbourhood:
        """Find the essential pairs and a spanner of a metric, at the cost of n^3 comparisons.

        The spanner has the first of the stretches that leaves few pairs, or the last.
        """
        n = len(distances)
        essential = necessary_pairs(distances, COLLINEAR)
        for stretch in stretches:
            spanner = necessary_pairs(distances, stretch)
            if spanner.sum() <= 2 * FEW_PAIRS * n:
                break
        # A state at infinite distance from all others has no row, yet its entries have to be
        # kept from being negative: a pair with E = 0 does that.
        lonely = np.flatnonzero(~spanner.any(axis=1))
        partner = np.where(lonely == 0, 1, 0)
        if n > 1:
            spanner[lonely, partner] = spanner[partner, lonely] = True
        decay = np.exp(-epsilon * TIGHTENED * distances)
        i, j = np.nonzero(np.tril(spanner))
        near = min(NEAR / n, NEAREST)
        return cls(decay, essential | spanner, decay ** (1 - near), i.astype(np.int64) * n + j)

    @property
    def states(self) -> int:
        """Number of states n."""
        return len(self.decay)

    def listed(self, lists) -> np.ndarray:
        """Return the numbers (y n + i) n + j of the pairs of several outputs y, ascending.

        Parameters
        ----------
        lists : list of ndarray
            The pairs of each output, ascending.
        """
        square = self.states**2
        return np.concatenate([y * square + keys for y, keys in enumerate(lists)])

    def rows(self, listed, outputs: int) -> Rows:
        """Lay out listed pairs, ascending, for the kernels."""
        n = self.states
        ends = np.searchsorted(listed, np.arange(outputs * n + 1) * n)
        start = np.empty((outputs, n + 1), dtype=np.int64)
        start[:, :n] = ends[:-1].reshape(outputs, n)
        start[:, n] = ends[n::n]
        j = listed % n
        return Rows(start, j.astype(np.int32), self.decay[listed // n % n, j])


def necessary_pairs(distances, stretch=0.0) -> np.ndarray:
    """Return which pairs of states no third state implies: their rows imply all others.

    Parameters
    ----------
    distances : ndarray, shape (n, n)
        An extended pseudo-metric.
    stretch : float, optional
        How much longer, relative to d(i, k), a way over a third state may be. Zero takes the
        doubles as they are; `COLLINEAR` allows for rounding; more leaves the pairs of a spanner.

    Returns
    -------
    ndarray of bool, shape (n, n)
        False on the diagonal, at infinite distances, and where d(i, j) + d(j, k) is at most
        (1 + stretch) d(i, k) for some j.

    Notes
    -----
    The row of (i, k) is the product of those of (i, j) and (j, k). Both legs have to be strictly
    shorter than d(i, k): then each pair left out follows from strictly shorter ones and so, by
    induction, from pairs that are kept. The rounded sum can hide an excess of half a unit in the
    last place, far below what a solver resolves; certification looks at all pairs in any case.
    """
    nearest = np.argsort(distances, axis=1, kind="stable").astype(np.int32)
    return _unimplied(np.ascontiguousarray(distances), nearest, stretch)


@numba.njit(cache=True, nogil=True)
def _unimplied(distances, nearest, stretch):
    n = len(distances)
    kept = np.zeros((n, n), dtype=np.bool_)
    for i in range(n):
        for k in range(i):
            limit = distances[i, k] * (1 + stretch)
            if limit == np.inf:
                continue
            implied = False
            for j in nearest[i]:  # detours are short where the first leg is
                first = distances[i, j]
                if first >= distances[i, k]:
                    break
                if (
                    j != i
                    and distances[j, k] < distances[i, k]
                    and first + distances[j, k] <= limit
                ):
                    implied = True
                    break
            if not implied:
                kept[i, k] = kept[k, i] = True
    return kept
