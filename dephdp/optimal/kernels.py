"""Compiled loops of the block-structured interior point: one block an output, one block a time.

Each output y has a vector z_y over the states and, for each pair {i, j} of its own list, the rows
z_j - E_ij z_i >= 0 and z_i - E_ij z_j >= 0 with multipliers f. The lists of all outputs are stored
one after the other (`Rows`); within an output the pairs are sorted by i, then by j < i. The
functions without an underscore work on the blocks lo <= y < hi, release the interpreter lock and
write only what belongs to those blocks, so that threads may share the outputs among them.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

# Sums may be reordered and fused, which is what lets the loops be vectorised. Not-a-number and
# infinity keep their meaning: a failed factorisation shows as such.
_jit = numba.njit(
    cache=True,
    nogil=True,
    error_model="numpy",
    fastmath={"contract", "arcp", "nsz", "reassoc"},
)

PANEL = 16  # columns eliminated at once: their panel stays in the nearest cache


class Rows(NamedTuple):
    """Pairs of states whose two privacy rows are enforced, output by output.

    Attributes
    ----------
    start : ndarray of int64, shape (m, n + 1)
        The pairs (i, j) of output y, j < i, are at positions start[y, i] to start[y, i + 1] - 1.
    other : ndarray of int32, shape (pairs,)
        The smaller state j.
    decay : ndarray, shape (pairs,)
        E_ij = exp(-epsilon d(i, j)).
    """

    start: np.ndarray
    other: np.ndarray
    decay: np.ndarray


class Workspace(NamedTuple):
    """What one thread needs for itself.

    Attributes
    ----------
    matrix : ndarray, shape (n, n)
        The normal matrix of the block at hand, then minus its inverse (lower triangles).
    total : ndarray, shape (n, n)
        Sum of the inverses of this thread's blocks (lower triangle).
    panel, panel_rows, pivot : ndarray, shapes (n, PANEL), (PANEL, n), (PANEL, PANEL)
        Columns under elimination.
    """

    matrix: np.ndarray
    total: np.ndarray
    panel: np.ndarray
    panel_rows: np.ndarray
    pivot: np.ndarray

    @classmethod
    def for_states(cls, n: int) -> Workspace:
        """Allocate the workspace of one thread."""
        return cls(
            np.zeros((n, n)),
            np.zeros((n, n)),
            np.zeros((n, PANEL)),
            np.zeros((PANEL, n)),
            np.zeros((PANEL, PANEL)),
        )


# ---------------------------------------------------------------------------------------------
# Dense symmetric algebra
# ---------------------------------------------------------------------------------------------


@_jit
def _downdate(matrix, left, right, first):
    """Subtract left @ right from the lower triangle of matrix[first:, first:]."""
    n = len(matrix)
    i = first
    while i + 1 < n:  # two rows at a time, four columns of the panel at a time
        row, below = matrix[i][first:], matrix[i + 1][first:]
        for k in range(0, PANEL, 4):
            a0, a1, a2, a3 = left[i, k], left[i, k + 1], left[i, k + 2], left[i, k + 3]
            b0, b1 = left[i + 1, k], left[i + 1, k + 1]
            b2, b3 = left[i + 1, k + 2], left[i + 1, k + 3]
            r0, r1 = right[k][first:], right[k + 1][first:]
            r2, r3 = right[k + 2][first:], right[k + 3][first:]
            for j in range(i + 2 - first):
                c0, c1, c2, c3 = r0[j], r1[j], r2[j], r3[j]
                row[j] -= a0 * c0 + a1 * c1 + a2 * c2 + a3 * c3
                below[j] -= b0 * c0 + b1 * c1 + b2 * c2 + b3 * c3
        i += 2
    if i < n:
        for k in range(PANEL):
            a = left[i, k]
            for j in range(first, i + 1):
                matrix[i, j] -= a * right[k, j]


@_jit
def _factor_pivot(matrix, k0, width, pivot):
    """Cholesky factor of the diagonal block at k0 into pivot; whether it is positive definite."""
    for c in range(width):
        for a in range(c + 1):
            s = matrix[k0 + c, k0 + a]
            for t in range(a):
                s -= pivot[c, t] * pivot[a, t]
            if a < c:
                pivot[c, a] = s / pivot[a, a]
            elif s > 0:
                pivot[c, c] = np.sqrt(s)
            else:
                return False
    return True


@_jit
def _invert_pivot(matrix, k0, width, pivot):
    """Put minus the inverse of pivot @ pivot' on the diagonal block at k0; spoils pivot."""
    for c in range(width):
        pivot[c, c] = 1 / pivot[c, c]
        for a in range(c):
            s = 0.0
            for t in range(a, c):
                s += pivot[c, t] * pivot[t, a]
            pivot[c, a] = -s * pivot[c, c]
    for c in range(width):
        for a in range(c + 1):
            s = 0.0
            for t in range(c, width):
                s += pivot[t, c] * pivot[t, a]
            matrix[k0 + c, k0 + a] = -s


