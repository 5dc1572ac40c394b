"""The tight-constraints mechanism: every privacy constraint that involves the report is tight."""

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import nnls

from dephdp.channel import Channel
from dephdp.errors import InfeasibleMechanism, SolverError
from dephdp.exponents import check_underflow, settle
from dephdp.metric import check_metric
from dephdp.validation import check_epsilon

_ULP = np.finfo(float).eps


def tight_constraints_mechanism(distances, epsilon):
    """Return the mechanism M(y | x) = e^(-ε d(x, y)) μ(y) whose rows sum to one, if it exists.

    Parameters
    ----------
    distances : array_like, shape (n, n)
        A metric between the states, which are also the outputs.
    epsilon : float
        Budget per unit of distance.

    Returns
    -------
    Channel
        Its level is at most ε, and equals ε up to rounding if some pair of states is constrained.
        An output of mass zero stays as a column of zeros.

    Raises
    ------
    InfeasibleMechanism
        If no nonnegative masses exist; the message names outputs whose mass is negative.
    InvalidMetric
        If an axiom fails.
    InvalidBudget
        If epsilon is not finite and positive, or so large that probabilities underflow.
    SolverError
        If the kernel is singular and least squares does not converge.

    Notes
    -----
    With K = e^(-ε D) the rows sum to one exactly if K μ = 1. If such a μ ≥ 0 exists, then
    M(y | x) / M(y | x') = e^(ε (d(x', y) - d(x, y))) ≤ e^(ε d(x, x')) by the triangle inequality,
    with equality at y = x: the level is exactly ε (ElSalamouny, Chatzikokolakis and Palamidessi,
    Generalized differential privacy, LNCS 8464, 2014). On a line the masses are positive at every
    ε; on the discrete metric the mechanism is randomised response. On any finite metric it exists
    for ε large enough, since K tends to the identity.

    K μ = 1 is solved by elimination with iterative refinement. States at distance zero are one
    state, whose output is the first of them. K can be singular for other reasons (on the complete
    bipartite graph of 3 + 3 vertices at ε = ln 2, for one): nonnegative least squares then finds a
    μ ≥ 0 among the many. A mass below zero counts as zero if the rows still sum to one without it
    up to a billionth of ε times the least distance, or up to rounding.

    Examples
    --------
    >>> import numpy as np
    >>> line = tight_constraints_mechanism(np.abs(np.subtract.outer(range(3), range(3))), np.log(2))
    >>> (line.matrix * 6).round(6)
    array([[4., 1., 1.],
           [2., 2., 2.],
           [1., 1., 4.]])
    """
    epsilon = check_epsilon(epsilon)
    distances = check_metric(distances)
    check_underflow(epsilon, distances)
    first = np.argmin(distances, axis=1)  # of the states at distance zero from this one
    merged, rows = np.unique(first, return_inverse=True)
    between = distances[np.ix_(merged, merged)]

    def build(alpha):
        kernel = np.exp(-alpha * between)
        weighted = kernel * _masses(kernel, _tolerance(alpha, between), merged, epsilon)
        matrix = np.zeros(distances.shape)
        matrix[:, merged] = (weighted / weighted.sum(axis=1, keepdims=True))[rows]
        return matrix

    return Channel(settle(build, epsilon, epsilon, distances), distances)


def _tolerance(alpha, distances):
    """How far from one a row may sum, so that dividing by the sum hardly moves the level."""
    least = distances[distances > 0].min(initial=np.inf)
    return max(1e-9 * min(alpha * least, 1.0), 8 * len(distances) * _ULP)


def _masses(kernel, tolerance, names, epsilon):
    """Return μ ≥ 0 with K μ = 1 up to the tolerance, or refuse."""
    masses, well_posed = _solve(kernel)
    candidates = [masses] if well_posed else [masses, _least_squares(kernel)]
    for candidate in candidates:
        # What is below the rounding of the largest mass is rounding.
        kept = np.where(candidate > _ULP * candidate.max(), candidate, 0.0)
        if np.abs(kernel @ kept - 1).max() <= tolerance:
            return kept
    negative = np.flatnonzero(masses < 0)
    if not negative.size:
        raise InfeasibleMechanism(
            f"the kernel e^(-ε d) is singular at epsilon {epsilon!r} and no masses make its rows "
            "sum to one: change epsilon, or use exponential_mechanism(..., calibrated=True)"
        )
    worst = np.argmin(masses)
    listed = ", ".join(str(names[y]) for y in negative[:5]) + (", ..." if negative.size > 5 else "")
    raise InfeasibleMechanism(
        f"at epsilon {epsilon!r} the masses of {negative.size} of {len(masses)} outputs would be "
        f"negative (outputs {listed}; the least is {masses[worst]:.3g} at output {names[worst]}): "
        "raise epsilon, or use exponential_mechanism(..., calibrated=True)"
    )


def _least_squares(kernel):
    """Return the μ ≥ 0 that comes closest to K μ = 1."""
    try:
        return nnls(kernel, np.ones(len(kernel)))[0]
    except RuntimeError as error:
        raise SolverError(f"nonnegative least squares on a singular kernel: {error}") from None


def _solve(kernel):
    """Solve K μ = 1 with two steps of refinement; also say whether K is far from singular."""
    ones = np.ones(len(kernel))
    factors, pivots, singular = lapack.dgetrf(kernel)
    if singular:
        return np.full(len(kernel), np.nan), False
    reciprocal_condition, _ = lapack.dgecon(factors, np.abs(kernel).sum(axis=0).max())
    masses, _ = lapack.dgetrs(factors, pivots, ones)
    for _ in range(2):
        residual = ones - kernel.astype(np.longdouble) @ masses.astype(np.longdouble)
        masses = masses + lapack.dgetrs(factors, pivots, residual.astype(float))[0]
    return masses, reciprocal_condition > 1e-12
