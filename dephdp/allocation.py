"""Stage 4, upper level: dividing a record's budget among its groups.

Minimise Σ_k L_k(ε_k) subject to ‖ε‖_q ≤ ε (Theorem 1, 1/p + 1/q = 1), where L_k is the loss-budget
curve of group k, known on a grid of budgets. For q = ∞ the groups decouple; for finite q the
quantities ε_k^q add up, as weights in a knapsack do.
"""

import math
from dataclasses import dataclass

import numba
import numpy as np

from dephdp.composition import compose_budget, split_budget
from dephdp.envelopes import check_non_increasing, convex_minorant, shifted_envelopes
from dephdp.errors import InvalidBudget, InvalidLoss
from dephdp.validation import check_epsilon, check_exponent, check_grid

_UNIT = 1 << 40  # costs are whole numbers of this fraction of the capacity: their sums are exact
_SAME = 1e-12  # budgets that differ by less than this, relatively, differ by rounding
_CHOICES = 1 << 21  # partial choices at once, beyond which costs are rounded
_CELLS = 1 << 16  # to this fraction of the capacity


class _TooManyChoicesError(Exception):
    """The exact dynamic programme would take too long."""


@dataclass(frozen=True, eq=False)
class Allocation:
    """Budgets of the groups, their surrogate loss, and how much better any others could be.

    Attributes
    ----------
    budgets : ndarray, shape (groups,)
        They compose to at most epsilon, exactly so in floating point.
    choices : ndarray of int, shape (groups,)
        Index of the sampled budget whose mechanism each group uses; no larger than its own budget,
        apart from rounding that the projection onto the ball took off.
    loss : float
        Σ_k L_k at the chosen samples.
    lower_bound : float
        No budgets that compose to epsilon, on the grid or off it, have a smaller sum.
    """

    budgets: np.ndarray
    choices: np.ndarray
    loss: float
    lower_bound: float

    @property
    def gap(self):
        """Loss minus lower bound, relative to the loss."""
        return (self.loss - self.lower_bound) / abs(self.loss) if self.loss else 0.0


@dataclass(frozen=True, eq=False)
class EnvelopeAllocation(Allocation):
    """The best of the allocations that two convex envelopes and an even split suggest.

    Attributes
    ----------
    minorant_budgets, majorant_budgets : ndarray, shape (groups,)
        Optimal for the shifted lower and upper envelopes.
    minorant_loss, majorant_loss : float
        Their losses on the curves themselves.
    """

    minorant_budgets: np.ndarray
    majorant_budgets: np.ndarray
    minorant_loss: float
    majorant_loss: float


def allocate_budget(budgets, losses, epsilon, p=2, *, lower_bounds=None):
    """Return the best allocation on the grid, with a lower bound on every other.

    Parameters
    ----------
    budgets : array_like, shape (points,)
        Grid common to all groups. It starts at 0, or low enough for every group to afford its
        first point, and reaches epsilon.
    losses : array_like, shape (groups, points)
        Non-increasing loss-budget curves, already multiplied by the surrogate's coefficients.
    epsilon : float
        Budget of the record.
    p : float, optional
        Exponent of the record metric, in [1, ∞].
    lower_bounds : array_like, shape (groups, points), optional
        What no mechanism of the group can go below at each budget; the losses by default.

    Returns
    -------
    Allocation
        ``loss`` is the least on the grid, and never above the even split's. ``lower_bound`` holds
        for budgets off the grid as well, since L_k(ε_k) is at least its lower bound at the next
        grid point.

    Raises
    ------
    InvalidBudget
        If the grid does not reach epsilon, or its first point is too dear for all groups at once.
    InvalidLoss
        If a curve rises with the budget, or its shape does not fit.

    See Also
    --------
    envelope_allocation : the paper's own way, through convex envelopes.

    Notes
    -----
    This is a multiple-choice knapsack: each group takes one grid point g at the cost (g/ε)^q, and
    the costs may sum to one. It is solved exactly, without convexity, by a dynamic programme over
    the undominated pairs (cost, loss). Only choices whose loss exceeds the Lagrangian bound by
    less than the duality gap can be optimal, so few remain. Should they be too many all the same,
    costs are rounded to 2⁻¹⁶ of the capacity, up for the loss and down for the bound.

    For the bound, ε_k in [g_i, g_{i+1}) costs at least g_i^q and loses at least L_k(g_{i+1}), which
    is another knapsack of the same size.

    Examples
    --------
    >>> import numpy as np
    >>> grid = np.linspace(0, 3, 301)
    >>> bit = np.minimum(0.1, 1 / (1 + np.exp(grid)))  # the optimal mechanism of a bit
    >>> best = allocate_budget(grid, [bit, bit], 3.0)
    >>> np.sort(best.budgets), round(best.loss, 4)
    (array([0., 3.]), 0.1474)
    """
    grid, losses, epsilon, p = _check_curves(budgets, losses, epsilon, p)
    bounds = losses if lower_bounds is None else _check_bounds(lower_bounds, losses.shape)
    bounds = np.maximum.accumulate(bounds[:, ::-1], axis=1)[:, ::-1]
    costs = _costs(grid, epsilon, p)
    affordable = costs <= _UNIT
    if costs[0] * len(losses) > _UNIT:
        raise InvalidBudget(
            f"{len(losses)} groups cannot each spend the least budget of the grid, {grid[0]:g}, "
            f"within epsilon {epsilon:g}: start the grid at 0"
        )
    choices, _ = _knapsack(costs[affordable], losses[:, affordable])
    loss = _total(losses, choices)
    shares = within_budget(grid[choices], epsilon, p)
    # The even split is on the grid up to rounding, or between two of its points.
    even = split_budget(epsilon, len(losses), p)
    if even[0] >= grid[0] and _evaluated(grid, losses, even)[1] < loss:
        shares, (choices, loss) = even, _evaluated(grid, losses, even)
    cells, beyond = _cells(costs, bounds, grid >= epsilon * (1 - _SAME))
    _, bound = _knapsack(cells, beyond, relax=True)
    return Allocation(shares, choices, loss, min(float(bound), loss))


