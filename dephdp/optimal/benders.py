"""Benders decomposition over a partition of the states: an exact solver to check the others by.

A pair of states is *necessary* if no third state lies between them; the rows of the necessary pairs
imply all others. Split the states into parts and let the boundary be states that meet every
necessary pair across parts. Once the boundary's rows ``z_S`` are fixed, what remains of each part,
its interior, is on its own: its privacy rows towards the boundary are bounds,

    max_s E_si z_sy <= z_iy <= min_s z_sy / E_is,        E = exp(-epsilon d).

The master problem chooses ``z_S``, private among themselves, and estimates the loss of each
interior from below; the block problem of an interior computes it. By duality, with prices ``u`` of
its row sums and reduced costs of its bounds, the block's loss is at least ``sum(u) + <G, z_S>`` for
every ``z_S``, with equality at the one it was solved for: an optimality cut. If a block has no
channel at all, the duals of its phase one exclude that ``z_S``: a feasibility cut. All pairs are
enforced, and the master's own duals, combined with those of its cuts, are multipliers of the
whole linear program.

The price of exactness is the boundary. On a line it is one state a cut; on an L1 grid one row of
states; but where every pair is necessary (points in general position) it is everything except one
part, and the master has ``|S| m`` variables. Cuts are taken between the master's answer and the
best one so far (Ben-Ameur and Neto, Acceleration of cutting-plane and column generation algorithms,
Networks 49, 2007), which halves their number and more.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import highspy
import numpy as np
from scipy import sparse

from dephdp.channel import Channel
from dephdp.errors import SolverError
from dephdp.optimal.bound import lower_bound
from dephdp.optimal.highs import QuietHighs
from dephdp.optimal.pairs import COLLINEAR, necessary_pairs
from dephdp.optimal.problem import EngineResult, Multipliers, Problem

_STEP = 0.2  # where cuts are taken, on the way from the best answer to the master's
_PATIENCE = 50  # iterations in which neither bound moves before rounding is to blame
_TOLERANCE = 1e-9  # HiGHS's own, of rows and reduced costs, after scaling the loss to one
_ZERO = 1e-9  # losses this small, on a scale where the largest weighted loss is one, count as zero
_TIE = 1e-12  # among boundary entries that are zero, the nearest state's gives the deepest cut


def solve(
    problem: Problem,
    *,
    tol: float = 1e-6,
    deadline: float | None = None,
    labels=None,
    iterations: int = 10_000,
) -> EngineResult:
    """Solve the optimal-mechanism problem by Benders decomposition.

    Parameters
    ----------
    problem : Problem
        A metric, with positive distances between different states; infinity is allowed.
    tol : float, optional
        Relative gap (loss - lower bound) / |loss| at which to stop.
    deadline : float, optional
        Value of `time.monotonic` after which the best answer so far is returned; looked at between
        iterations.
    labels : array_like of int, shape (n,), optional
        The part of each state; `halves` of the metric by default.
    iterations : int, optional
        How many times the master is solved at most.

    Returns
    -------
    EngineResult
        The matrix is repaired, hence private at the problem's budget, and its status says
        ``"optimal"`` only if the gap holds between it and the bound that the multipliers prove.

    Raises
    ------
    SolverError
        If HiGHS fails on the master or on a block.

    Notes
    -----
    Each iteration solves one linear program in ``|S| m`` variables and one of ``|I| m`` for each
    interior, warm-started. Finitely many cuts exist, so the method ends; the number met in practice
    grows with ``|S| m``: tens on lines and L1 grids, hundreds where every pair is necessary, which
    is slower than solving the whole program at once. Cuts hold factors ``1 / E``: beyond an epsilon
    times diameter of about 40 the tolerance of the solver shows in them, and the answer is
    ``"stalled"`` at a larger gap.
    """
    necessary = necessary_pairs(problem.distances, COLLINEAR)
    labels = halves(problem.distances) if labels is None else _check_labels(labels, problem.states)
    boundary = boundary_states(necessary, labels)
    scale = np.abs(problem.weighted_loss).max() or 1.0
    costs = problem.weighted_loss / scale
    decay = np.exp(-problem.epsilon * problem.distances)
    interiors = [np.setdiff1d(np.flatnonzero(labels == k), boundary) for k in np.unique(labels)]
    blocks = [_Block(i, boundary, costs, decay, necessary) for i in interiors if len(i)]
    master = _Master(boundary, costs, decay, problem.distances, blocks)
    best, value = _constant(costs), costs.sum(axis=0).min()
    centre, at_centre = np.full((len(boundary), problem.outputs), 1 / problem.outputs), np.inf

    status, idle, bound = "stalled", 0, -np.inf
    for count in range(1, iterations + 1):
        answer = master.solve()
        idle = 0 if master.value > bound + _TOLERANCE else idle + 1
        bound = max(bound, master.value)
        if value - bound <= tol / 2 * max(abs(value), _ZERO) or idle > _PATIENCE:
            break
        if count == iterations:
            break
        if deadline is not None and time.monotonic() >= deadline:
            status = "time_limit"
            break
        query = _closed(centre + _STEP * (answer - centre), decay[np.ix_(boundary, boundary)])
        cuts = [block.solve(query) for block in blocks]
        for k, cut in enumerate(cuts):
            master.add(k, cut)
        loss = np.sum(costs[boundary] * query) + sum(cut.loss for cut in cuts)
        if loss < at_centre:
            idle = 0 if loss < at_centre - _TOLERANCE else idle
            centre, at_centre = query, loss
        if loss < value:
            value, best = loss, _assembled(query, cuts, boundary, blocks)

    return _certified(problem, best, master.multipliers(costs.shape, scale), tol, count, status)


def halves(distances) -> np.ndarray:
    """Return labels 0 and 1 that cut the states in two between two states far apart.

    Parameters
    ----------
    distances : ndarray, shape (n, n)

    Returns
    -------
    ndarray of int, shape (n,)
        States ordered by how much nearer they are to one of two farthest states than to the other,
        and cut in the middle.
    """
    finite = np.where(np.isfinite(distances), distances, 0.0)
    finite = np.where(np.isfinite(distances), distances, 2 * finite.max() + 1)
    first, last = np.unravel_index(np.argmax(finite), finite.shape)
    order = np.argsort(finite[first] - finite[last], kind="stable")
    labels = np.zeros(len(distances), dtype=np.int64)
    labels[order[len(order) // 2 :]] = 1
    return labels


def boundary_states(necessary, labels) -> np.ndarray:
    """Return states that meet every necessary pair across parts, few where that is easy.

    Parameters
    ----------
    necessary : ndarray of bool, shape (n, n)
        See `dephdp.optimal.pairs.necessary_pairs`.
    labels : ndarray of int, shape (n,)
        The part of each state.

    Returns
    -------
    ndarray of int
        A vertex cover of the pairs across parts, chosen greedily; ascending.
    """
    across = necessary & (labels[:, None] != labels[None, :])
    cover = []
    while across.any():
        state = int(np.argmax(across.sum(axis=1)))
        cover.append(state)
        across[state] = across[:, state] = False
    return np.array(sorted(cover), dtype=np.int64)


@dataclass(frozen=True)
class _Cut:
    """A bound ``intercept + <slope, z_S>``, on a block's loss or, if infeasible, on zero."""

    intercept: float
    slope: np.ndarray
    loss: float  # infinite for a feasibility cut
    channel: np.ndarray | None
    multipliers: Multipliers


