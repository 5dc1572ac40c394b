"""Compiled loops of the dynamic programme over levels. Imported only where they run."""

from __future__ import annotations

import numba
import numpy as np

SMALLEST = 1e-300  # weights below it, relative to the largest nearby, no longer count


@numba.njit(cache=True, nogil=True)
def absorb_level(none, one, vanish, weight, ratio, rest, start, wanted, new_none, new_one):
    """Add one level: split n records into c of this level and n - c of the levels before.

    The split has probability proportional to x(c) y(n - c), given through the ratios of
    successive terms, so that it can be followed outwards from any start and normalised by its
    own sum: only products and sums of positive numbers.

    Parameters
    ----------
    none, one : ndarray, shape (N + 1,)
        For n = 0..N records in the levels before: probability that all of them vanish, and the
        weight collected where exactly one survives.
    vanish, weight : ndarray, shape (N + 1,)
        u(c), and what a surviving count c collects.
    ratio, rest : ndarray, shape (N,)
        x(c + 1) / x(c) and y(d + 1) / y(d).
    start : ndarray of int64, shape (N + 1,)
        For each n, where the split is near its largest.
    wanted : ndarray of int64, descending
        The sizes n to compute. With all of N, ..., 0 the new arrays may be the old ones.
    new_none, new_one : ndarray
        Results, at the wanted positions.
    """
    for n in wanted:
        first = start[n]
        total, sum_none, sum_one = 0.0, 0.0, 0.0
        w = 1.0
        for c in range(first, n + 1):
            total += w
            before = w * none[n - c]
            sum_none += before * vanish[c]
            sum_one += before * weight[c] + w * vanish[c] * one[n - c]
            if c < n:
                w *= ratio[c] / rest[n - c - 1]
            if w < SMALLEST:
                break
        w = 1.0
        for c in range(first - 1, -1, -1):
            w *= rest[n - c - 1] / ratio[c]
            if w < SMALLEST:
                break
            total += w
            before = w * none[n - c]
            sum_none += before * vanish[c]
            sum_one += before * weight[c] + w * vanish[c] * one[n - c]
        new_none[n] = sum_none / total
        new_one[n] = sum_one / total


def all_sizes(largest: int) -> np.ndarray:
    """All sizes, descending: the order in which a level can be absorbed in place."""
    return np.arange(largest, -1, -1)