def envelope_allocation(budgets, losses, epsilon, p=2):
    """Return the allocation found through shifted convex envelopes, as DepHDP does it.

    Parameters
    ----------
    budgets : array_like, shape (points,)
        Uniform grid common to all groups, from 0 to epsilon or beyond.
    losses : array_like, shape (groups, points)
        Non-increasing loss-budget curves, already multiplied by the surrogate's coefficients.
    epsilon : float
        Budget of the record.
    p : float, optional
        Exponent of the record metric, in [1, ∞].

    Returns
    -------
    EnvelopeAllocation
        The better of the two envelopes' allocations or, if that is no better, the even split.
        ``lower_bound`` is the value of the lower envelopes (Proposition 2).

    Raises
    ------
    InvalidBudget, InvalidLoss
        As `allocate_budget`, or if the grid is not uniform or does not start at 0.

    Notes
    -----
    Implements (34)-(37), Propositions 2-4 and appendix B of Liu, Oluwole and Qiu (2026). A budget
    between samples is worth the sample below it.
    """
    grid, losses, epsilon, p = _check_curves(budgets, losses, epsilon, p)
    if grid[0] > 0:
        raise InvalidBudget(f"the grid starts at {grid[0]:g}: the envelopes need it to start at 0")
    lower, upper = shifted_envelopes(grid, losses)
    below, bound = lagrangian_allocation(grid, lower, epsilon, p)
    above, _ = lagrangian_allocation(grid, upper, epsilon, p)
    even = split_budget(epsilon, len(losses), p)
    candidates = [_evaluated(grid, losses, shares) for shares in (below, above, even)]
    best = min(range(3), key=lambda k: candidates[k][1])
    choices, loss = candidates[best]
    return EnvelopeAllocation(
        (below, above, even)[best],
        choices,
        loss,
        min(bound, loss),
        below,
        above,
        candidates[0][1],
        candidates[1][1],
    )


def even_allocation(budgets, losses, epsilon, p=2):
    """Return the even split, known as SPL, each group at the sample below its share.

    Parameters
    ----------
    budgets, losses, epsilon, p
        As `allocate_budget`.

    Returns
    -------
    Allocation
        Its ``lower_bound`` is -∞: none is claimed.

    Raises
    ------
    InvalidBudget, InvalidLoss
        As `allocate_budget`.
    """
    grid, losses, epsilon, p = _check_curves(budgets, losses, epsilon, p)
    shares = split_budget(epsilon, len(losses), p)
    return Allocation(shares, *_evaluated(grid, losses, shares), -math.inf)