class _Block:
    """The interior of a part: its best completion of given rows on the boundary."""

    def __init__(self, interior, boundary, costs, decay, necessary):
        self.interior, self.boundary = interior, boundary
        self.least = float(costs[interior].min(axis=1).sum())
        facing = necessary[np.ix_(interior, boundary)]
        self._decay = np.where(facing, decay[np.ix_(interior, boundary)], 0.0)
        self._source, self._target = np.nonzero(necessary[np.ix_(interior, interior)])
        within = decay[np.ix_(interior, interior)][self._source, self._target]
        self._program = _Program(costs[interior], self._source, self._target, within)
        self._phase_one = _Program(
            np.zeros(costs[interior].shape), self._source, self._target, within, elastic=True
        )

    def solve(self, boundary_rows) -> _Cut:
        """Return the optimality cut at these rows, or the feasibility cut that excludes them."""
        with np.errstate(divide="ignore"):
            weights = self._decay[:, :, None]
            low = weights * (boundary_rows + _TIE)
            high = np.where(weights > 0, boundary_rows / weights, np.inf)
        if len(self.boundary):
            below, above = low.argmax(axis=1), high.argmin(axis=1)
            low = np.take_along_axis(weights * boundary_rows, below[:, None], axis=1)[:, 0]
            high = np.maximum(high.min(axis=1), low)
            high[high > 1] = np.inf  # the row sums see to that
        else:
            below = above = np.zeros((len(self.interior), boundary_rows.shape[1]), dtype=np.int64)
            low, high = np.zeros(below.shape), np.full(below.shape, np.inf)
        feasible = self._program.solve(low, high)
        program = self._program if feasible else self._phase_one
        if not feasible and not self._phase_one.solve(low, high):
            raise SolverError("HiGHS finds a block's phase one infeasible, which it never is")
        return self._cut(program, below, above, feasible)

    def _cut(self, program, below, above, feasible):
        """Turn reduced costs into multipliers of the rows that the active bounds stand for."""
        channel, reduced, rows, prices = program.solution()
        slope = np.zeros((len(self.boundary), channel.shape[1]))
        pair, output = np.nonzero(rows > 0)
        parts = [
            Multipliers(
                self.interior[self._source[pair]],
                self.interior[self._target[pair]],
                output,
                rows[pair, output],
            )
        ]
        for nearest, sign in ((below, 1.0), (above, -1.0)):
            inner, output = np.nonzero(sign * reduced > 0)
            outer = nearest[inner, output]
            linked = self._decay[inner, outer] > 0 if len(self.boundary) else np.zeros(0, dtype=int)
            inner, output, outer = (a[linked] for a in (inner, output, outer))
            value, weight = np.abs(reduced[inner, output]), self._decay[inner, outer]
            ends = self.boundary[outer], self.interior[inner]
            if sign > 0:  # z_inner >= E z_outer
                np.add.at(slope, (outer, output), value * weight)
                parts.append(Multipliers(*ends, output, value))
            else:  # z_outer >= E z_inner
                np.add.at(slope, (outer, output), -value / weight)
                parts.append(Multipliers(*ends[::-1], output, value / weight))
        return _Cut(
            intercept=float(prices.sum()),
            slope=slope,
            loss=program.value if feasible else np.inf,
            channel=channel if feasible else None,
            multipliers=Multipliers.concatenate(parts),
        )


