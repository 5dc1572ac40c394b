"""The exact privacy level of a channel, and the certificate that states it."""

import math
from dataclasses import dataclass

import numba
import numpy as np

from dephdp.errors import CertificationError
from dephdp.metric import check_distances
from dephdp.validation import check_epsilon, check_stochastic

# The log of a zero: far below the log of any positive double (about -745), yet finite, so that
# zero against zero subtracts to 0 and a positive against zero to something unmistakably large.
_LOG_ZERO = -1e6
_ZERO_FACES_POSITIVE = 1e5

_ULP = np.finfo(float).eps


def log_ratios(matrix):
    """Return the largest log-likelihood ratio of every ordered pair of states.

    Parameters
    ----------
    matrix : array_like, shape (n, m)
        A row-stochastic matrix.

    Returns
    -------
    ndarray, shape (n, n)
        Entry (x, x') is max_y ln(M[x, y] / M[x', y]): infinite where some output is possible in x
        and impossible in x'. Outputs that are impossible in both do not count.

    Raises
    ------
    InvalidChannel
        If the matrix is not row-stochastic.
    """
    logs = _logarithms(check_stochastic(matrix))
    ratios = np.zeros((len(logs), len(logs)))
    _pairwise_maxima(logs, ratios)
    ratios[ratios > _ZERO_FACES_POSITIVE] = np.inf
    return ratios


def largest_ratio_output(matrix, state, other):
    """Return an output at which a pair of states attains its largest log-likelihood ratio.

    Parameters
    ----------
    matrix : array_like, shape (n, m)
        A row-stochastic matrix.
    state, other : int
        The ordered pair (x, x').

    Returns
    -------
    int
        argmax_y ln(M[x, y] / M[x', y]), the first of several.
    """
    logs = _logarithms(np.asarray(matrix, dtype=float)[[state, other]])
    return int(np.argmax(logs[0] - logs[1]))


def privacy_level(matrix, distances):
    """Return the exact privacy level: the least ε for which the channel is (ε, d)-private.

    Parameters
    ----------
    matrix : array_like, shape (n, m)
        A row-stochastic matrix.
    distances : array_like, shape (n, n)
        Distances between the states; see :func:`dephdp.metric.check_metric`.

    Returns
    -------
    float
        max over all ordered pairs x ≠ x' and all outputs y of ln(M[x, y] / M[x', y]) / d(x, x').
        Infinite if a zero faces a positive probability at a finite distance, or if states at
        distance zero have different rows; pairs at infinite distance are not constrained.

    Raises
    ------
    InvalidChannel, InvalidMetric
        If the matrix or the distances are not what they must be.

    Notes
    -----
    Computed from the logarithms of the entries, over all pairs, in O(n² m) time and O(n² + n m)
    memory. :class:`PrivacyCertificate` also bounds the rounding of this computation.
    """
    ratios = log_ratios(matrix)
    return float(_per_distance(ratios, check_distances(distances, len(ratios))).max(initial=0.0))