def lagrangian_allocation(grid, values, epsilon, p=2):
    """Return the allocation for convex piecewise linear curves, by bisection on the multiplier.

    Parameters
    ----------
    grid : array_like, shape (points,)
        Grid common to all curves.
    values : array_like, shape (groups, points)
        Curves at the grid, linear in between.
    epsilon : float
        Budget of the record.
    p : float, optional
        Exponent of the record metric, in [1, ∞].

    Returns
    -------
    allocation : ndarray, shape (groups,)
        Composes to at most epsilon. Optimal for convex curves; for others it need not be.
    bound : float
        Value of the Lagrangian dual: a lower bound on the optimum, convex or not, for budgets
        that the grid covers.

    Raises
    ------
    InvalidBudget, InvalidLoss
        If an argument is not what it must be.

    Notes
    -----
    The usage s(λ) = Σ_k ε_k(λ)^q never increases in λ (Proposition 3), but it can jump over ε^q.
    Bisection then ends with minimisers ε⁻, ε⁺ of the same Lagrangian on either side of the ball.
    For convex curves every point between them is a minimiser too, and the one on the sphere is
    optimal. For other curves no multiplier need exist, and the answer is ε⁻ moved as far.
    """
    grid, values, epsilon, p = _check_curves(grid, values, epsilon, p)
    # In units of epsilon, up to one: powers of budgets then never overflow.
    at_epsilon = np.array([np.interp(epsilon, grid, row) for row in values])
    below = grid < epsilon
    grid = np.append(grid[below] / epsilon, 1.0)
    values = np.concatenate([values[:, below], at_epsilon[:, None]], axis=1)
    if p == 1:
        return within_budget(np.full(len(values), epsilon), epsilon, p), math.fsum(at_epsilon)
    q = _conjugate(p)

    def minimisers(multiplier):
        return lagrangian_minimisers(grid, values, multiplier, p)

    low, high = 0.0, np.ptp(values, axis=1).max() or 1.0
    outside, inside = minimisers(low), minimisers(high)
    while (inside**q).sum() > 1:
        low, outside, high = high, inside, 2 * high
        inside = minimisers(high)
    if (outside**q).sum() <= 1:
        inside, high = outside, low
    else:
        for _ in range(200):
            middle = (low + high) / 2 if low > 0 else high / 1024
            shares = minimisers(middle)
            if (shares**q).sum() <= 1:
                inside, high = shares, middle
            else:
                outside, low = shares, middle
            if low > 0 and high - low <= 1e-15 * high:
                break
    least = minimisers(high)
    bound = math.fsum(_interpolate(grid, values, least) + high * least**q) - high
    shares = _towards(inside, outside, p)
    return within_budget(epsilon * shares, epsilon, p), float(bound)


def lagrangian_minimisers(grid, values, multiplier, p=2):
    """Return the least ε_k that minimise L_k(ε_k) + λ ε_k^q, each group on its own (67).

    Parameters
    ----------
    grid : ndarray, shape (points,)
        Grid common to all curves.
    values : ndarray, shape (groups, points)
        Curves at the grid, linear in between.
    multiplier : float
        λ ≥ 0.
    p : float, optional
        Exponent of the record metric, p > 1.

    Returns
    -------
    ndarray, shape (groups,)

    Notes
    -----
    On a segment of slope -s the objective is convex, with its stationary point at
    (s / λq)^(1/(q-1)), clipped to the segment. Curves that are not convex are no obstacle.
    """
    values = np.asarray(values, dtype=float)
    q = _conjugate(p)
    left, right = grid[:-1], grid[1:]
    fall = -np.diff(values, axis=1) / (right - left)
    if q == 1:
        candidates = np.where(fall > multiplier, right, left)
    else:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            stationary = (np.maximum(fall, 0) / (multiplier * q)) ** (1 / (q - 1))
        stationary = np.where(fall > 0, stationary, 0.0)
        candidates = np.clip(stationary, left, right)
    objective = values[:, :-1] - fall * (candidates - left) + multiplier * candidates**q
    best = objective.argmin(axis=1)[:, None]
    return np.take_along_axis(candidates, best, axis=1)[:, 0]


def within_budget(budgets, epsilon, p):
    """Return budgets scaled down, if need be, until they compose to at most epsilon.

    Parameters
    ----------
    budgets : array_like, shape (groups,)
        Nonnegative group budgets.
    epsilon : float
        Budget of the record.
    p : float
        Exponent of the record metric.

    Returns
    -------
    ndarray, shape (groups,)
        ``compose_budget`` of them is at most epsilon, in floating point.

    Raises
    ------
    InvalidBudget
        If an argument is out of range.
    """
    budgets, epsilon = np.array(budgets, dtype=float), check_epsilon(epsilon)
    total, step, scaled = compose_budget(budgets, p), 0.0, budgets
    while compose_budget(scaled, p) > epsilon:
        scaled = budgets * (epsilon / total * (1 - step))
        step = max(2 * step, 2.0**-53)
    return scaled


