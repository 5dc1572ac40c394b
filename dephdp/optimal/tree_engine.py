"""The engine for tree metrics: a primal-dual interior point whose blocks are trees.

Only the row sums couple the outputs: each output y has its own matrix H_y = A' diag(f_y / s_y) A,
solved along the tree, and a Newton step needs one dense system, of matrix sum_y H_y^-1, for the
prices u of the row sums. Few outputs carry mass at an optimum, so outputs that lose theirs are
dropped on the way. The dynamic programme on the tree then prices every output, which proves the
bound over all of them and names those that have to come back.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from dephdp.errors import SolverError
from dephdp.optimal.kernels import PANEL, factor, solve_factored
from dephdp.optimal.problem import EngineResult, Multipliers, Problem
from dephdp.optimal.rounding import private
from dephdp.optimal.tree_prices import prices, tree_multipliers
from dephdp.optimal.tree_system import TreeRows, compiled
from dephdp.optimal.trees import Tree, tree_of

_STEP = 0.95  # fraction of the way to the boundary
_CENTRING = 0.3  # largest target, as a fraction of the mean complementarity product
_CORRECTORS = 6  # Gondzio's correctors: each costs two solves, and may save a factorisation
_REACH = 0.3  # how much longer a step each corrector aims at
_BAND = 10.0  # complementarity products are pulled back to within this factor of the target
_DROPS = ((0.3, 0.5), (0.03, 0.2), (0.003, 0.05))  # at this gap, below this share of the mean mass
_COARSE_STATES = 64  # states of the coarse problem that chooses the outputs to start with:
_COARSE_SHARE = 0.3  # those that have at least this share of the mean mass there
_MARGIN = 1e-13  # of an edge's exponent, and as much again in absolute terms, for rounding
_ITERATIONS = 300
_PATIENCE = 12  # steps without progress before giving up
_ROUNDS = 12
_FLOOR = 1e-15  # costs this small are rounding; weighted losses are scaled to [0, 1]


def solve(
    problem: Problem,
    tree: Tree,
    *,
    tol: float,
    deadline: float | None = None,
    progress=None,
    start: EngineResult | None = None,
) -> EngineResult:
    """Solve the optimal-mechanism problem on a tree metric.

    Parameters
    ----------
    problem : Problem
        With finite distances, positive off the diagonal.
    tree : Tree
        ``tree_of(problem.distances)``.
    tol : float
        Relative gap to reach, see `Problem.relative_gap`.
    deadline : float, optional
        Moment of `time.monotonic` by which to return the best answer found.
    progress : callable, optional
        Called with (loss, lower bound) once an iteration; the bound is that of the outputs at hand
        and therefore provisional.
    start : EngineResult, optional
        An answer for the same states and outputs at another budget: its outputs are tried first.

    Returns
    -------
    EngineResult

    Notes
    -----
    The rows are those along the edges; Mehrotra's predictor and Gondzio's correctors follow the
    central path from the uniform channel. Every iterate is strictly private on the tree, with a
    margin that covers the rounding of the row sums and the stretch of the tree.
    """
    weighted = problem.weighted_loss
    oracle = weighted.min(axis=1)
    loss = tree.spread((weighted - oracle[:, None]).T)
    unit = loss.max()
    if unit == 0 or problem.states == 1:
        return _without_trade_off(problem)
    loss /= unit

    def losses(value, bound):
        return oracle.sum() + unit * value, oracle.sum() + unit * bound

    def gap(value, bound):
        return problem.relative_gap(*losses(value, bound))

    def report(value, bound):
        progress(*losses(value, bound))

    rows = TreeRows(tree, _exponents(tree, problem.epsilon))
    decay = np.exp(-problem.epsilon * tree.length)
    path = _Path(rows, decay, gap, progress and report, deadline)
    active = _first_outputs(problem) if start is None else np.flatnonzero(start.matrix.any(axis=0))
    best_value, best_bound = np.inf, -np.inf
    for _ in range(_ROUNDS):
        point, lowest = path.follow(loss, active, tol / 2)
        value = point.value(tree)
        costs = prices(loss - lowest, tree, decay, _FLOOR)
        bound = lowest.sum() + costs[:, 0].min()
        if value < best_value:
            best_value, best = value, point
        if bound > best_bound:
            best_bound, proof = bound, costs
        if gap(best_value, best_bound) <= tol or path.expired():
            break
        missing = path.missing(loss, lowest, point)
        if not len(missing):
            break
        path.protected = np.union1d(path.protected, missing)
        active = np.union1d(point.outputs, missing)
    if gap(best_value, best_bound) <= tol:
        status = "optimal"
    else:
        status = "time_limit" if path.expired() else "stalled"
    multipliers = tree_multipliers(proof * unit, tree, decay, _FLOOR * unit)
    channel = private(best.channel(tree, problem.outputs), problem)
    return EngineResult(channel, multipliers, path.steps, status)


def _without_trade_off(problem):
    """Solve a problem with one state, or whose outputs are all equally good."""
    matrix = np.zeros((problem.states, problem.outputs))
    matrix[:, problem.weighted_loss[0].argmin() if problem.states == 1 else 0] = 1
    return EngineResult(matrix, Multipliers.none(), 0, "optimal")


def _exponents(tree, epsilon):
    """Return the exponents of the edges, with a margin for rounding and the tree's stretch."""
    exponents = epsilon * tree.length / tree.stretch
    return np.maximum(exponents - _MARGIN * (1 + exponents), exponents / 2)


