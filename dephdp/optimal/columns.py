"""The column engine: columns of the privacy cone, a master program, and descent along the budget.

Each output's column lies in the cone C of the v >= 0 with v_x >= E_ix v_i for all pairs of states,
E = exp(-epsilon d), and only the sums over the outputs couple them (Dantzig and Wolfe):

    minimise sum_j c_j l_j    subject to    sum_j l_j v_j = 1,  l >= 0,     c_j = min_y <q_y, v_j>.

The master program has a row a state. At its prices, `dephdp.optimal.column_prices` finds the best
new column of each output, or proves that there is none; either way its multipliers give a lower
bound. Where the budget is large, the cones E_i. are nearly all that is needed (they are the columns
of the tight-constraints mechanism), and e^(epsilon p) is a column at every budget if it is at one.
So a curve is followed downwards: the columns and prices of one budget are carried to the next
smaller one. A single budget is reached the same way, by coarse steps from a large one.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from itertools import chain

import highspy
import numpy as np

from dephdp.errors import SolverError
from dephdp.optimal.column_prices import CERTIFIED, Workspace, price_column
from dephdp.optimal.highs import QuietHighs
from dephdp.optimal.lanes import Lanes
from dephdp.optimal.pairs import TIGHTENED
from dephdp.optimal.problem import EngineResult, Multipliers, Problem
from dephdp.optimal.rounding import private

_SMOOTHING = 0.5, 0.8  # weight of the best prices so far against the master's: at first, and
_SETTLED = 3  # after so many rounds
_ACCURACY = 0.1  # relative accuracy of the reduced cost of a new column
_SPARE = 0.04  # share of the tolerance that a certified output may cost
_DROPPED = 0.02  # share of the tolerance that multipliers too small to keep may cost
_AIM = 0.9  # share of the tolerance that the rounds have to meet
_DESCENT = 0.85  # ratio of the budgets on the way to a single one
_COARSE = 0.1  # gap at which the way goes on
_HIGHEST = 40  # steps upwards, at most, to where the cones are nearly all that is needed
_FEW = 4  # sources an output, there
_ROUNDS = 100
_PATIENCE = 6  # rounds after which
CROWDED = 0.25  # a larger share of the states as sources of a mean output makes pricing too dear
FINEST = 1e-3  # tolerances below this are not for the master's prices
_CARRIED = 2  # columns carried to the next budget besides the master's basis, times the states
_TINY = 1e-12  # smallest entry of a column that the master sees
_FEASIBLE = 1e-9  # tolerance of the master's rows


@dataclass(frozen=True, eq=False)
class ColumnResult(EngineResult):
    """An answer with what the next smaller budget starts from.

    Parameters
    ----------
    epsilon : float
        The budget of the answer.
    columns : ndarray, shape (k, n)
        Columns of the cone, largest entry one.
    prices : ndarray, shape (n,)
        Prices of the states, on the scale of `_scaled`.
    """

    epsilon: float
    columns: np.ndarray
    prices: np.ndarray


def solve(problem: Problem, *, tol, deadline=None, progress=None, start=None) -> ColumnResult:
    """Solve the optimal-mechanism problem by generating columns.

    Parameters
    ----------
    problem : Problem
        Distances between different states have to be positive and finite.
    tol : float
        Relative gap (loss - lower bound) / |loss| that is asked for; meant for 1e-3 and more.
    deadline : float, optional
        Moment of `time.monotonic` by which to return the best certified answer found.
    progress : callable, optional
        Called with (loss, lower bound) after every round.
    start : ColumnResult, optional
        An answer for the same states and outputs at a larger budget.

    Returns
    -------
    ColumnResult

    Raises
    ------
    SolverError
        If the master program fails, or rounding leaves no channel that is private at the budget.
    """
    with Lanes() as lanes:
        start = _descend(problem, start, lanes, deadline, progress)
        return _Descent(problem, problem.epsilon, start, lanes).run(tol, deadline, progress)


def promising(problem: Problem) -> bool:
    """Say whether the prices of the cones leave few sources, which makes columns the way to go.

    Parameters
    ----------
    problem : Problem
        Distances between different states have to be positive and finite.

    Returns
    -------
    bool
    """
    q, _ = _scaled(problem)
    return _sources(q, problem.distances, problem.epsilon) <= CROWDED * problem.states


def _descend(problem, start, lanes, deadline, progress):
    """Come down to near the problem's budget, from an answer or from where the cones do."""
    for epsilon in _budgets_above(problem, start):
        rounds = _Descent(problem, epsilon, start, lanes)
        rounds.follow(_COARSE, deadline, progress)
        start = rounds.carried()
    return start


def _budgets_above(problem, start):
    """Return the budgets of the descent, the largest first, both ends left out."""
    if start is not None:
        steps = math.ceil(math.log(start.epsilon / problem.epsilon) / -math.log(_DESCENT) - 1e-9)
        return list(np.geomspace(start.epsilon, problem.epsilon, steps + 1)[1:-1])
    q, _ = _scaled(problem)
    budgets, epsilon = [], problem.epsilon
    while len(budgets) < _HIGHEST and _sources(q, problem.distances, epsilon) > _FEW:
        epsilon /= _DESCENT
        budgets.append(epsilon)
    return budgets[::-1]