@_jit
def factor(matrix, factors, panel, panel_rows, pivot, invert):
    """Cholesky-factor a symmetric matrix and, if asked, invert it in the same sweep.

    Parameters
    ----------
    matrix : ndarray, shape (n, n)
        Its lower triangle is read, then overwritten: by minus the inverse if `invert` is set,
        else by intermediate values.
    factors : ndarray, shape (n (n + 1) / 2,)
        Receives the factor L of matrix = L L', row after row.
    panel, panel_rows, pivot : ndarray
        See `Workspace`.
    invert : bool

    Returns
    -------
    bool
        Whether the matrix is positive definite to working precision.

    Notes
    -----
    The symmetric sweep (block Gauss-Jordan) operator: eliminating the columns K replaces the rest
    by its Schur complement and the swept part by minus the inverse of the matrix swept so far. The
    columns that it eliminates are those of L, so n^3/3 multiplications of the factorisation are
    shared with the inverse. Without inversion only the trailing block is updated.
    """
    n = len(matrix)
    for k0 in range(0, n, PANEL):
        width = min(PANEL, n - k0)
        k1 = k0 + width
        first = 0 if invert else k1
        if not _factor_pivot(matrix, k0, width, pivot):
            return False
        for c in range(width):
            for i in range(first, k0):
                panel_rows[c, i] = matrix[k0 + c, i]
            for i in range(k0, k1):
                panel_rows[c, i] = 0.0
            for i in range(k1, n):
                panel_rows[c, i] = matrix[i, k0 + c]
        for c in range(width, PANEL):
            panel_rows[c] = 0.0
        for c in range(width):  # solve against the pivot's factor, a column of the panel at a time
            column = panel_rows[c][first:]
            for t in range(c):
                a = pivot[c, t]
                earlier = panel_rows[t][first:]
                for i in range(n - first):
                    column[i] -= a * earlier[i]
            a = 1 / pivot[c, c]
            for i in range(n - first):
                column[i] *= a
        for c in range(PANEL):
            for i in range(first, n):
                panel[i, c] = panel_rows[c, i]
        for i in range(k0, k1):
            at = i * (i + 1) // 2 + k0
            for c in range(i - k0 + 1):
                factors[at + c] = pivot[i - k0, c]
        for i in range(k1, n):
            at = i * (i + 1) // 2 + k0
            for c in range(width):
                factors[at + c] = panel[i, c]
        _downdate(matrix, panel, panel_rows, first)
        if invert:
            for c in range(width - 1, -1, -1):
                column = panel_rows[c]
                for t in range(c + 1, width):
                    a = pivot[t, c]
                    later = panel_rows[t]
                    for i in range(n):
                        column[i] -= a * later[i]
                a = 1 / pivot[c, c]
                for i in range(n):
                    column[i] *= a
            for c in range(width):
                for i in range(k0):
                    matrix[k0 + c, i] = panel_rows[c, i]
                for i in range(k1, n):
                    matrix[i, k0 + c] = panel_rows[c, i]
            _invert_pivot(matrix, k0, width, pivot)
    return True


@_jit
def solve_factored(factors, right, out):
    """Solve L L' out = right, L packed by rows as `factor` leaves it; out may be right."""
    n = len(right)
    for i in range(n):
        at = i * (i + 1) // 2
        s = right[i]
        for j in range(i):
            s -= factors[at + j] * out[j]
        out[i] = s / factors[at + i]
    for i in range(n - 1, -1, -1):
        at = i * (i + 1) // 2
        a = out[i] / factors[at + i]
        out[i] = a
        for j in range(i):
            out[j] -= factors[at + j] * a


# ---------------------------------------------------------------------------------------------
# One block of the Newton system
# ---------------------------------------------------------------------------------------------


