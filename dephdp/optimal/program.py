"""The optimal mechanism as the linear program that defines it, for small n."""

from __future__ import annotations

import warnings

import numpy as np

from dephdp.channel import Channel
from dephdp.errors import SolverError
from dephdp.metric import check_metric
from dephdp.optimal.certified import OptimalMechanism, certified
from dephdp.optimal.pairs import necessary_pairs
from dephdp.optimal.problem import Multipliers, Problem


def optimal_mechanism_lp(
    prior, loss, distances, epsilon, *, solver=None, **options
) -> OptimalMechanism:
    """Solve the linear program of the optimal mechanism with cvxpy.

    Parameters
    ----------
    prior : array_like, shape (n,)
        Probability of each state.
    loss : array_like, shape (n, m)
        Loss of reporting each of the m outputs in each of the n states.
    distances : array_like, shape (n, n)
        An extended pseudo-metric between the states.
    epsilon : float
        Budget per unit of distance.
    solver : str, optional
        Name of a solver that cvxpy knows; HiGHS by default.
    **options
        Options of that solver.

    Returns
    -------
    OptimalMechanism
        The solver's channel after repair; its multipliers are the solver's dual values.

    Raises
    ------
    InvalidDistribution, InvalidLoss, InvalidMetric, InvalidBudget
        If an argument is not what it must be.
    SolverError
        If the solver fails or does not report an optimum.

    Notes
    -----
    With q[x, y] = prior[x] loss[x, y]:

        minimise    sum_xy q[x, y] z[x, y]
        subject to  exp(-epsilon d(x, x')) z[x, y] <= z[x', y]   for all pairs x, x' and all y,
                    sum_y z[x, y] = 1                            for all x,
                    z >= 0.

    n m variables and up to n (n - 1) m rows. Solvers respect rows up to an absolute tolerance,
    which means nothing for ratios of small probabilities: what they return is rarely private. It
    is never returned as it is, but closed under the constraints (`Channel.repair`) and certified.
    """
    problem = Problem(prior, loss, distances, epsilon)
    check_metric(problem.distances)
    matrix, multipliers, iterations = solve_program(problem, solver, **options)
    sums = matrix.sum(axis=1, keepdims=True)
    channel = Channel(matrix / sums, problem.distances).repair(problem.epsilon)
    return certified(problem, channel.matrix, multipliers, iterations, "optimal")


def solve_program(problem: Problem, solver=None, **options):
    """Return what the solver returns: nothing about it is certified.

    Parameters
    ----------
    problem : Problem
    solver : str, optional
        Name of a solver that cvxpy knows; HiGHS by default.
    **options
        Options of that solver.

    Returns
    -------
    matrix : ndarray, shape (n, m)
        The solver's z, negative entries set to zero.
    multipliers : Multipliers
        Its dual values of the privacy rows, negative ones set to zero.
    iterations : int

    Raises
    ------
    SolverError
        If the solver fails or does not report an optimum.
    """
    import cvxpy as cp

    n, m = problem.loss.shape
    q = problem.weighted_loss
    scale = np.abs(q).max() or 1.0
    x, other = np.nonzero(necessary_pairs(problem.distances))
    decay = np.exp(-problem.epsilon * problem.distances[x, other])[:, None]

    z = cp.Variable((n, m), nonneg=True)
    expected_loss = cp.sum(cp.multiply(q / scale, z))
    privacy = cp.multiply(decay, z[x]) <= z[other]
    total = cp.sum(z, axis=1) == 1
    program = cp.Problem(cp.Minimize(expected_loss), [privacy, total] if len(x) else [total])
    try:
        with warnings.catch_warnings():  # an inaccurate answer is refused below, not warned about
            warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
            program.solve(solver=solver or cp.HIGHS, **options)
    except cp.error.SolverError as error:
        raise SolverError(f"the solver failed on {n} states and {m} outputs: {error}") from error
    if program.status != cp.OPTIMAL:
        raise SolverError(f"the solver stopped with status {program.status!r}, not with an optimum")

    multipliers = Multipliers.none()
    if len(x):
        dual = scale * np.maximum(privacy.dual_value, 0)
        pair, output = np.nonzero(dual)
        multipliers = Multipliers(x[pair], other[pair], output, dual[pair, output])
    iterations = program.solver_stats.num_iters or 0
    return np.maximum(z.value, 0), multipliers, int(iterations)
