"""What a server makes of all reports together: tables without the noise's bias, and their error.

N users with fixed states report independently through a channel M. The server sees the relative
frequencies h of the reports and wants those of the states, π, or tables πS of them.
"""

import numpy as np

from dephdp.errors import InvalidDistribution, SolverError
from dephdp.validation import check_prior, check_stochastic


def inversion_weights(matrix):
    """Return the weights W for which hW estimates the distribution of the states.

    Parameters
    ----------
    matrix : array_like, shape (n, m)
        The channel.

    Returns
    -------
    ndarray, shape (m, n)
        The Moore-Penrose inverse of the channel.

    Notes
    -----
    If the rows of the channel are linearly independent, MW = I and hW is unbiased, whatever π is.
    Otherwise no weights are: hW then has the mean πMW, the part of π that reports can tell. A
    remapped channel has fewer reports than states, and is of this kind. Entries of hW can be
    negative, and are left so.
    """
    return np.linalg.pinv(check_stochastic(matrix))


def iterative_bayesian_update(histogram, matrix, *, gap=1e-3, limit=100_000):
    """Return a distribution of the states under which the reports are most likely.

    Parameters
    ----------
    histogram : array_like, shape (m,)
        Relative frequencies h of the reports.
    matrix : array_like, shape (n, m)
        The channel.
    gap : float, optional
        How much of the log-likelihood per report, Σ_y h(y) ln (πM)(y), may be missing.
    limit : int, optional
        The largest number of updates.

    Returns
    -------
    distribution : ndarray, shape (n,)
        It starts uniform, so that of several maximisers one with large support is found.
    missing : float
        No distribution has a log-likelihood larger by more than this.

    Raises
    ------
    InvalidDistribution
        If the histogram is not a distribution, or holds a report that no state makes.
    SolverError
        If the updates do not suffice.

    Notes
    -----
    One update replaces π by the average posterior, π(x) g(x) with
    g(x) = Σ_y h(y) M(y | x) / (πM)(y): the expectation-maximisation algorithm of Dempster, Laird
    and Rubin (1977), known in privacy as the iterative Bayesian update (Agrawal and Aggarwal,
    2001). By Jensen's inequality ln max g bounds what is missing.

    Examples
    --------
    >>> coin = [[0.75, 0.25], [0.25, 0.75]]
    >>> found, missing = iterative_bayesian_update([0.7, 0.3], coin, gap=1e-9)
    >>> found.round(3).tolist()  # the inversion (h - 1/4) / (1/2) is a distribution here
    [0.9, 0.1]
    """
    matrix = check_stochastic(matrix)
    histogram = check_prior(histogram, matrix.shape[1])
    seen = histogram > 0
    histogram, matrix = histogram[seen], matrix[:, seen]
    if not (matrix > 0).any(axis=0).all():
        raise InvalidDistribution("the histogram holds a report that no state of the channel makes")
    current = np.full(len(matrix), 1 / len(matrix))
    for _ in range(limit):
        growth = matrix @ (histogram / (current @ matrix))
        missing = float(np.log(growth.max()))
        if missing <= gap:
            return current, max(missing, 0.0)
        current = current * growth
        current /= current.sum()  # one, up to rounding
    raise SolverError(
        f"{limit} updates leave {missing:.3g} of the log-likelihood per report, more than {gap:g}: "
        "allow a larger gap or more updates"
    )


def expected_squared_error(prior, matrix, weights, target, size):
    """Return the mean squared error E‖hW - πS‖² of a table of reports, exactly.

    Parameters
    ----------
    prior : array_like, shape (n,)
        The frequencies π of the users' states.
    matrix : array_like, shape (n, m)
        The channel M.
    weights : array_like, shape (m, t)
        W: S itself for reports taken at their word, W = M⁺S to remove the bias.
    target : array_like, shape (n, t)
        S: what a state contributes to the table, for instance the indicators of its levels.
    size : int
        The number N of users.

    Returns
    -------
    bias, variance : float
        ‖π(MW - S)‖² and (1/N) Σ_x π(x) (Σ_y M(y | x) ‖w_y‖² - ‖(MW)_x‖²), which add up to the mean
        squared error.
    """
    matrix = check_stochastic(matrix)
    prior = check_prior(prior, len(matrix))
    weights, target = np.asarray(weights, dtype=float), np.asarray(target, dtype=float)
    mean = matrix @ weights
    bias = ((prior @ (mean - target)) ** 2).sum()
    spread = prior @ (matrix @ (weights**2).sum(axis=1) - (mean**2).sum(axis=1))
    return float(bias), float(spread) / size