class _Master:
    """The rows on the boundary, with a lower estimate of each block's loss."""

    def __init__(self, boundary, costs, decay, distances, blocks):
        self._boundary, self._cuts = boundary, []
        self._source, self._target = np.nonzero(
            necessary_pairs(distances[np.ix_(boundary, boundary)], COLLINEAR)
        )
        among = decay[np.ix_(boundary, boundary)][self._source, self._target]
        self._program = _Program(
            costs[boundary],
            self._source,
            self._target,
            among,
            estimates=[block.least for block in blocks],
        )
        self.value = -np.inf

    def solve(self) -> np.ndarray:
        """Return the rows that minimise the estimate; its value is a lower bound."""
        if not self._program.solve():
            raise SolverError("HiGHS finds the master infeasible, but a constant channel exists")
        self.value = self._program.value
        return self._program.solution()[0]

    def add(self, block, cut: _Cut):
        """Add a cut: ``estimate >= intercept + <slope, z_S>``, or without the estimate."""
        self._program.add_row(cut.slope, block if np.isfinite(cut.loss) else None, cut.intercept)
        self._cuts.append(cut)

    def multipliers(self, shape, scale) -> Multipliers:
        """Combine the duals of the last solve with those behind its cuts."""
        _, _, rows, _ = self._program.solution()
        pair, output = np.nonzero(rows > 0)
        parts = [
            Multipliers(
                self._boundary[self._source[pair]],
                self._boundary[self._target[pair]],
                output,
                rows[pair, output],
            )
        ]
        for weight, cut in zip(self._program.added_duals(), self._cuts, strict=True):
            if weight > 0:
                m = cut.multipliers
                parts.append(Multipliers(m.source, m.target, m.output, weight * m.value))
        total = Multipliers.concatenate(parts)
        n, m = shape
        keys, index = np.unique(
            (total.source * n + total.target) * m + total.output, return_inverse=True
        )
        value = scale * np.bincount(index, total.value, len(keys))
        return Multipliers(keys // (n * m), keys // m % n, keys % m, value)


class _Program:
    """A linear program over channels on some states, kept warm in HiGHS.

    Its variables are the entries, row by row, then one estimate a block or, if elastic, the excess
    and the lack of each row sum. Its rows are those of privacy, of the row sums, and what is added.
    """

    def __init__(self, costs, source, target, decay, *, estimates=(), elastic=False):
        states, outputs = costs.shape
        self._shape, self._pairs, self._added = costs.shape, len(source), 0
        pair = np.arange(len(source))
        privacy = sparse.csr_array((np.ones(len(pair)), (pair, target)), (len(pair), states))
        privacy -= sparse.csr_array((decay, (pair, source)), (len(pair), states))
        privacy = sparse.kron(privacy, sparse.eye_array(outputs), format="csr")
        sums = sparse.kron(sparse.eye_array(states), np.ones((1, outputs)), format="csr")
        extra = len(estimates)
        if elastic:
            extra = 2 * states
            sums = sparse.hstack([sums, sparse.eye_array(states), -sparse.eye_array(states)])
        privacy.resize(privacy.shape[0], costs.size + extra)
        sums = sparse.csr_array(sums)
        sums.resize(states, costs.size + extra)
        matrix = sparse.vstack([privacy, sums], format="csr")

        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = costs.size + extra, matrix.shape[0]
        program.col_cost_ = np.concatenate([costs.ravel(), np.ones(extra)])
        program.col_lower_ = np.concatenate(
            [np.zeros(costs.size), np.zeros(extra) if elastic else np.asarray(estimates)]
        )
        program.col_upper_ = np.full(costs.size + extra, highspy.kHighsInf)
        program.row_lower_ = np.concatenate([np.zeros(privacy.shape[0]), np.ones(states)])
        program.row_upper_ = np.concatenate(
            [np.full(privacy.shape[0], highspy.kHighsInf), np.ones(states)]
        )
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = matrix.indptr
        program.a_matrix_.index_ = matrix.indices
        program.a_matrix_.value_ = matrix.data
        self._highs = QuietHighs()
        for option in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            self._highs.setOptionValue(option, _TOLERANCE)
        self._highs.passModel(program)

    @property
    def value(self) -> float:
        """The optimal value of the last solve."""
        return self._highs.getInfo().objective_function_value

    def solve(self, low=None, high=None) -> bool:
        """Solve, with bounds on the entries if given; say whether there is a solution."""
        if low is not None:
            entries = np.arange(low.size, dtype=np.int32)
            self._highs.changeColsBounds(low.size, entries, low.ravel(), high.ravel())
        for _ in range(2):
            self._highs.run()
            status = self._highs.getModelStatus()
            if status == highspy.HighsModelStatus.kInfeasible:
                return False
            if status == highspy.HighsModelStatus.kOptimal:
                return True
            self._highs.clearSolver()  # the warm start may be what it stumbled over
        raise SolverError(f"HiGHS stopped with status {self._highs.modelStatusToString(status)}")

    def add_row(self, slope, estimate, intercept):
        """Require ``estimate - <slope, entries> >= intercept``, or the same without estimate."""
        index = np.flatnonzero(slope)
        value = -slope.ravel()[index]
        if estimate is not None:
            index, value = np.append(index, slope.size + estimate), np.append(value, 1.0)
        self._highs.addRow(intercept, highspy.kHighsInf, len(index), index.astype(np.int32), value)
        self._added += 1

    def solution(self):
        """Return entries, reduced costs, multipliers of the privacy rows, prices of row sums."""
        solution = self._highs.getSolution()
        (states, outputs), size = self._shape, self._shape[0] * self._shape[1]
        duals = np.array(solution.row_dual)
        first = self._pairs * outputs
        return (
            np.maximum(np.array(solution.col_value)[:size], 0).reshape(self._shape),
            np.array(solution.col_dual)[:size].reshape(self._shape),
            duals[:first].reshape(self._pairs, outputs),
            duals[first : first + states],
        )

    def added_duals(self) -> np.ndarray:
        """Return the multipliers of the added rows in the last solve."""
        duals = np.array(self._highs.getSolution().row_dual)
        return duals[self._pairs * self._shape[1] + self._shape[0] :]


def _closed(rows, decay) -> np.ndarray:
    """Return the least rows above these that are private among themselves."""
    return (decay[:, :, None] * rows[None]).max(axis=1) if len(rows) else rows


def _constant(costs) -> np.ndarray:
    """Return the channel that always reports the output of least expected loss."""
    matrix = np.zeros(costs.shape)
    matrix[:, np.argmin(costs.sum(axis=0))] = 1.0
    return matrix


def _assembled(boundary_rows, cuts, boundary, blocks) -> np.ndarray:
    """Return the channel made of the boundary's rows and the blocks' completions."""
    matrix = np.empty(
        (len(boundary) + sum(len(b.interior) for b in blocks), boundary_rows.shape[1])
    )
    matrix[boundary] = boundary_rows
    for block, cut in zip(blocks, cuts, strict=True):
        matrix[block.interior] = cut.channel
    return matrix


def _certified(problem, matrix, multipliers, tol, count, status) -> EngineResult:
    """Repair the matrix, and call it optimal if its loss and the proven bound say so."""
    channel = Channel(matrix / matrix.sum(axis=1, keepdims=True), problem.distances)
    matrix = channel.repair(problem.epsilon).matrix
    loss = problem.expected_loss(matrix)
    if problem.relative_gap(loss, lower_bound(problem, multipliers)) <= tol:
        status = "optimal"
    return EngineResult(matrix, multipliers, count, status)


def _check_labels(labels, states) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.shape != (states,):
        raise ValueError(f"labels must name the part of each of the {states} states")
    return labels
