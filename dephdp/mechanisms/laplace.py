"""Predefined noise, remapped: the geometric and Laplace mechanisms of a line and of the plane."""

import math

import numba
import numpy as np

from dephdp.channel import Channel
from dephdp.errors import InvalidDomain, InvalidMetric
from dephdp.exponents import check_underflow, settle
from dephdp.validation import check_epsilon

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_NEGLIGIBLE = 40.0  # e^-40 is far below one unit of rounding
_WHOLE_TURN = 1e-9  # angles this close to a whole number of turns are one, up to rounding


def geometric_mechanism(states, epsilon, step=1.0):
    """Return the geometric mechanism on equally spaced states, truncated at both ends.

    Parameters
    ----------
    states : int
        Number of states, n, which are also the outputs.
    epsilon : float
        Budget per unit of distance.
    step : float, optional
        Distance between neighbours, finite and positive.

    Returns
    -------
    Channel
        Its level is at most ε, and ε up to rounding if n > 1.

    Raises
    ------
    InvalidDomain, InvalidMetric
        If ``states`` is not a positive integer, or ``step`` is not finite and positive.
    InvalidBudget
        If epsilon is not finite and positive, or so large that probabilities underflow.

    Notes
    -----
    With t = e^(-ε step) the noise has Pr(k) = (1 - t) / (1 + t) t^|k|, and what falls beyond an
    end is reported as that end, which has probability t^|x - y| / (1 + t) (Ghosh, Roughgarden and
    Sundararajan, Universally utility-maximizing privacy mechanisms, STOC 2009). It is the
    tight-constraints mechanism of this line. Followed by :func:`dephdp.bayes_remap` it is optimal
    for every prior and every loss that grows with |x - y|.

    Examples
    --------
    >>> import numpy as np
    >>> (geometric_mechanism(3, np.log(2)).matrix * 6).round(6)
    array([[4., 1., 1.],
           [2., 2., 2.],
           [1., 1., 4.]])
    """
    if not isinstance(states, int | np.integer) or states < 1:
        raise InvalidDomain(f"the number of states must be a positive integer, got {states!r}")
    if not (isinstance(step, int | float | np.number) and math.isfinite(step) and step > 0):
        raise InvalidMetric(f"step must be a finite positive number, got {step!r}")
    epsilon = check_epsilon(epsilon)
    apart = np.abs(np.subtract.outer(np.arange(states), np.arange(states)))
    distances = step * apart
    check_underflow(epsilon, distances)

    def build(alpha):
        t = math.exp(-alpha * step)
        masses = np.full(states, -math.expm1(-alpha * step) / (1 + t))
        masses[[0, -1]] = 1 / (1 + t) if states > 1 else 1.0
        return _normalised(np.exp(-alpha * distances) * masses)

    return Channel(settle(build, epsilon, epsilon, distances), distances)


def laplace_mechanism(positions, epsilon, outputs=None):
    """Return Laplace noise on a line, rounded to the nearest output.

    Parameters
    ----------
    positions : array_like, shape (n,)
        Coordinates of the states, in any order; the metric is their distance.
    epsilon : float
        Budget per unit of distance: the noise has scale 1/ε.
    outputs : array_like, shape (m,), optional
        Coordinates of the outputs; the states by default.

    Returns
    -------
    Channel
        Its level is at most ε. Of outputs that coincide only the first is reported.

    Raises
    ------
    InvalidDomain
        If coordinates are not a nonempty vector of finite numbers.
    InvalidBudget
        If epsilon is not finite and positive, or so large that probabilities underflow.

    Notes
    -----
    The noise has density (ε/2) e^(-ε |z - x|), whose level is exactly ε; rounding is
    post-processing. An output is reported when the noisy value falls between the midpoints to its
    neighbours, the two extreme ones also when it falls outside. These are the differences of the
    distribution function, each computed without cancellation.
    """
    epsilon = check_epsilon(epsilon)
    states = _check_points(positions, "positions", 1)
    targets = states if outputs is None else _check_points(outputs, "outputs", 1)
    distances = np.abs(states - states.T)
    check_underflow(epsilon, np.abs(states - targets.T))
    sites, columns = np.unique(targets[:, 0], return_index=True)
    edges = np.r_[-np.inf, sites[:-1] + np.diff(sites) / 2, np.inf]
    low, high = edges[:-1], edges[1:]
    gap = np.maximum(np.maximum(low - states, states - high), 0.0)

    def build(alpha):
        matrix = np.zeros((len(states), len(targets)))
        outside = np.exp(-alpha * gap) * -np.expm1(-alpha * (high - low))
        inside = -np.expm1(-alpha * np.abs(states - low)) - np.expm1(-alpha * np.abs(high - states))
        matrix[:, columns] = np.where(gap > 0, outside, inside) / 2
        return _normalised(matrix)

    return Channel(settle(build, epsilon, epsilon, distances), distances)