def _first_outputs(problem, tol=0.005):
    """Return the outputs that a coarse version of the problem uses: all, if it is small.

    The states are clustered around well-spread centres, and each centre takes the weighted losses
    of its cluster.
    """
    everything = np.arange(problem.outputs)
    if problem.states <= 2 * _COARSE_STATES:
        return everything
    centres = _spread_out(problem.distances, _COARSE_STATES)
    nearest = problem.distances[:, centres].argmin(axis=1)
    radius = problem.distances[np.arange(problem.states), centres[nearest]].max()
    tree = tree_of(problem.distances[np.ix_(centres, centres)])
    if problem.epsilon * radius > 1 or tree is None:  # clusters do not stand for their states
        return everything
    weighted = problem.weighted_loss - problem.weighted_loss.min(axis=1, keepdims=True)
    coarse = np.zeros((len(centres), problem.outputs))
    np.add.at(coarse, nearest, weighted)
    loss = tree.spread(coarse.T / coarse.max())
    rows = TreeRows(tree, _exponents(tree, problem.epsilon))
    path = _Path(rows, rows.decay, lambda value, bound: (value - bound) / value)
    point, _ = path.follow(loss, everything, tol)
    point.drop(_COARSE_SHARE, path.protected)
    return point.outputs


def _spread_out(distances, count):
    """Return states chosen one after the other, each as far as possible from those before."""
    chosen = [int(distances.sum(axis=1).argmin())]
    nearest = distances[chosen[0]].copy()
    while len(chosen) < count:
        chosen.append(int(nearest.argmax()))
        np.minimum(nearest, distances[chosen[-1]], out=nearest)
    return np.sort(chosen)


