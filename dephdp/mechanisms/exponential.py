"""The exponential mechanism, nominal and calibrated."""

import numpy as np

from dephdp.channel import Channel
from dephdp.exponents import check_underflow, largest_private, settle
from dephdp.metric import check_metric
from dephdp.validation import check_epsilon


def exponential_mechanism(distances, epsilon, calibrated=False):
    """Return the exponential mechanism M(y | x) ∝ e^(-α d(x, y)).

    Parameters
    ----------
    distances : array_like, shape (n, n)
        A metric between the states, which are also the outputs.
    epsilon : float
        Budget per unit of distance.
    calibrated : bool, optional
        False: the textbook exponent α = ε/2, whose level is often far below ε. True: the exponent
        is raised until the exact level equals ε.

    Returns
    -------
    Channel
        Its level is at most ε.

    Raises
    ------
    InvalidMetric
        If an axiom fails.
    InvalidBudget
        If epsilon is not finite and positive, or so large that probabilities underflow.

    Notes
    -----
    With Z(x) = Σ_y e^(-α d(x, y)) the exact level is max over x ≠ x' of
    α + (ln Z(x') - ln Z(x)) / d(x, x'), attained at the output y = x. Of the two orders of a pair
    one has a nonnegative second term, and |ln Z(x') - ln Z(x)| ≤ α d(x, x'): the level lies in
    [α, 2α], so the exponent of level ε lies in [ε/2, ε]. The level need not be monotone in α in
    between; the exponent found is a root, and the level of the matrix returned is checked.

    Examples
    --------
    >>> import numpy as np
    >>> coin = exponential_mechanism([[0, 1], [1, 0]], 2.0)
    >>> bool(np.isclose(coin.privacy_level(), 1.0))
    True
    >>> coin = exponential_mechanism([[0, 1], [1, 0]], 2.0, calibrated=True)
    >>> bool(np.isclose(coin.privacy_level(), 2.0))
    True
    """
    epsilon = check_epsilon(epsilon)
    distances = check_metric(distances)
    # States at distance zero share one row, that of the first of them.
    rows = distances[np.argmin(distances, axis=1)]

    # Z(x) lies between 1, the term of y = x, and n: nothing over- or underflows in it.
    def weights(alpha):
        return np.exp(-alpha * rows)

    def build(alpha):
        unnormalised = weights(alpha) if alpha > 0 else np.ones(rows.shape)
        return unnormalised / unnormalised.sum(axis=1, keepdims=True)

    if not calibrated:
        check_underflow(epsilon / 2, distances)
        return Channel(settle(build, epsilon / 2, epsilon, distances), distances)

    constrained = (distances > 0) & np.isfinite(distances)

    def level(alpha):
        log_normaliser = np.log(weights(alpha).sum(axis=1))
        slopes = (log_normaliser[None, :] - log_normaliser[:, None])[constrained]
        return alpha + (slopes / distances[constrained]).max(initial=0.0)

    return Channel(largest_private(build, level, epsilon, distances), distances)