def planar_laplace_mechanism(points, epsilon, outputs=None):
    """Return planar Laplace noise, remapped to the nearest output.

    Parameters
    ----------
    points : array_like, shape (n, 2)
        Coordinates of the states; the metric is Euclidean.
    epsilon : float
        Budget per unit of distance.
    outputs : array_like, shape (m, 2), optional
        Coordinates of the outputs, which need not form a grid; the states by default.

    Returns
    -------
    Channel
        Its level is at most ε. Of outputs that coincide only the first is reported.

    Raises
    ------
    InvalidDomain
        If coordinates are not a nonempty (n, 2) array of finite numbers, or if outputs lie so
        close together that their cells cannot be told from rounding.
    InvalidBudget
        If epsilon is not finite and positive, or so large that probabilities underflow.

    Notes
    -----
    The noise has density ε²/(2π) e^(-ε |z - x|) (Andrés, Bordenabe, Chatzikokolakis and
    Palamidessi, Geo-indistinguishability, CCS 2013), whose level is exactly ε; the remap to the
    nearest output is post-processing. The probability of an output is the integral over its
    Voronoi cell, a convex polygon that may be unbounded. In polar coordinates around x the radial
    integral is closed: within radius r lies the share 1 - (1 + εr) e^(-εr). What remains is one
    integral an edge. An edge on a line at distance h from x, seen under the angles θ from the
    perpendicular, cuts off

        J = ∫ (1 + s sec θ) e^(-s sec θ) dθ = ∫ (1 + s cosh v) e^(-s cosh v) / cosh v dv,  s = εh,

    where sinh v = tan θ makes the integrand analytic in the strip |Im v| < π/2: sixteen
    Gauss-Legendre nodes a unit of v reach rounding. A cell has the probability
    (A - Σ ± J) / 2π, with A = 2π if it contains x and 0 otherwise, and the sign of the side on
    which x lies of each edge. It also is the sum of ± the complements (angle of the edge less J),
    and of the angle under which the cell reaches infinity; of the two expressions the one with the
    smaller terms is used, so a far cell and a cell much smaller than 1/ε both keep their relative
    accuracy. The error is a few units of rounding of the largest term: relative to the cell's
    probability, about 1e-16 over the square of its width in units of its distance or of 1/ε.
    """
    epsilon = check_epsilon(epsilon)
    states = _check_points(points, "points", 2)
    targets = states if outputs is None else _check_points(outputs, "outputs", 2)
    distances = _euclidean(states, states)
    check_underflow(epsilon, _euclidean(states, targets))
    columns = np.sort(np.unique(targets, axis=0, return_index=True)[1])
    sites = np.ascontiguousarray(targets[columns])
    edges = _voronoi_edges(sites)
    arcs = _arcs(sites, *edges)

    def build(alpha):
        cells = _cell_probabilities(states, sites, alpha, arcs, *edges)
        if not (cells >= 0).all():
            output = columns[np.argwhere(~(cells >= 0))[0, 1]]
            raise InvalidDomain(
                f"the cell of output {output} is too small for double precision: merge outputs "
                "that nearly coincide"
            )
        matrix = np.zeros((len(states), len(targets)))
        matrix[:, columns] = cells
        return _normalised(matrix)

    return Channel(settle(build, epsilon, epsilon, distances), distances)


def _normalised(matrix):
    return matrix / matrix.sum(axis=1, keepdims=True)


def _euclidean(points, others):
    return np.hypot(*(np.subtract.outer(points[:, k], others[:, k]) for k in range(2)))


def _check_points(points, name, dimension):
    """Return finite coordinates as an array of shape (count, dimension)."""
    try:
        array = np.array(points, dtype=float)
    except (TypeError, ValueError):
        raise InvalidDomain(f"{name} must be an array of numbers") from None
    shape = f"({'count' + (', 2' if dimension == 2 else ',')})"
    if array.ndim != dimension or 0 in array.shape or (dimension == 2 and array.shape[1] != 2):
        raise InvalidDomain(f"{name} must have shape {shape}, got {array.shape}")
    array = array.reshape(len(array), -1)
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if bad.size:
        raise InvalidDomain(f"{name}[{bad[0]}] = {array[bad[0]].tolist()}: coordinates are finite")
    return array


@numba.njit(cache=True)
def _voronoi_edges(sites):
    """Return the edges of the Voronoi diagram of distinct sites.

    The edge between the cells of i and j lies on their bisector, at the points
    (sites[i] + sites[j]) / 2 + u t for low < u < high, where t is the unit vector from i to j
    turned left. Each other site k cuts a half-line off the bisector. Edges of no length are
    dropped; O(m²) cuts for each site at worst, few in practice since most bisectors vanish early.
    """
    m = len(sites)
    first, second = [0 for _ in range(0)], [0 for _ in range(0)]
    low, high = [0.0 for _ in range(0)], [0.0 for _ in range(0)]
    for i in range(m):
        relative = sites - sites[i]
        order = np.argsort(relative[:, 0] ** 2 + relative[:, 1] ** 2)
        for j in range(i + 1, m):
            x, y = relative[j]
            length = math.hypot(x, y)
            below, above = -np.inf, np.inf
            for k in order:
                if k in (i, j):
                    continue
                a, b = relative[k]
                # Points nearer to i than to k: (a, b) · (middle + u t) <= |(a, b)|² / 2.
                room = (a * (a - x) + b * (b - y)) / 2
                slope = (b * x - a * y) / length
                if slope > 0:
                    above = min(above, room / slope)
                elif slope < 0:
                    below = max(below, room / slope)
                elif room < 0:
                    above = -np.inf
                if below >= above:
                    break
            if below < above:
                first.append(i)
                second.append(j)
                low.append(below)
                high.append(above)
    return np.array(first), np.array(second), np.array(low), np.array(high)