def _conjugate(p):
    return 1.0 if math.isinf(p) else p / (p - 1)


def _check_curves(budgets, losses, epsilon, p):
    grid, epsilon, p = check_grid(budgets), check_epsilon(epsilon), check_exponent(p)
    losses = np.asarray(losses, dtype=float)
    if losses.ndim != 2 or 0 in losses.shape or losses.shape[1] != len(grid):
        raise InvalidLoss(
            f"losses must have shape (groups, {len(grid)}), one row a group: got {losses.shape}"
        )
    if not np.isfinite(losses).all():
        raise InvalidLoss("every loss of a curve must be finite")
    check_non_increasing(losses)
    if grid[-1] < epsilon * (1 - _SAME):
        raise InvalidBudget(
            f"the grid ends at {grid[-1]:g}, below epsilon {epsilon:g}: one group may be given "
            "all of it, so sample the curves up to there"
        )
    return grid, losses, epsilon, p


def _check_bounds(bounds, shape):
    bounds = np.asarray(bounds, dtype=float)
    if bounds.shape != shape:
        raise InvalidLoss(f"lower bounds have shape {bounds.shape}, the losses {shape}")
    if np.isnan(bounds).any():
        raise InvalidLoss("lower bounds must be numbers; -inf where there is none")
    return bounds


def _evaluated(grid, losses, shares):
    """Return the sample below each share, and the sum of the losses there."""
    choices = np.searchsorted(grid, shares * (1 + _SAME), side="right") - 1
    if choices.min() < 0:
        raise InvalidBudget(f"a share of {shares.min():g} lies below the grid: start the grid at 0")
    return choices, _total(losses, choices)


def _total(losses, choices):
    """Return the exactly rounded sum of the chosen losses."""
    return math.fsum(losses[np.arange(len(losses)), choices])


def _interpolate(grid, values, shares):
    return np.array([np.interp(e, grid, row) for e, row in zip(shares, values, strict=True)])


def _towards(inside, outside, p):
    """Return the last point on the way from inside to outside that composes to one."""
    if compose_budget(outside, p) <= 1:
        return outside
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if compose_budget(inside + middle * (outside - inside), p) <= 1:
            low = middle
        else:
            high = middle
    return inside + low * (outside - inside)


def _costs(grid, epsilon, p):
    """Return (g/ε)^q in units, rounded down; what no group can afford costs more than a unit."""
    shares = grid / epsilon
    if p == 1:
        return np.where(shares <= 1 + _SAME, 0, _UNIT + 1)
    costs = np.floor(np.minimum(shares, 1.0) ** _conjugate(p) * _UNIT).astype(np.int64)
    return np.where(shares <= 1 + _SAME, costs, _UNIT + 1)


def _cells(costs, bounds, whole):
    """Return the least cost and loss of each cell between neighbouring samples.

    Who spends the whole of epsilon has nothing left to move up in the cell.
    """
    affordable = np.flatnonzero(costs <= _UNIT)
    following = np.where(whole[affordable], affordable, affordable + 1)
    return np.append(0, costs[affordable]), bounds[:, np.append(0, following)]


def _knapsack(costs, losses, relax=False):
    """Minimise Σ_k losses[k, i_k] over choices whose costs sum to at most a unit.

    Return the choices and their total; with ``relax`` the total is rounded down, never above the
    least one.
    """
    multiplier, base = _dual(costs, losses)
    reduced = losses + multiplier * costs
    least = reduced.min(axis=1, keepdims=True)
    reduced = reduced - least
    choices = _greedy(costs, losses, reduced)
    total = np.take_along_axis(losses, choices[:, None], axis=1).sum()
    gap = total - base
    rounding = 64 * np.finfo(float).eps * np.abs(losses).max(axis=1).sum()
    # A solution within a small excess is the best of all; a larger excess keeps more states.
    for allowed in gap * 4.0 ** np.arange(-4, 1) if gap > rounding else ():
        try:
            found = _undominated(costs, reduced, multiplier, allowed + rounding)
        except _TooManyChoicesError:
            found = _by_cells(costs, losses, relax)
            if found[1] < total:
                choices, total = found
            break
        if found is not None:
            if base + found[1] < total:
                choices, total = found[0], base + found[1]
            break
    return choices, max(total, base) - rounding if relax else total