@dataclass(eq=False)
class _Point:
    """An iterate: columns z with slacks s = A z > 0, multipliers f > 0, prices u."""

    outputs: np.ndarray
    loss: np.ndarray
    columns: np.ndarray
    slacks: np.ndarray
    flows: np.ndarray
    prices: np.ndarray

    @classmethod
    def start(cls, outputs, loss, rows):
        """Return the uniform channel and strictly feasible multipliers."""
        columns = np.full(loss.shape, 1 / len(loss))
        prices = np.where(rows.tree.state >= 0, -1.0, 0.0)
        flows = rows.positive_flows(loss - prices)
        return cls(outputs, loss, columns, rows.slacks(columns), flows, prices)

    @property
    def complementarity(self):
        """Mean of the products of slacks and multipliers."""
        return np.einsum("yk,yk->", self.slacks, self.flows) / self.slacks.size

    def drop(self, share, protected):
        """Drop outputs whose mass is below a share of the mean; their columns find heirs.

        The heir is the output that serves a column best. Sums of private columns are private, so
        the point stays strictly feasible.
        """
        mass = self.columns.max(axis=1)
        kept = (mass >= share * mass.mean()) | np.isin(self.outputs, protected)
        gone, stay = np.flatnonzero(~kept), np.flatnonzero(kept)
        heirs = stay[(self.columns[gone] @ self.loss[stay].T).argmin(axis=1)]
        np.add.at(self.columns, heirs, self.columns[gone])
        np.add.at(self.slacks, heirs, self.slacks[gone])
        for name in ("outputs", "loss", "columns", "slacks", "flows"):
            setattr(self, name, np.ascontiguousarray(getattr(self, name)[stay]))

    def value(self, tree):
        """Return the loss, with each row divided by its sum."""
        carriers = tree.carriers
        columns = self.columns[:, carriers]
        weighted = np.einsum("yi,yi->i", self.loss[:, carriers], columns)
        return float((weighted / columns.sum(axis=0)).sum())

    def channel(self, tree, outputs):
        """Return the channel matrix, shape (n, outputs)."""
        matrix = np.zeros((len(tree.carriers), outputs))
        matrix[:, self.outputs] = tree.gather(self.columns).T
        return matrix / matrix.sum(axis=1, keepdims=True)


@dataclass(eq=False)
class _Direction:
    """A Newton direction, and the longest steps along it that stay positive."""

    columns: np.ndarray
    slacks: np.ndarray
    flows: np.ndarray
    prices: np.ndarray
    primal: float
    dual: float

    @property
    def reach(self):
        """Sum of the steps: what a corrector must increase."""
        return self.primal + self.dual