def _sources(q, distances, epsilon) -> float:
    """Return how many states a mean output has below the prices of the tight constraints.

    Where the best output of each state has the cone of that state as its column, the prices u solve
    sum_x E_xy u_x = sum_x E_xy q_x for every state y and its best output.
    """
    decay = np.exp(-epsilon * distances)
    try:
        prices = np.linalg.solve(decay, np.einsum("yx,xy->y", q[q.argmin(axis=0)], decay))
    except np.linalg.LinAlgError:  # two states that double precision cannot tell apart
        return np.inf
    return float((q < prices).sum() / len(q))


def _scaled(problem):
    """Return the weighted losses, a row an output, least loss zero and mean worst loss one."""
    q = np.ascontiguousarray(problem.weighted_loss.T)
    q = q - q.min(axis=0)
    scale = q.max(axis=0).sum() / problem.states
    return q / scale, scale


@dataclass(frozen=True, eq=False)
class _Carried:
    """What one budget hands down to the next."""

    epsilon: float
    columns: np.ndarray
    prices: np.ndarray


class _Descent:
    """Rounds of the master program and of pricing at one budget."""

    def __init__(self, problem, epsilon, start, lanes):
        self.problem, self.epsilon, self.lanes = problem, epsilon, lanes
        self.q, self.scale = _scaled(problem)
        self.offset = float(problem.weighted_loss.min(axis=1).sum())
        self.decay = np.exp(-epsilon * TIGHTENED * problem.distances)
        n = problem.states
        self.shares = lanes.shares(len(self.q), n)
        self.workspaces = [Workspace.for_states(n) for _ in self.shares]
        columns = [self.decay, np.ones((1, n))]
        self.prices = None
        if start is not None:
            columns.append(start.columns ** (epsilon / start.epsilon))
            self.prices = start.prices
        self.master = _Master(n)
        self._add(np.concatenate(columns))
        self.bound, self.rounds = -np.inf, 0
        self.proved = None  # the prices and the tolerance that the bound comes from

    def run(self, tol, deadline, progress) -> ColumnResult:
        """Go on until the gap is small enough, or nothing helps."""
        status = self.follow(_AIM * tol, deadline, progress)
        matrix = np.zeros((len(self.q), self.problem.states))
        weight = self.master.balanced()
        np.add.at(matrix, self.master.labels, weight[:, None] * self.master.columns)
        channel = private((matrix / matrix.sum(axis=0)).T, self.problem)
        carried = self.carried()
        return ColumnResult(
            channel,
            self._prove(_DROPPED * tol * self.master.loss),
            self.rounds,
            status,
            self.epsilon,
            carried.columns,
            carried.prices,
        )

    def follow(self, tol, deadline=None, progress=None) -> str:
        """Alternate between the master and pricing; say how it ended."""
        for _ in range(_ROUNDS):
            self.master.solve()
            self.rounds += 1
            loss = self.master.loss
            prices = self.master.prices
            if self.prices is not None:
                share = _SMOOTHING[self.rounds > _SETTLED]
                prices = share * self.prices + (1 - share) * prices
            spare = _SPARE * tol * loss / len(prices)
            found, lowest = self._price(prices, spare)
            bound = float((prices + lowest).sum())
            if bound > self.bound:
                self.bound, self.prices = bound, prices + lowest
                self.proved = prices, spare
            if progress is not None:
                progress(*(self.scale * np.array([loss, self.bound]) + self.offset))
            if self._gap(loss) <= tol:
                return "optimal"
            if self.rounds >= _PATIENCE and self.sources > CROWDED * len(prices):
                return "stalled"
            if deadline is not None and time.monotonic() >= deadline:
                return "time_limit"
            if len(found):
                self._add(found)
            elif np.allclose(prices, self.master.prices, atol=spare):
                return "stalled"  # else the best prices are moving towards the master's
        return "stalled"

    def _gap(self, loss):
        """Return the gap relative to the loss, what every channel has to pay included."""
        return (loss - self.bound) / max(abs(loss + self.offset / self.scale), 1e-9)

    def carried(self) -> _Carried:
        """Return the columns of the master that matter, and the best prices."""
        return _Carried(self.epsilon, self.master.best(_CARRIED * len(self.decay)), self.prices)

    def _add(self, columns):
        """Add columns, each with the output that it costs least as."""
        cost = columns @ self.q.T
        label = cost.argmin(axis=1)
        self.master.add(columns, cost[np.arange(len(cost)), label], label)

    def _price(self, prices, spare):
        """Price all outputs; return the new columns and the least entries of q_y - u - A'f_y."""

        def keep(_, status, v, entries, sources, __):
            column = None
            if status != CERTIFIED and v.any():  # the least column above its sources' entries
                column = (self.decay[sources] * v[sources, None]).max(axis=0)
            return column, entries.copy(), len(sources)

        columns, entries, sources = zip(*self._priced(prices, spare, keep), strict=True)
        self.sources = np.mean(sources)
        found = np.array([column for column in columns if column is not None])
        found = found.reshape(-1, len(prices))
        lowest = np.min(entries, axis=0, initial=0.0)
        return found / found.max(axis=1, keepdims=True, initial=0), lowest

    def _prove(self, spared) -> Multipliers:
        """Price all outputs once more at the best prices, and keep the multipliers.

        Of each source's multipliers, the smallest are left out; in all they carry less than
        `spared` shared by the states.
        """
        if self.proved is None:
            return Multipliers.none()
        limit = spared / self.problem.states

        def keep(y, _, __, ___, sources, f):
            carried = self.decay[sources] * f
            order = np.argsort(carried, axis=1)
            small = np.take_along_axis(carried, order, axis=1).cumsum(axis=1) <= limit
            kept = np.empty_like(small)
            np.put_along_axis(kept, order, ~small, axis=1)
            a, x = np.nonzero(kept)
            return Multipliers(
                sources[a].astype(np.int32),
                x.astype(np.int32),
                np.full(len(a), y, dtype=np.int32),
                self.scale * f[a, x],
            )

        return Multipliers.concatenate(self._priced(*self.proved, keep))

    def _priced(self, prices, spare, keep) -> list:
        """Return what `keep` makes of each output's price, the outputs shared among the threads.

        It is called with the output, the status, v, the entries, the sources and their multipliers,
        which the next output overwrites.
        """

        def task(k, lo, hi):
            v, entries, work = np.empty(len(prices)), np.empty(len(prices)), self.workspaces[k]
            made = []
            for y in range(lo, hi):
                status, count = price_column(
                    self.q[y] - prices, self.decay, spare, _ACCURACY, v, entries, work
                )
                made.append(keep(y, status, v, entries, work.sources[:count], work.f[:count]))
            return made

        return list(chain(*self.lanes.run(task, self.shares)))