@_jit
def _assemble(z, f, start, other, decay, matrix, pull):
    """Put A' diag(f/s) A into the lower triangle, A'f into pull, and return <f, s>."""
    n = len(z)
    gap = 0.0
    for i in range(n):
        pull[i] = 0.0
        for j in range(i + 1):
            matrix[i, j] = 0.0
    for i in range(n):
        zi = z[i]
        diagonal = 0.0
        pulled = 0.0
        for p in range(start[i], start[i + 1]):
            j = other[p]
            e = decay[p]
            s0, s1 = z[j] - e * zi, zi - e * z[j]
            f0, f1 = f[p, 0], f[p, 1]
            d0, d1 = f0 / s0, f1 / s1
            gap += f0 * s0 + f1 * s1
            matrix[i, j] = -e * (d0 + d1)
            matrix[j, j] += d0 + e * e * d1
            diagonal += d1 + e * e * d0
            pull[j] += f0 - e * f1
            pulled += f1 - e * f0
        matrix[i, i] += diagonal
        pull[i] += pulled
    return gap


@_jit
def _reweigh(z, f, start, other, decay, negative_inverse, floor, weight):
    """Move the weights half way (on a log scale) towards the leverage scores of the rows."""
    for i in range(len(z)):
        zi = z[i]
        hii = -negative_inverse[i, i]
        for p in range(start[i], start[i + 1]):
            j = other[p]
            e = decay[p]
            hjj = -negative_inverse[j, j]
            cross = -2 * e * negative_inverse[i, j]
            s0, s1 = z[j] - e * zi, zi - e * z[j]
            l0 = f[p, 0] / s0 * (hjj + e * e * hii - cross)
            l1 = f[p, 1] / s1 * (hii + e * e * hjj - cross)
            weight[p, 0] = np.sqrt(weight[p, 0] * max(l0, floor))
            weight[p, 1] = np.sqrt(weight[p, 1] * max(l1, floor))


@_jit
def factor_blocks(lo, hi, rows, z, f, weight, floor, factors, pull, gap, work, invert):
    """Factor the normal matrix of each block.

    Fills factors (m, n (n + 1) / 2), pull = A'f (m, n) and gap = <f, s> (m,); with `invert` set
    also adds the inverses up in work.total and updates the weights. Late in the iteration rounding
    may cost a normal matrix its definiteness: its diagonal is then inflated, as little as helps.

    Returns
    -------
    bool
        False if a normal matrix cannot be factored.
    """
    matrix = work.matrix
    work.total[:] = 0.0
    for y in range(lo, hi):
        lift = 0.0
        while True:
            gap[y] = _assemble(z[y], f, rows.start[y], rows.other, rows.decay, matrix, pull[y])
            for i in range(len(matrix)):
                matrix[i, i] *= 1 + lift
            if factor(matrix, factors[y], work.panel, work.panel_rows, work.pivot, invert):
                break
            lift = max(1e-15, 10 * lift)
            if lift > 1e-6:
                return False
        if invert:
            for i in range(len(matrix)):
                for j in range(i + 1):
                    work.total[i, j] -= matrix[i, j]
            _reweigh(z[y], f, rows.start[y], rows.other, rows.decay, matrix, floor, weight)
    return True


@_jit
def start_blocks(lo, hi, rows, reduced, weight, factors, f, work):
    """Find multipliers with A'f_y = reduced_y > 0 whose products with s are centred at z constant.

    They are f(i -> j) = g_j w_ij / (1 - E_ij), with g the solution of an M-matrix system, hence
    positive. `weight` has shape (pairs,); `factors` is scratch of one block.
    """
    n = reduced.shape[1]
    matrix = work.matrix
    g = np.empty(n)
    for y in range(lo, hi):
        for i in range(n):
            for j in range(i + 1):
                matrix[i, j] = 0.0
        for i in range(n):
            for p in range(rows.start[y, i], rows.start[y, i + 1]):
                j, e = rows.other[p], rows.decay[p]
                r = weight[p] / (1 - e)
                matrix[i, i] += r
                matrix[j, j] += r
                matrix[i, j] = -e * r
        if not factor(matrix, factors, work.panel, work.panel_rows, work.pivot, False):
            return False
        solve_factored(factors, reduced[y], g)
        for i in range(n):
            for p in range(rows.start[y, i], rows.start[y, i + 1]):
                r = weight[p] / (1 - rows.decay[p])
                f[p, 0], f[p, 1] = g[rows.other[p]] * r, g[i] * r
    return True


@_jit
def solve_blocks(lo, hi, factors, right, out):
    """Solve H_y out_y = right_y for each block."""
    for y in range(lo, hi):
        solve_factored(factors[y], right[y], out[y])


