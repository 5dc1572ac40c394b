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


@numba.njit(cache=True, nogil=True)
def search_partitions(n, largest, vanish, weight, shared, found, best, limit):
    """Find the counts of size n with the largest risk, by descent with bounds.

    Parameters
    ----------
    n, largest : int
        Size of the cell, and the largest count allowed in it.
    vanish, weight : ndarray, shape (n + 1,)
        u(c), non-increasing, and what a surviving count c collects: s(c), or (c / n) s(c).
    shared : bool
        Whether the weights are (c / n) s(c).
    found : float
        Risk of ``best``.
    best : ndarray of int64, shape (K,)
        A cell to start from; replaced by every better one.
    limit : int
        Largest number of partial cells to visit.

    Returns
    -------
    found : float
        Risk of ``best`` at the end.
    visited : int
        Number of partial cells visited; ``limit + 1`` when the search was given up.
    """
    levels = len(best)
    z, v = vanish[0], vanish[1]
    none, one = np.ones(levels + 1), np.zeros(levels + 1)
    left, part = np.full(levels + 1, n), np.zeros(levels + 1, np.int64)
    part[0] = largest + 1  # the last count tried at this depth
    depth, visited = 0, 0
    while depth >= 0:
        c = part[depth] - 1
        part[depth] = c
        if c < 1 or c * (levels - depth) < left[depth]:
            depth -= 1
            continue
        visited += 1
        if visited > limit:
            return found, visited
        rest, places = left[depth] - c, levels - depth - 1
        none_now = none[depth] * vanish[c]
        one_now = one[depth] * vanish[c] + none[depth] * weight[c]
        if rest == 0:
            value = one_now * z**places
            if value > found:
                found = value
                best[:] = 0
                best[: depth + 1] = part[: depth + 1]
            continue
        # The risk is affine in each u(c) still to come, which lies in [0, v]: bound by corners.
        bound, power = 0.0, 1.0
        for r in range(1, min(places, rest) + 1):
            if shared:
                inside, corner = rest / n, (rest - r + 1) / n
            else:
                inside, corner = float(r), 1.0
            value = max(one_now * v + none_now * inside * (1.0 - v), none_now * corner)
            bound = max(bound, value * power * z ** (places - r))
            power *= v
        if bound > found:
            depth += 1
            none[depth], one[depth], left[depth] = none_now, one_now, rest
            part[depth] = min(c, rest) + 1
    return found, visited


@numba.njit(cache=True, nogil=True)
def poisson_series(rates, vanish, survive):
    """Averages over Poisson counts: E u(c), E s(c) 1(c >= 1) and E s(c + 1).

    Parameters
    ----------
    rates : ndarray, shape (m,)
        Poisson means.
    vanish, survive : ndarray
        u(c) and s(c) up to well beyond the largest count that matters.

    Returns
    -------
    tuple of three ndarrays, shape (m,)
        The series are followed from the mode outwards and normalised by their own sum.
    """
    size = len(rates)
    gone, seen, more = np.zeros(size), np.zeros(size), np.zeros(size)
    last = len(vanish) - 2
    for i in range(size):
        x = rates[i]
        mode = int(x)
        total = 0.0
        w = 1.0
        for c in range(mode, last):
            total += w
            gone[i] += w * vanish[c]
            more[i] += w * survive[c + 1]
            if c > 0:
                seen[i] += w * survive[c]
            w *= x / (c + 1)
            if w < SMALLEST:
                break
        w = 1.0
        for c in range(mode - 1, -1, -1):
            w *= (c + 1) / x
            if w < SMALLEST:
                break
            total += w
            gone[i] += w * vanish[c]
            more[i] += w * survive[c + 1]
            if c > 0:
                seen[i] += w * survive[c]
        gone[i] /= total
        seen[i] /= total
        more[i] /= total
    return gone, seen, more


@numba.njit(cache=True, nogil=True)
def negative_binomial_series(shapes, t, start, first, vanish):
    """E u(c) 1(c >= 1) over negative binomial counts, Pr(c + 1) / Pr(c) = (c + shape) t / (c + 1).

    Parameters
    ----------
    shapes : ndarray, shape (m,)
    t : float
        One less the success probability.
    start : ndarray of int64, shape (m,)
        Counts from which the series are followed outwards, at least 1.
    first : ndarray, shape (m,)
        Probabilities of these counts.
    vanish : ndarray
        u(c), non-increasing; the series end with it at the latest.

    Returns
    -------
    ndarray, shape (m,)
    """
    result = np.zeros(len(shapes))
    for k in range(len(shapes)):
        w, total = first[k], 0.0
        for c in range(start[k], len(vanish)):
            term = w * vanish[c]
            total += term
            step = (c + shapes[k]) * t / (c + 1)
            if step < 1.0 and term < 1e-20 * (1.0 - step) * total:
                break
            w *= step
        w = first[k]
        for c in range(start[k] - 1, 0, -1):
            w *= (c + 1) / ((c + shapes[k]) * t)
            total += w * vanish[c]
        result[k] = total
    return result