class _Master:
    """The linear program over the columns found so far.

    Attributes
    ----------
    columns : ndarray, shape (k, n)
    labels : ndarray of int, shape (k,)
        The output that each column belongs to.
    weights, prices, loss
        The last solution: l (k,), the prices u (n,) of the states, and the objective.
    """

    def __init__(self, states):
        self._highs = QuietHighs()
        for option, value in (
            ("presolve", "off"),
            ("simplex_strategy", 4),  # primal: added columns leave the basis feasible
            ("primal_feasibility_tolerance", _FEASIBLE),
            ("dual_feasibility_tolerance", _FEASIBLE),
            ("small_matrix_value", _TINY),
        ):
            self._highs.setOptionValue(option, value)
        none = np.empty(0, dtype=np.int32)
        for _ in range(states):
            self._highs.addRow(1.0, 1.0, 0, none, np.empty(0))
        self.columns = np.empty((0, states))
        self.labels = np.empty(0, dtype=int)
        self._costs = np.empty(0)

    def add(self, columns, costs, labels):
        """Take columns (k, n) in, with their costs and outputs (k,)."""
        seen = columns > _TINY
        index = np.nonzero(seen)[1].astype(np.int32)
        begin = np.concatenate([[0], seen.sum(axis=1).cumsum()[:-1]]).astype(np.int32)
        k = len(columns)
        limit = np.full(k, highspy.kHighsInf)
        self._highs.addCols(k, costs, np.zeros(k), limit, len(index), begin, index, columns[seen])
        self.columns = np.concatenate([self.columns, columns])
        self.labels = np.concatenate([self.labels, labels])
        self._costs = np.concatenate([self._costs, costs])

    def solve(self):
        """Solve the program; raise `SolverError` unless HiGHS says that it is optimal."""
        self._highs.run()
        status = self._highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:  # numerical trouble: from the beginning
            self._highs.clearSolver()
            self._highs.run()
            status = self._highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise SolverError(
                f"HiGHS stopped on the master program of {len(self.columns)} columns: "
                f"{self._highs.modelStatusToString(status)}"
            )
        solution = self._highs.getSolution()
        self.weights = np.maximum(solution.col_value, 0.0)
        self.prices = np.array(solution.row_dual)
        self.loss = float(self._costs @ self.weights)

    def balanced(self) -> np.ndarray:
        """Return the weights with rows that sum to one up to rounding; HiGHS may be off by 1e-6.

        Rows that are off by different amounts would cost privacy once they are divided by them.
        """
        weights = self.weights.copy()
        used = np.flatnonzero(weights)
        basis = self.columns[used].T
        weights[used] += np.linalg.lstsq(basis, 1 - basis @ weights[used], rcond=None)[0]
        return np.maximum(weights, 0.0)

    def best(self, count) -> np.ndarray:
        """Return the columns in use and as many others as said, of least reduced cost.

        The columns that the master began with are left out: every master begins with the like.
        """
        begun = len(self.prices) + 1
        used = self.weights[begun:] > 0
        reduced = (self._costs - self.columns @ self.prices)[begun:]
        order = np.lexsort([reduced, ~used])
        return self.columns[begun:][order[: count + used.sum()]]