def _arcs(sites, first, second, low, high):
    """Return the angle under which each cell reaches infinity: zero for bounded ones and strips.

    The edges of a cell, seen from its site, leave that part of the whole turn.
    """
    half = np.hypot(*(sites[second] - sites[first]).T) / 2
    seen = np.arctan(high / half) - np.arctan(low / half)
    cells = np.r_[first, second]
    arcs = 2 * np.pi - np.bincount(cells, np.r_[seen, seen], len(sites))
    return np.where(np.abs(arcs) < 1e-14, 0.0, arcs)


@numba.njit(cache=True)
def _cell_probabilities(states, sites, epsilon, arcs, first, second, low, high):
    """Integrate the planar Laplace density around each state over each cell."""
    matrix = np.empty((len(states), len(sites)))
    for x in range(len(states)):
        angles = arcs.copy()  # under which the cell is seen: all around, or not at all
        beyond, beyond_size = np.zeros(len(sites)), np.zeros(len(sites))
        within, within_size = arcs.copy(), arcs.copy()
        for e in range(len(first)):
            i, j = first[e], second[e]
            a, b = sites[j] - sites[i]
            length = math.hypot(a, b)
            p, q = states[x] - sites[i]
            height = length / 2 - (a * p + b * q) / length
            foot = (a * q - b * p) / length
            if height == 0:
                continue
            left, right = (low[e] - foot) / abs(height), (high[e] - foot) / abs(height)
            angle = math.atan(right) - math.atan(left)
            outer, inner = _integrate(epsilon * abs(height), math.asinh(left), math.asinh(right))
            side = math.copysign(1.0, height)
            for cell, sign in ((i, side), (j, -side)):
                angles[cell] += sign * angle
                beyond[cell] += sign * outer
                beyond_size[cell] += outer
                within[cell] += sign * inner
                within_size[cell] += inner
        for cell in range(len(sites)):
            turns = angles[cell] / (2 * math.pi)
            if abs(turns - round(turns)) < _WHOLE_TURN:
                turns = float(round(turns))
            # Two expressions for one number: the smaller terms leave the smaller error.
            if within_size[cell] < beyond_size[cell] + abs(turns):
                matrix[x, cell] = within[cell] / (2 * math.pi)
            else:
                matrix[x, cell] = turns - beyond[cell] / (2 * math.pi)
    return matrix


@numba.njit(cache=True)
def _integrate(s, start, stop):
    """Integrate, over an edge from v = start to stop, the share of noise beyond it and within."""
    if stop <= 0:  # the integrands are even
        start, stop = -stop, -start
    if start >= 0:
        return _integrate_monotone(s, start, stop)
    beyond_left, within_left = _integrate_monotone(s, 0.0, -start)
    beyond_right, within_right = _integrate_monotone(s, 0.0, stop)
    return beyond_left + beyond_right, within_left + within_right


@numba.njit(cache=True)
def _integrate_monotone(s, start, stop):
    """Do so for 0 <= start, in panels over which the integrands are smooth."""
    if s == 0:
        return _angle(start, stop), 0.0
    # From here on practically nothing lies beyond the edge.
    last = min(stop, math.acosh(math.cosh(start) + _NEGLIGIBLE / s))
    fall = s * (math.cosh(last) - math.cosh(start))
    panels = max(1, math.ceil(max(last - start, fall / 8)))
    half = (last - start) / panels / 2
    beyond, within = 0.0, _angle(last, stop)
    for k in range(panels):
        centre = start + (2 * k + 1) * half
        for node in range(len(_NODES)):
            cosh = math.cosh(centre + half * _NODES[node])
            share_beyond, share_within = _radial_shares(s * cosh)
            weight = half * _WEIGHTS[node] / cosh
            beyond += weight * share_beyond
            within += weight * share_within
    return beyond, within


@numba.njit(cache=True)
def _angle(start, stop):
    """Integrate 1 / cosh v, for 0 <= start <= stop <= ∞."""
    return 2 * (math.atan(math.exp(-start)) - math.atan(math.exp(-stop)))


@numba.njit(cache=True)
def _radial_shares(radius):
    """Return the shares of planar noise beyond and within a radius, in units of 1/ε."""
    decay = math.exp(-radius)
    beyond = (1 + radius) * decay
    if radius > 1:
        return beyond, 1 - beyond
    term, series, k = radius * radius / 2, 0.0, 3
    while series + term > series:
        series += term
        term *= radius / k
        k += 1
    return beyond, series * decay