class _Path:
    """Follows the central path for a choice of outputs."""

    def __init__(self, rows, decay, gap, report=None, deadline=None):
        self.rows, self.tree, self.decay, self.report = rows, rows.tree, decay, report
        self.carries = rows.tree.state >= 0
        self.gap, self.deadline, self.steps, self.space = gap, deadline, 0, None
        self.protected = np.empty(0, dtype=np.int64)  # outputs that must not be dropped again

    def expired(self):
        """Whether the time is up."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def follow(self, loss, outputs, tol):
        """Return the last iterate and the best prices found, for these outputs alone."""
        point = _Point.start(outputs, np.ascontiguousarray(loss[outputs]), self.rows)
        drops = list(_DROPS)
        best, lowest, least_gap, since = -np.inf, None, np.inf, 0
        for _ in range(_ITERATIONS):
            reduced = point.loss - self.rows.adjoint(point.flows)
            candidate = np.where(self.carries, reduced.min(axis=0), 0.0)
            costs = prices(point.loss - candidate, self.tree, self.decay, _FLOOR)
            bound = candidate.sum() + costs[:, 0].min()
            if bound > best:
                best, lowest = bound, candidate
            value = point.value(self.tree)
            if self.report is not None:
                self.report(value, best)
            gap = self.gap(value, best)
            residual = np.where(self.carries, 1 - point.columns.sum(axis=0), 0.0)
            since = 0 if gap < 0.9 * least_gap else since + 1
            least_gap = min(gap, least_gap)
            settled = gap <= tol and np.abs(residual).max() <= _MARGIN / 4
            patience = _PATIENCE if gap > 2 * tol else 2
            if settled or since >= patience or self.expired():
                break
            if drops and gap < drops[0][0]:
                while drops and gap < drops[0][0]:
                    _, share = drops.pop(0)
                point.drop(share, self.protected)
                if len(drops) < len(_DROPS) - 1 and len(self.missing(loss, candidate, point)):
                    break  # better to start again now than at the end
                reduced = point.loss - self.rows.adjoint(point.flows)
            if not self._step(point, reduced - point.prices, residual):
                break
            self.steps += 1
        return point, lowest

    def missing(self, loss, lowest, point):
        """Return outputs left out that undercut the others: the worst, as many as is sensible."""
        price = prices(loss - lowest, self.tree, self.decay, _FLOOR)[:, 0]
        least = price[point.outputs].min()
        price[point.outputs] = least
        order = np.argsort(price, kind="stable")[: np.sum(price < least - _FLOOR)]
        return order[: max(8, len(point.outputs) // 2)]

    def _step(self, point, dual_residual, row_residual):
        """Move ``point`` by a predictor-corrector step; False if rounding forbids it."""
        newton = _Newton(point, self.rows, dual_residual, row_residual)
        slacks, flows = point.slacks, point.flows
        mean = point.complementarity
        space = self._space(point)
        products, trial_products = space.products
        trial, best = space.directions
        np.multiply(slacks, flows, out=products)
        np.negative(products, out=products)
        affine = newton.direction(products, trial)
        reached = _product_sum(
            slacks, flows, affine.slacks, affine.flows, affine.primal, affine.dual
        )
        target = mean * min(_CENTRING, (reached / slacks.size / mean) ** 3)
        _centred_products(slacks, flows, affine.slacks, affine.flows, target, products)
        newton.direction(products, best)
        for _ in range(_CORRECTORS):
            if min(best.primal, best.dual) > _STEP:
                break
            primal, dual = min(1, best.primal + _REACH), min(1, best.dual + _REACH)
            _corrected_products(
                slacks,
                flows,
                best.slacks,
                best.flows,
                primal,
                dual,
                target,
                products,
                trial_products,
            )
            newton.direction(trial_products, trial)
            if trial.reach < best.reach + 0.02:
                break
            best, trial = trial, best
            products, trial_products = trial_products, products
        primal, dual = min(1, _STEP * best.primal), min(1, _STEP * best.dual)
        best.columns *= primal
        best.columns += point.columns
        new_slacks = self.rows.slacks(best.columns, out=best.slacks)
        if not new_slacks.min() > 0:
            return False
        point.columns[:], point.slacks[:] = best.columns, new_slacks
        best.flows *= dual
        point.flows += best.flows
        point.prices += dual * best.prices
        return True

    def _space(self, point):
        """Return working arrays of the size of ``point``, kept from step to step."""
        if self.space is None or self.space.products[0].shape != point.slacks.shape:
            self.space = _Space(point.columns.shape, point.slacks.shape)
        return self.space


class _Space:
    """Working arrays: allocating them anew costs as much as filling them."""

    def __init__(self, columns, rows):
        self.products = np.empty(rows), np.empty(rows)
        self.directions = tuple(
            _Direction(np.empty(columns), np.empty(rows), np.empty(rows), None, 0.0, 0.0)
            for _ in range(2)
        )


class _Newton:
    """The Newton system at one iterate, factored."""

    def __init__(self, point, rows, dual_residual, row_residual):
        self.point, self.rows = point, rows
        self.dual_residual, self.row_residual = dual_residual, row_residual
        self.factors = rows.factors(point.flows, point.slacks)
        self.carriers = rows.tree.carriers
        schur = self.factors.sum_of_inverses()
        if len(self.carriers) < len(schur):
            schur = schur[np.ix_(self.carriers, self.carriers)]
        self.schur = _cholesky(schur)

    def direction(self, products, into):
        """Write the direction along which slack times multiplier changes by ``products``.

        One step of iterative refinement restores the row sums when the system is ill-conditioned.
        """
        point, tree, decay = self.point, self.rows.tree, self.rows.decay
        right = into.columns
        _right_sides(products, point.slacks, self.dual_residual, tree.parent, decay, right)
        prices = self._solve(self.row_residual - self.factors.sum_of_solutions(right))
        right += prices
        columns = self.factors.solve(right)
        residual = self.row_residual - columns.sum(axis=0)
        if np.abs(residual[self.carriers]).max() > _MARGIN / 10:
            correction = self._solve(residual)
            columns += self.factors.solve(np.broadcast_to(correction, columns.shape).copy())
            prices += correction
        primal, dual = _slack_and_flow_directions(
            columns,
            products,
            point.slacks,
            point.flows,
            tree.parent,
            decay,
            into.slacks,
            into.flows,
        )
        into.prices, into.primal, into.dual = prices, min(1, 1 / primal), min(1, 1 / dual)
        return into

    def _solve(self, residual):
        prices = np.zeros_like(residual)
        part = residual[self.carriers]
        solve_factored(self.schur, part, part)
        prices[self.carriers] = part
        return prices


def _cholesky(matrix):
    """Factor a matrix given by its lower triangle; its diagonal is inflated if it must be.

    Near a degenerate optimum the condition number exceeds what doubles resolve. What an inflation
    does to the row sums, refinement repairs.
    """
    n = len(matrix)
    packed = np.empty(n * (n + 1) // 2)
    panel, panel_rows, pivot = np.zeros((n, PANEL)), np.zeros((PANEL, n)), np.zeros((PANEL, PANEL))
    inflation = 0.0
    while inflation < 1:
        inflated = matrix * (1 + inflation * np.eye(n)) if inflation else matrix.copy()
        if factor(inflated, packed, panel, panel_rows, pivot, False):
            return packed
        inflation = max(10 * inflation, 1e-15)
    raise SolverError("the Newton system of the row sums is not positive definite")


@compiled
def _right_sides(products, slacks, dual_residual, parent, decay, right):
    """Write A' (products / slacks) - dual_residual."""
    for y in range(right.shape[0]):
        for i in range(right.shape[1]):
            right[y, i] = -dual_residual[y, i]
        for i in range(1, right.shape[1]):
            down = products[y, 2 * i - 2] / slacks[y, 2 * i - 2]
            up = products[y, 2 * i - 1] / slacks[y, 2 * i - 1]
            right[y, i] += down - decay[i] * up
            right[y, parent[i]] += up - decay[i] * down
    return right