@_jit
def affine_blocks(lo, hi, rows, z, f, dz, aim, out):
    """Measure the affine step of each block, in which f changes by -f (1 + ds/s).

    Fills the change of complementarity aimed at, aim = -s f (pairs, 2). out (m, 4) receives the
    largest relative decrease of s, that of f, and the coefficients <f, ds> and <ds, df> of the
    complementarity as a function of the step lengths.
    """
    for y in range(lo, hi):
        primal = dual = linear = quadratic = 0.0
        for i in range(z.shape[1]):
            zi, di = z[y, i], dz[y, i]
            for p in range(rows.start[y, i], rows.start[y, i + 1]):
                j = rows.other[p]
                e = rows.decay[p]
                zj, dj = z[y, j], dz[y, j]
                d0, d1 = dj - e * di, di - e * dj
                s0, s1 = zj - e * zi, zi - e * zj
                t0, t1 = d0 / s0, d1 / s1
                v0, v1 = f[p, 0] * d0, f[p, 1] * d1
                aim[p, 0], aim[p, 1] = -f[p, 0] * s0, -f[p, 1] * s1
                primal = max(primal, max(-t0, -t1))
                dual = max(dual, max(t0, t1))
                linear += v0 + v1
                quadratic -= v0 * (1 + t0) + v1 * (1 + t1)
        out[y, 0], out[y, 1], out[y, 2], out[y, 3] = primal, 1 + dual, linear, quadratic


@_jit
def aim_blocks(lo, hi, rows, z, f, weight, dz, target, residual, aim, right):
    """Aim at s f = target w, corrected to second order along the affine step dz.

    Fills the change of complementarity `aim` (pairs, 2) and right = A'(aim/s) - residual (m, n).
    target has shape (m,).
    """
    n = z.shape[1]
    for y in range(lo, hi):
        for i in range(n):
            right[y, i] = -residual[y, i]
        for i in range(n):
            zi, di = z[y, i], dz[y, i]
            pulled = 0.0
            for p in range(rows.start[y, i], rows.start[y, i + 1]):
                j = rows.other[p]
                e = rows.decay[p]
                zj, dj = z[y, j], dz[y, j]
                s0, s1 = zj - e * zi, zi - e * zj
                t0, t1 = (dj - e * di) / s0, (di - e * dj) / s1
                r0 = target[y] * weight[p, 0] + f[p, 0] * s0 * (t0 * (1 + t0) - 1)
                r1 = target[y] * weight[p, 1] + f[p, 1] * s1 * (t1 * (1 + t1) - 1)
                aim[p, 0], aim[p, 1] = r0, r1
                r0 /= s0
                r1 /= s1
                right[y, j] += r0 - e * r1
                pulled += r1 - e * r0
            right[y, i] += pulled


@_jit
def correct_blocks(
    lo, hi, rows, z, f, weight, primal, dual, aim, reach, target, residual, new_aim, right
):
    """Redirect a step so that outlying products s f come back towards their targets.

    The trial step moves z along `primal` and f along `dual` and `aim`, by the lengths reach (m, 2).
    Products outside [0.1, 10] times the target are pulled to that interval, from above by ten
    targets at most (Gondzio's correctors).
    """
    n = z.shape[1]
    for y in range(lo, hi):
        a, b = reach[y, 0], reach[y, 1]
        for i in range(n):
            right[y, i] = -residual[y, i]
        for i in range(n):
            zi, pi, di = z[y, i], primal[y, i], dual[y, i]
            pulled = 0.0
            for p in range(rows.start[y, i], rows.start[y, i + 1]):
                j = rows.other[p]
                e = rows.decay[p]
                zj, pj, dj = z[y, j], primal[y, j], dual[y, j]
                s0, s1 = zj - e * zi, zi - e * zj
                q0, q1 = 1 / s0, 1 / s1
                r0, r1 = aim[p, 0], aim[p, 1]
                g0 = f[p, 0] + b * (r0 - f[p, 0] * (dj - e * di)) * q0
                g1 = f[p, 1] + b * (r1 - f[p, 1] * (di - e * dj)) * q1
                v0, v1 = (s0 + a * (pj - e * pi)) * g0, (s1 + a * (pi - e * pj)) * g1
                w0, w1 = target[y] * weight[p, 0], target[y] * weight[p, 1]
                r0 += max(min(max(v0, 0.1 * w0), 10 * w0) - v0, -10 * w0)
                r1 += max(min(max(v1, 0.1 * w1), 10 * w1) - v1, -10 * w1)
                new_aim[p, 0], new_aim[p, 1] = r0, r1
                r0 *= q0
                r1 *= q1
                right[y, j] += r0 - e * r1
                pulled += r1 - e * r0
            right[y, i] += pulled