@dataclass(frozen=True)
class PrivacyCertificate:
    """What was verified about a channel: its exact level against a budget.

    Attributes
    ----------
    level : float
        The computed privacy level, over all ordered pairs of states and all outputs.
    epsilon : float
        The budget it is held against.
    states : tuple of int or None
        The worst ordered pair (x, x'); None if no pair of states is constrained.
    output : int or None
        An output at which that pair attains the level.
    rounding : float
        The exact level of the stored matrix, each row divided by its sum (which is what
        ``Channel.sample`` draws from), is at most ``level + rounding``: a bound on the rounding of
        the logarithms, of their difference and of the division, and on what row sums that differ
        from one change.

    Notes
    -----
    ``holds`` compares the computed level with ``epsilon`` and allows no tolerance: mechanisms of
    this package leave a hair of slack instead. Logarithms are taken to be accurate to one unit in
    the last place.
    """

    level: float
    epsilon: float
    states: tuple[int, int] | None
    output: int | None
    rounding: float

    @classmethod
    def compute(cls, matrix, distances, epsilon):
        """Compute the certificate of a channel, whether or not it meets the budget.

        Parameters
        ----------
        matrix : array_like, shape (n, m)
            A row-stochastic matrix.
        distances : array_like, shape (n, n)
            Distances between the states.
        epsilon : float
            Budget per unit of distance.

        Returns
        -------
        PrivacyCertificate
        """
        epsilon = check_epsilon(epsilon)
        matrix = check_stochastic(matrix)
        distances = check_distances(distances, len(matrix))
        ratios = log_ratios(matrix)
        levels = _per_distance(ratios, distances)
        if levels.max() == -np.inf:
            return cls(0.0, epsilon, None, None, 0.0)
        x, other = map(int, np.unravel_index(np.argmax(levels), levels.shape))
        output = largest_ratio_output(matrix, x, other)
        level = float(levels[x, other])
        return cls(level, epsilon, (x, other), output, _rounding(level, matrix, ratios, distances))

    @property
    def holds(self):
        """Whether the computed level is at most epsilon."""
        return self.level <= self.epsilon

    def __str__(self):
        verdict = "holds" if self.holds else "FAILS"
        worst = (
            "no pair of states is constrained"
            if self.states is None
            else f"worst: states {self.states[0]} and {self.states[1]}, output {self.output}"
        )
        return (
            f"privacy level {self.level:.10g} against epsilon {self.epsilon:.10g}: {verdict} "
            f"({worst}; rounding at most {self.rounding:.1e})"
        )


def certify(matrix, distances, epsilon):
    """Return the certificate of a channel that meets its budget, or refuse.

    Parameters
    ----------
    matrix : array_like, shape (n, m)
        A row-stochastic matrix.
    distances : array_like, shape (n, n)
        Distances between the states.
    epsilon : float
        Budget per unit of distance.

    Returns
    -------
    PrivacyCertificate

    Raises
    ------
    CertificationError
        If the computed level exceeds epsilon by any amount.
    """
    certificate = PrivacyCertificate.compute(matrix, distances, epsilon)
    if not certificate.holds:
        raise CertificationError(f"{certificate}; lower the noise budget or repair the channel")
    return certificate


def _logarithms(matrix):
    logs = np.full(matrix.shape, _LOG_ZERO)
    np.log(matrix, out=logs, where=matrix > 0)
    return logs


def _per_distance(ratios, distances):
    """Divide by the distance; -inf where a pair is not constrained."""
    levels = np.full(ratios.shape, -np.inf)
    np.divide(ratios, distances, out=levels, where=(distances > 0) & np.isfinite(distances))
    levels[(distances == 0) & (ratios > 0)] = np.inf
    return levels


def _rounding(level, matrix, ratios, distances):
    if not np.isfinite(level):
        return 0.0
    largest = np.abs(np.log(matrix, out=np.zeros(matrix.shape), where=matrix > 0)).max(axis=1)
    sums = np.log([math.fsum(row) for row in matrix])
    errors = np.maximum(sums[None, :] - sums[:, None], 0.0)
    errors += _ULP * (largest[:, None] + largest[None, :] + ratios + 4)
    constrained = (distances > 0) & np.isfinite(distances)
    bounds = (ratios + errors)[constrained] / distances[constrained]
    return float(bounds.max(initial=level) - level)


# Comparisons that ignore NaN and the sign of zero let the compiler vectorise the two reductions;
# neither occurs here.
@numba.njit(cache=True, fastmath={"nnan", "nsz"})
def _pairwise_maxima(logs, out):
    n, m = logs.shape
    for x in range(n):
        for z in range(x + 1, n):
            highest = -np.inf
            lowest = np.inf
            for y in range(m):
                difference = logs[x, y] - logs[z, y]
                highest = max(highest, difference)
                lowest = min(lowest, difference)
            out[x, z] = highest
            out[z, x] = -lowest