def _dual(costs, losses):
    """Return the best multiplier and the value of the Lagrangian dual.

    The dual is a fractional knapsack of the edges of the curves' convex minorants along the cost:
    take them in the order of their slopes while they fit.
    """
    axis, index = np.unique(costs, return_index=True)
    hulls = convex_minorant(axis.astype(float), np.minimum.reduceat(losses, index, axis=1))
    if len(axis) == 1:
        return 0.0, hulls.sum()
    steps = np.diff(axis)
    fall = -(np.diff(hulls, axis=1) / steps).ravel()
    order = np.argsort(-fall, kind="stable")
    spent = np.cumsum(np.broadcast_to(steps, (len(losses), len(steps))).ravel()[order])
    room = _UNIT - axis[0] * len(losses)
    last = np.searchsorted(spent, room, side="right")
    multiplier = max(fall[order[last]], 0.0) if last < len(order) else 0.0
    return multiplier, (losses + multiplier * costs).min(axis=1).sum() - multiplier * _UNIT


def _greedy(costs, losses, reduced):
    """Return a feasible choice: the Lagrangian's cheapest, then upgrades as far as room allows."""
    choices = np.where(reduced <= 0, costs, np.iinfo(np.int64).max).argmin(axis=1)
    if costs[choices].sum() > _UNIT:
        choices[:] = costs.argmin()
    for _ in range(2):
        gains = np.take_along_axis(losses, choices[:, None], axis=1)[:, 0] - losses.min(axis=1)
        for k in np.argsort(-gains):
            room = _UNIT - costs[choices].sum() + costs[choices[k]]
            choices[k] = np.where(costs <= room, losses[k], np.inf).argmin()
    return choices


def _undominated(costs, reduced, multiplier, allowed):
    """Run the dynamic programme over (cost, excess over the Lagrangian) up to an excess.

    Return the best choices and their total excess, unspent costs charged at the multiplier, or
    None if every choice exceeds what is allowed.
    """
    spent, excess = np.zeros(1, dtype=np.int64), np.zeros(1)
    trail = []
    for row in reduced:
        items = np.flatnonzero(row <= allowed)
        if len(spent) * len(items) > _CHOICES:
            raise _TooManyChoicesError
        total = (excess[:, None] + row[items]).ravel()
        cost = (spent[:, None] + costs[items]).ravel()
        kept = np.flatnonzero((total <= allowed) & (cost <= _UNIT))
        kept = kept[_frontier(cost[kept], total[kept], multiplier)]
        if not len(kept):
            return None
        spent, excess = cost[kept], total[kept]
        trail.append((kept // len(items), items[kept % len(items)]))
    value = excess + multiplier * (_UNIT - spent)
    state = int(value.argmin())
    if value[state] > allowed:
        return None
    best, choices = value[state], []
    for parent, item in reversed(trail):
        choices.append(item[state])
        state = parent[state]
    return np.array(choices[::-1]), best


def _frontier(cost, total, multiplier):
    """Return the indices of states that no other beats in cost and loss, by increasing cost."""
    loss = total - multiplier * cost
    order = np.lexsort((loss, cost))
    ordered = loss[order]
    earlier = np.append(np.inf, np.minimum.accumulate(ordered)[:-1])
    return order[ordered < earlier]


def _by_cells(costs, losses, relax):
    """Solve the knapsack with costs rounded to whole cells: down with ``relax``, else as needed.

    Costs rounded down give the optimum if its choices fit; if not, rounding to the nearest may do,
    and rounding up always does.
    """
    width = _UNIT // _CELLS
    for shift in (0, width // 2, width - 1):
        cells = (costs + shift) // width
        affordable = np.flatnonzero(cells <= _CELLS)
        best, items = _fill(cells[affordable], losses[:, affordable], _CELLS)
        choices, cell = np.zeros(len(losses), dtype=np.int64), _CELLS
        for k in range(len(losses) - 1, -1, -1) if np.isfinite(best) else ():
            choices[k] = affordable[items[k, cell]]
            cell -= cells[choices[k]]
        if relax or costs[choices].sum() <= _UNIT:
            break
    return choices, best


@numba.njit(cache=True)
def _fill(cells, losses, capacity):
    """Return the least loss within the capacity, and each group's item for each remaining cell."""
    groups, items = losses.shape
    best = np.zeros(capacity + 1)
    chosen = np.zeros((groups, capacity + 1), dtype=np.int32)
    for k in range(groups):
        following = np.full(capacity + 1, np.inf)
        for i in range(items):
            for cell in range(cells[i], capacity + 1):
                value = best[cell - cells[i]] + losses[k, i]
                if value < following[cell]:
                    following[cell] = value
                    chosen[k, cell] = i
        best = following
    return best[capacity], chosen