@_jit
def ratio_blocks(lo, hi, rows, z, f, primal, dual, aim, trial, trial_aim, blend, out):
    """Measure blends of a step and a trial step.

    For each share blend[y, k] of the trial, out (m, shares, 2) receives the largest relative
    decreases of s, along `primal`, and of f, along `dual` and `aim`.
    """
    for y in range(lo, hi):
        for k in range(blend.shape[1]):
            out[y, k, 0] = out[y, k, 1] = 0.0
        for i in range(z.shape[1]):
            zi, pi, di, ti = z[y, i], primal[y, i], dual[y, i], trial[y, i]
            for p in range(rows.start[y, i], rows.start[y, i + 1]):
                j = rows.other[p]
                e = rows.decay[p]
                zj, pj, dj, tj = z[y, j], primal[y, j], dual[y, j], trial[y, j]
                q0, q1 = 1 / (zj - e * zi), 1 / (zi - e * zj)
                p0, p1 = (pj - e * pi) * q0, (pi - e * pj) * q1
                t0, t1 = (tj - e * ti) * q0, (ti - e * tj) * q1
                h0, h1 = q0 / f[p, 0], q1 / f[p, 1]
                d0, d1 = (dj - e * di) * q0 - aim[p, 0] * h0, (di - e * dj) * q1 - aim[p, 1] * h1
                g0, g1 = t0 - trial_aim[p, 0] * h0, t1 - trial_aim[p, 1] * h1
                for k in range(blend.shape[1]):
                    b = blend[y, k]
                    a = 1 - b
                    out[y, k, 0] = max(out[y, k, 0], -min(a * p0 + b * t0, a * p1 + b * t1))
                    out[y, k, 1] = max(out[y, k, 1], max(a * d0 + b * g0, a * d1 + b * g1))


@_jit
def advance_blocks(lo, hi, rows, z, f, primal, dual, aim, step):
    """Move z along `primal`, f along `dual` and `aim`, by the lengths step (m, 2)."""
    for y in range(lo, hi):
        a, b = step[y, 0], step[y, 1]
        for i in range(z.shape[1]):
            zi, di = z[y, i], dual[y, i]
            for p in range(rows.start[y, i], rows.start[y, i + 1]):
                j = rows.other[p]
                e = rows.decay[p]
                q0, q1 = 1 / (z[y, j] - e * zi), 1 / (zi - e * z[y, j])
                t0, t1 = (dual[y, j] - e * di) * q0, (di - e * dual[y, j]) * q1
                f[p, 0] += b * (aim[p, 0] * q0 - f[p, 0] * t0)
                f[p, 1] += b * (aim[p, 1] * q1 - f[p, 1] * t1)
        for i in range(z.shape[1]):
            z[y, i] += a * primal[y, i]


# ---------------------------------------------------------------------------------------------
# Rows that are not in the lists
# ---------------------------------------------------------------------------------------------


@_jit
def scan_blocks(lo, hi, rows, z, dz, step, decay, near, essential, ratio, found, capacity):
    """Look at every pair of states, listed or not, along the step dz.

    Parameters
    ----------
    step : ndarray, shape (m, 2)
        Step lengths intended; the first column is the primal one.
    decay, essential : ndarray, shape (n, n)
        E, and the pairs that no third state implies.
    near : ndarray, shape (n, n)
        A pair that is not listed is reported when, after the step, z_j < near_ij z_i or
        z_i < near_ij z_j; near is somewhat larger than E.
    ratio : ndarray, shape (m,)
        Receives the largest relative decrease of a slack over dz among the pairs reported.
    found : ndarray of int32, shape (capacity, 3)
        Receives (y, i, j) of the pairs reported, as far as the capacity reaches.

    Returns
    -------
    int
        How many pairs there are to report.
    """
    n = z.shape[1]
    listed = np.zeros(n, dtype=np.bool_)
    count = 0
    for y in range(lo, hi):
        a = step[y, 0]
        ratio[y] = 0.0
        for i in range(n):
            zi, di = z[y, i], dz[y, i]
            ni = zi + a * di
            begin, end = rows.start[y, i], rows.start[y, i + 1]
            for p in range(begin, end):
                listed[rows.other[p]] = True
            for j in range(i):
                nj = z[y, j] + a * dz[y, j]
                if nj < near[i, j] * ni or ni < near[i, j] * nj:
                    if listed[j] or not essential[i, j]:
                        continue
                    e = decay[i, j]
                    zj, dj = z[y, j], dz[y, j]
                    t0, t1 = (dj - e * di) / (zj - e * zi), (di - e * dj) / (zi - e * zj)
                    ratio[y] = max(ratio[y], max(-t0, -t1))
                    if count < capacity:
                        found[count, 0], found[count, 1], found[count, 2] = y, i, j
                    count += 1
            for p in range(begin, end):
                listed[rows.other[p]] = False
    return count