@compiled
def _slack_and_flow_directions(
    columns, products, slacks, flows, parent, decay, slack_steps, flow_steps
):
    """Write the steps of slacks and multipliers; return the inverses of the longest steps."""
    primal, dual = 1e-12, 1e-12
    for y in range(columns.shape[0]):
        for i in range(1, columns.shape[1]):
            here, above = columns[y, i], columns[y, parent[i]]
            slack_steps[y, 2 * i - 2] = here - decay[i] * above
            slack_steps[y, 2 * i - 1] = above - decay[i] * here
        for k in range(slacks.shape[1]):
            inverse, step = 1 / slacks[y, k], slack_steps[y, k]
            flow_steps[y, k] = (products[y, k] - flows[y, k] * step) * inverse
            primal = max(primal, -step * inverse)
            dual = max(dual, -flow_steps[y, k] / flows[y, k])
    return primal, dual


@compiled
def _product_sum(slacks, flows, slack_steps, flow_steps, primal, dual):
    """Return the sum of the complementarity products after a step."""
    total = 0.0
    for y in range(slacks.shape[0]):
        for k in range(slacks.shape[1]):
            slack = slacks[y, k] + primal * slack_steps[y, k]
            total += slack * (flows[y, k] + dual * flow_steps[y, k])
    return total


@compiled
def _centred_products(slacks, flows, slack_steps, flow_steps, target, products):
    """Write the change that the products need, less the predictor's second-order term."""
    for y in range(slacks.shape[0]):
        for k in range(slacks.shape[1]):
            second = slack_steps[y, k] * flow_steps[y, k]
            products[y, k] = target - slacks[y, k] * flows[y, k] - second


@compiled
def _corrected_products(
    slacks, flows, slack_steps, flow_steps, primal, dual, target, products, corrected
):
    """Write Gondzio's correction: products that a longer step takes off the band come back."""
    low, high = target / _BAND, target * _BAND
    for y in range(slacks.shape[0]):
        for k in range(slacks.shape[1]):
            slack = slacks[y, k] + primal * slack_steps[y, k]
            product = slack * (flows[y, k] + dual * flow_steps[y, k])
            pull = min(max(product, low), high) - product
            corrected[y, k] = products[y, k] + max(pull, -high)
