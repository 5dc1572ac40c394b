"""The column of least reduced cost: an interior point over the rows of few source states.

At prices u, output y can improve a mechanism if some vector v of its privacy cone has a negative
reduced cost <w, v>, w = q_y - u. Where w >= 0, v is as small as the rows allow; so only the rows
v_x >= E_ix v_i of the *sources* i, the states with w_i < 0, matter, and

    minimise <w, v>    subject to    v_x >= E_ix v_i  (i a source, x any other state),
                                     0 <= v_i <= 1    (i a source).

States that are no sources meet the sources only: their part of the normal matrix is diagonal, and a
step costs |sources|^2 n multiplications. The multipliers f of the rows prove the answer: by duality
<w, v> is at least the sum of the negative entries of w - A'f.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

_jit = numba.njit(
    cache=True,
    nogil=True,
    error_model="numpy",
    fastmath={"contract", "arcp", "nsz", "reassoc"},
)

_BACKOFF = 0.95  # fraction of the way to the boundary
_ITERATIONS = 80
_START = 1.0  # complementarity at the start, relative to the costs
_FAR = 1e-2  # weight of the rows to far states, relative to those to near ones

PRICED, CERTIFIED, UNSETTLED = 0, 1, -1


class Workspace(NamedTuple):
    """What pricing one output needs; rows of the first dimension belong to sources.

    Attributes
    ----------
    f, second, cross : ndarray, shape (n, n)
        Multipliers of the rows, their second-order term, and their part of the normal matrix.
    schur : ndarray, shape (n, n)
        Normal matrix of the sources once the other states are eliminated, then its factor.
    bounds, curvature : ndarray, shape (n, 2)
        Multipliers of the bounds 1 - v_i and v_i of the sources, and their second-order term.
    diagonal, right, affine : ndarray, shape (n,)
        Diagonal of the normal matrix, a step, and the affine step.
    sources, place : ndarray of int64, shape (n,)
        The sources, and the place of each state among them or -1.
    """

    f: np.ndarray
    second: np.ndarray
    cross: np.ndarray
    schur: np.ndarray
    bounds: np.ndarray
    curvature: np.ndarray
    diagonal: np.ndarray
    right: np.ndarray
    affine: np.ndarray
    sources: np.ndarray
    place: np.ndarray

    @classmethod
    def for_states(cls, n: int) -> Workspace:
        """Allocate the workspace of one thread."""
        square = [np.empty((n, n)) for _ in range(4)]
        pairs = [np.empty((n, 2)) for _ in range(2)]
        vectors = [np.empty(n) for _ in range(3)]
        return cls(*square, *pairs, *vectors, *(np.empty(n, dtype=np.int64) for _ in range(2)))


@_jit
def price_column(w, decay, spare, accuracy, v, entries, work):
    """Find the vector of least reduced cost, or multipliers that prove that there is none.

    Parameters
    ----------
    w : ndarray, shape (n,)
        Reduced costs of the entries.
    decay : ndarray, shape (n, n)
        E = exp(-epsilon d).
    spare : float
        A reduced cost above minus this counts as none.
    accuracy : float
        Relative gap at which a negative reduced cost is known well enough.
    v : ndarray, shape (n,)
        Receives the vector; zero if w has no negative entry.
    entries : ndarray, shape (n,)
        Receives w - A'f, with f as `work.f` holds it, a row a source.
    work : Workspace

    Returns
    -------
    status : int
        `PRICED`: the reduced cost <w, v> is negative and known to the accuracy. `CERTIFIED`: the
        negative entries sum to more than -spare. `UNSETTLED`: neither was reached; if rounding is
        to blame, v is zero and the entries are minus infinity.
    count : int
        Number of sources.
    """
    n = len(w)
    count = _find_sources(w, work)
    entries[:] = w
    v[:] = 0.0
    if count == 0:
        return CERTIFIED, 0
    products = _begin(w, decay, count, v, work)
    for _ in range(_ITERATIONS):
        gap = _assemble(w, decay, count, v, entries, work)
        if not np.isfinite(gap):
            v[:] = 0.0
            entries[:] = -np.inf
            return UNSETTLED, count
        cost = low = 0.0
        for x in range(n):
            cost += w[x] * v[x]
            low += min(0.0, entries[x])
        if low >= -spare:
            return CERTIFIED, count
        if cost < -spare and cost - low <= -accuracy * cost:
            return PRICED, count
        if not _factor(count, work):
            return UNSETTLED, count
        _direction(w, decay, count, v, work, 0.0, False)
        work.affine[:] = work.right
        primal, dual = _lengths(decay, count, v, work, False)
        left = _left(decay, count, v, work, primal, dual)
        target = gap / products * min(max((left / gap) ** 3, 1e-6), 1.0)
        _direction(w, decay, count, v, work, target, True)
        primal, dual = _lengths(decay, count, v, work, True)
        _advance(decay, count, v, work, min(1.0, _BACKOFF * primal), min(1.0, _BACKOFF * dual))
    return UNSETTLED, count


@_jit
def _find_sources(w, work):
    """List the states of negative reduced cost; return their number."""
    count = 0
    for x in range(len(w)):
        work.place[x] = -1
        if w[x] < 0:
            work.sources[count] = x
            work.place[x] = count
            count += 1
    return count


@_jit
def _begin(w, decay, count, v, work):
    """Start halfway between the bounds, products at their weights; return the sum of the weights.

    The weight of a row is E, but at least `_FAR`: far states hardly matter to a source.
    """
    n = len(w)
    scale = 0.0
    for x in range(n):
        scale += abs(w[x])
        v[x] = 0.5
    total = 2.0 * count
    for a in range(count):
        i = work.sources[a]
        for x in range(n):
            if x != i:
                total += max(decay[i, x], _FAR)
    mu = _START * scale / total
    for a in range(count):
        i = work.sources[a]
        for x in range(n):
            e = decay[i, x]
            work.f[a, x] = mu * max(e, _FAR) / (0.5 * (1 - e)) if x != i else 0.0
        work.bounds[a] = 2 * mu
    return total


@_jit
def _assemble(w, decay, count, v, entries, work):
    """Compute w - A'f, the normal matrix without what the states that are no sources add to it.

    Returns the sum of the products of slacks and multipliers.
    """
    gap = 0.0
    work.diagonal[:] = 0.0
    entries[:] = w
    for a in range(count):
        i = work.sources[a]
        vi, own, pulled = v[i], 0.0, 0.0
        f, cross = work.f[a], work.cross[a]
        for x in range(len(w)):
            e = decay[i, x]
            s = v[x] - e * vi if x != i else 1.0
            d = f[x] / s
            gap += f[x] * s
            work.diagonal[x] += d
            cross[x] = -e * d
            own += e * e * d
            entries[x] -= f[x]
            pulled += e * f[x]
        entries[i] += pulled
        g, h = work.bounds[a]
        gap += g * (1 - vi) + h * vi
        work.schur[a, a] = own + g / (1 - vi) + h / vi
    return gap


@_jit
def _factor(count, work):
    """Eliminate the states that are no sources and factor what is left; whether that works."""
    schur, cross, place = work.schur, work.cross, work.place
    for x in range(len(place)):  # scaled so that the elimination is a product of a matrix by itself
        work.right[x] = 1 / np.sqrt(work.diagonal[x]) if place[x] < 0 else 0.0
    for a in range(count):
        for x in range(len(place)):
            work.second[a, x] = cross[a, x] * work.right[x]
    for a in range(count):
        for b in range(a + 1):
            t = 0.0
            for x in range(len(place)):
                t += work.second[a, x] * work.second[b, x]
            if a == b:
                schur[a, a] += work.diagonal[work.sources[a]] - t
            else:
                schur[a, b] = cross[a, work.sources[b]] + cross[b, work.sources[a]] - t
    for a in range(count):
        for b in range(a + 1):
            t = schur[a, b]
            for c in range(b):
                t -= schur[a, c] * schur[b, c]
            if b < a:
                schur[a, b] = t / schur[b, b]
            elif t > 0:
                schur[a, a] = np.sqrt(t)
            else:
                return False
    return True


@_jit
def _direction(w, decay, count, v, work, target, corrected):
    """Put a Newton step of v into `work.right`: the affine one, or one that aims at products.

    With `corrected` set, the second-order term of the affine step is kept in `work.second` and
    `work.curvature`.
    """
    n = len(w)
    right, affine = work.right, work.affine
    for x in range(n):
        right[x] = -w[x]
    if corrected:
        for a in range(count):
            i = work.sources[a]
            vi, di, pulled = v[i], affine[i], 0.0
            f, second = work.f[a], work.second[a]
            for x in range(n):
                e = decay[i, x]
                s = v[x] - e * vi if x != i else 1.0
                ds = affine[x] - e * di
                aim = target * max(e, _FAR) + ds * f[x] * (1 + ds / s)
                second[x] = aim / s if x != i else 0.0
                right[x] += second[x]
                pulled += e * second[x]
            right[i] -= pulled
            g, h = work.bounds[a]
            below = (target + di * g * (di / (1 - vi) - 1)) / (1 - vi)
            above = (target + di * h * (1 + di / vi)) / vi
            work.curvature[a, 0], work.curvature[a, 1] = below, above
            right[i] -= below - above
    _solve(count, work)


@_jit
def _solve(count, work):
    """Solve the normal system for `work.right`, in place."""
    right, cross, schur, place = work.right, work.cross, work.schur, work.place
    n = len(place)
    for x in range(n):
        if place[x] < 0:
            right[x] /= work.diagonal[x]
    step = np.empty(count)
    for a in range(count):
        t = right[work.sources[a]]
        for x in range(n):
            if place[x] < 0:
                t -= cross[a, x] * right[x]
        for b in range(a):
            t -= schur[a, b] * step[b]
        step[a] = t / schur[a, a]
    for a in range(count - 1, -1, -1):
        t = step[a]
        for b in range(a + 1, count):
            t -= schur[b, a] * step[b]
        step[a] = t / schur[a, a]
    for a in range(count):
        t = step[a]
        for x in range(n):
            if place[x] < 0:
                right[x] -= cross[a, x] * t / work.diagonal[x]
    for a in range(count):
        right[work.sources[a]] = step[a]


@_jit
def _lengths(decay, count, v, work, corrected):
    """Return the primal and dual step lengths to the boundary, at most one each."""
    primal = dual = 1.0
    for a in range(count):
        i = work.sources[a]
        vi, di = v[i], work.right[i]
        f, second = work.f[a], work.second[a]
        for x in range(len(v)):
            if x != i:
                e = decay[i, x]
                s = v[x] - e * vi
                fall = (e * di - work.right[x]) / s
                rise = second[x] / f[x] if corrected else 0.0
                primal = max(primal, fall)
                dual = max(dual, 1 - fall - rise)
        g, h = work.bounds[a]
        primal = max(primal, max(di / (1 - vi), -di / vi))
        rise = work.curvature[a] if corrected else np.zeros(2)
        dual = max(dual, 1 - di / (1 - vi) - rise[0] / g)
        dual = max(dual, 1 + di / vi - rise[1] / h)
    return 1 / primal, 1 / dual


@_jit
def _left(decay, count, v, work, primal, dual):
    """Return the sum of the products after an affine step of these lengths."""
    total = 0.0
    for a in range(count):
        i = work.sources[a]
        vi, di = v[i], work.right[i]
        f = work.f[a]
        for x in range(len(v)):
            if x != i:
                e = decay[i, x]
                s, ds = v[x] - e * vi, work.right[x] - e * di
                total += (s + primal * ds) * f[x] * (1 - dual * (1 + ds / s))
        g, h = work.bounds[a]
        total += (1 - vi - primal * di) * g * (1 - dual * (1 - di / (1 - vi)))
        total += (vi + primal * di) * h * (1 - dual * (1 + di / vi))
    return total


@_jit
def _advance(decay, count, v, work, primal, dual):
    """Move by the corrected step."""
    for a in range(count):
        i = work.sources[a]
        vi, di = v[i], work.right[i]
        f, second = work.f[a], work.second[a]
        for x in range(len(v)):
            if x != i:
                e = decay[i, x]
                ds = work.right[x] - e * di
                f[x] += dual * (second[x] - f[x] * (1 + ds / (v[x] - e * vi)))
        g, h = work.bounds[a]
        work.bounds[a, 0] += dual * (work.curvature[a, 0] - g * (1 - di / (1 - vi)))
        work.bounds[a, 1] += dual * (work.curvature[a, 1] - h * (1 + di / vi))
    for x in range(len(v)):
        v[x] += primal * work.right[x]
