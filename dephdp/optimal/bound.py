"""Proven lower bounds on the expected loss of every private mechanism.

For any multipliers ``f[y](i -> j) >= 0`` of the privacy rows, with ``E = exp(-epsilon d)`` and
``(A'f)_j = sum_i f(i -> j) - sum_k E_jk f(j -> k)``, every private channel ``z`` has
``<f, A z> >= 0``, hence

    loss(z) = sum_y <q_y, z_y> >= sum_y <q_y - A'f_y, z_y> >= sum_x min_y (q_y - A'f_y)_x,

because ``z >= 0`` and each row of ``z`` sums to one. No solver has to be trusted: whatever the
multipliers, the right-hand side is a bound.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from scipy import optimize, sparse

from dephdp.errors import SolverError
from dephdp.optimal.problem import Multipliers, Problem


def lower_bound(problem: Problem, multipliers: Multipliers) -> float:
    """Return a number that no mechanism private at the problem's budget can go below.

    Parameters
    ----------
    problem : Problem
        The instance, with ``n`` states and ``m`` outputs.
    multipliers : Multipliers
        Any non-negative multipliers; the better they are, the higher the bound.

    Returns
    -------
    float
        ``L = sum_x min_y (q_y - A'f_y)_x`` over all ``m`` outputs, rounded downwards.

    Notes
    -----
    Arithmetic is in doubles, so each ``(q_y - A'f_y)_x`` is lowered by a bound on its own rounding
    error before the minimum is taken. With unit roundoff ``u``, a sum of ``k`` terms is off by at
    most ``k u`` times the sum of their magnitudes (Higham, Accuracy and Stability of Numerical
    Algorithms, section 4.2), and a term ``exp(-epsilon d) f`` by ``epsilon d + 3`` units of its own
    size (product, exponential, product). Twice that is taken off, which also covers the rounding
    of the margin. The final sum over states is exact (`math.fsum`), then rounded down once.
    """
    reduced = problem.weighted_loss.copy()
    magnitude = np.abs(reduced)
    error = 2 * magnitude
    terms = np.ones(reduced.shape, dtype=np.int32)
    _subtract_rows(
        reduced,
        magnitude,
        error,
        terms,
        problem.epsilon,
        problem.distances,
        multipliers.source,
        multipliers.target,
        multipliers.output,
        multipliers.value,
    )
    unit = np.finfo(float).eps  # twice the unit roundoff
    reduced -= unit * (terms * magnitude + error)
    return math.nextafter(math.fsum(reduced.min(axis=1)), -math.inf)


def cluster_bound(problem: Problem, clusters) -> float:
    """Return a lower bound from solving each cluster of states on its own.

    Forgetting the privacy rows between clusters relaxes the problem, so the sum of the clusters'
    optimal losses (each weighted by the prior inside ``q``) is a bound for the whole. It shares no
    code with the engines beyond the certificate, and is a check on them.

    Parameters
    ----------
    problem : Problem
    clusters : array_like of int, shape (n,)
        Label of the cluster of each state. Larger clusters give better bounds at a higher price:
        a cluster of ``k`` states is a linear program with ``k (k - 1) m`` rows.

    Returns
    -------
    float

    Raises
    ------
    SolverError
        If HiGHS does not solve a cluster.
    """
    labels = np.asarray(clusters)
    if labels.shape != (problem.states,):
        raise ValueError(f"clusters must label each of the {problem.states} states once")
    parts = [cluster_multipliers(problem, np.flatnonzero(labels == k)) for k in np.unique(labels)]
    return lower_bound(problem, Multipliers.concatenate(parts))


def cluster_multipliers(problem: Problem, states) -> Multipliers:
    """Return HiGHS's multipliers of the linear program restricted to some of the states.

    Parameters
    ----------
    problem : Problem
    states : array_like of int
        Distinct indices of the states kept; the rows among them keep all their outputs.

    Returns
    -------
    Multipliers
        In the numbering of the whole problem.
    """
    states = np.asarray(states)
    source, target = np.nonzero(np.isfinite(problem.distances[np.ix_(states, states)]))
    source, target = source[source != target], target[source != target]
    weighted = problem.weighted_loss[states]
    scale = np.abs(weighted).max()
    if not len(source) or scale == 0:
        return Multipliers.none()
    decay = np.exp(-problem.epsilon * problem.distances[states[source], states[target]])
    k, m, pairs = len(states), problem.outputs, np.arange(len(source))
    slack = sparse.csr_array((np.ones(len(pairs)), (pairs, target)), (len(pairs), k))
    slack -= sparse.csr_array((decay, (pairs, source)), (len(pairs), k))
    solution = optimize.linprog(
        weighted.ravel() / scale,
        A_ub=sparse.kron(-slack, sparse.eye_array(m), format="csr"),
        b_ub=np.zeros(len(pairs) * m),
        A_eq=sparse.kron(sparse.eye_array(k), np.ones((1, m)), format="csr"),
        b_eq=np.ones(k),
        method="highs",
    )
    if solution.status != 0:
        raise SolverError(f"HiGHS stopped on a cluster of {k} states: {solution.message}")
    value = scale * np.maximum(-np.asarray(solution.ineqlin.marginals), 0).reshape(-1, m)
    pair, output = np.nonzero(value)
    return Multipliers(states[source[pair]], states[target[pair]], output, value[pair, output])


@numba.njit(cache=True)
def _subtract_rows(
    reduced, magnitude, error, terms, epsilon, distances, source, target, output, value
):
    """Subtract ``A'f`` from ``reduced``, tracking what the rounding error depends on."""
    for k in range(len(value)):
        i, j, y, f = source[k], target[k], output[k], value[k]
        reduced[j, y] -= f
        magnitude[j, y] += f
        terms[j, y] += 1
        exponent = epsilon * distances[i, j]
        weighted = math.exp(-exponent) * f
        if weighted > 0:  # an underflow to zero only lowers the bound
            reduced[i, y] += weighted
            magnitude[i, y] += weighted
            error[i, y] += (exponent + 3) * weighted
            terms[i, y] += 1
