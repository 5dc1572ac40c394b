"""The channel: a row-stochastic matrix together with the metric it is private for."""

from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np

from dephdp.certificate import PrivacyCertificate, certify, privacy_level
from dephdp.errors import InvalidDomain
from dephdp.exponents import largest_private, settle
from dephdp.metric import check_distances, combine_distances, shortest_path_closure
from dephdp.validation import check_epsilon, check_loss, check_prior, check_stochastic

_CHUNK = 1 << 15  # reports drawn at a time: the uniforms stay in the cache


@dataclass(frozen=True, eq=False)
class Channel:
    """A randomised map from n states to m outputs, and the distances between the states.

    Parameters
    ----------
    matrix : array_like, shape (n, m)
        ``matrix[x, y]`` is the probability of reporting y in state x. Rows sum to one within 1e-9.
    distances : array_like, shape (n, n)
        Distances between the states: nonnegative, symmetric, zero on the diagonal.

    Raises
    ------
    InvalidChannel, InvalidMetric
        If the matrix or the distances are not what they must be.

    Notes
    -----
    Both arrays are copied and read-only.

    Examples
    --------
    >>> import numpy as np
    >>> coin = Channel([[0.75, 0.25], [0.25, 0.75]], [[0, 1], [1, 0]])
    >>> bool(np.isclose(coin.privacy_level(), np.log(3)))
    True
    """

    matrix: np.ndarray
    distances: np.ndarray

    def __post_init__(self):
        matrix = np.array(check_stochastic(self.matrix), order="C")
        distances = np.array(check_distances(self.distances, len(matrix)), order="C")
        for name, array in (("matrix", matrix), ("distances", distances)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def __repr__(self):
        return f"Channel({self.states} states, {self.outputs} outputs)"

    @property
    def states(self):
        """Number of states, n."""
        return self.matrix.shape[0]

    @property
    def outputs(self):
        """Number of outputs, m."""
        return self.matrix.shape[1]

    def privacy_level(self):
        """Return the exact privacy level; see :func:`dephdp.privacy_level`.

        Returns
        -------
        float
        """
        return self._level

    def certify(self, epsilon):
        """Return a certificate that the level is at most epsilon.

        Parameters
        ----------
        epsilon : float
            Budget per unit of distance.

        Returns
        -------
        PrivacyCertificate

        Raises
        ------
        CertificationError
            If the level exceeds epsilon.
        """
        return certify(self.matrix, self.distances, epsilon)

    def certificate(self, epsilon):
        """Return the certificate for a budget, whether or not it holds.

        Parameters
        ----------
        epsilon : float
            Budget per unit of distance.

        Returns
        -------
        PrivacyCertificate
        """
        return PrivacyCertificate.compute(self.matrix, self.distances, epsilon)

    def expected_loss(self, prior, loss):
        """Return the expected loss Σ_x π(x) Σ_y M(y | x) c(y | x).

        Parameters
        ----------
        prior : array_like, shape (n,)
            Distribution of the state.
        loss : array_like, shape (n, m)
            Loss c of reporting y in state x.

        Returns
        -------
        float

        Raises
        ------
        InvalidDistribution, InvalidLoss
            If the prior or the loss does not fit the channel.
        """
        prior = check_prior(prior, self.states)
        loss = check_loss(loss, self.matrix.shape)
        return float(prior @ np.einsum("xy,xy->x", self.matrix, loss))

    def sample(self, states, rng):
        """Draw one report for each state.

        Parameters
        ----------
        states : array_like of int
            Indices in 0, ..., n - 1, of any shape.
        rng : numpy.random.Generator
            Source of randomness; one double is consumed a report.

        Returns
        -------
        ndarray of int
            Outputs, in the shape of ``states``.

        Raises
        ------
        InvalidDomain
            If a state is not an integer of that range.
        TypeError
            If ``rng`` is not a Generator.

        Notes
        -----
        Inversion of the row's distribution function, found through a guide table in O(1) expected
        comparisons. An output of probability zero is never drawn. A report resolves
        probabilities to 2⁻⁵³, the grid of the uniform doubles; rows are divided by their sum.
        """
        if not isinstance(rng, np.random.Generator):
            raise TypeError(f"rng must be a numpy.random.Generator, got {type(rng).__name__}")
        states = _check_states(states, self.states)
        flat = np.ravel(states)
        reports = np.empty(flat.size, dtype=np.int64)
        uniforms = np.empty(min(_CHUNK, flat.size))
        cumulative, guide = self._sampler
        for start in range(0, flat.size, _CHUNK):
            stop = min(start + _CHUNK, flat.size)
            chunk = uniforms[: stop - start]
            rng.random(out=chunk)
            _invert(flat[start:stop], chunk, cumulative, guide, reports[start:stop])
        return reports.reshape(states.shape)

    def product(self, other, p=2):
        """Return the channel that applies both, independently, to a pair of states.

        Parameters
        ----------
        other : Channel
            The second factor.
        p : float, optional
            Exponent of the product metric, in [1, ∞].

        Returns
        -------
        Channel
            On the pairs of states, row-major: state (x, x') has index ``x * other.states + x'``;
            outputs likewise.

        See Also
        --------
        dephdp.product_privacy_level : its level without building it.
        """
        return Channel(
            np.kron(self.matrix, other.matrix),
            combine_distances([self.distances, other.distances], p),
        )

    def repair(self, epsilon):
        """Return a nearby channel whose level is at most epsilon.

        Parameters
        ----------
        epsilon : float
            Budget per unit of distance.

        Returns
        -------
        Channel
            This channel itself if it already meets the budget.

        Notes
        -----
        The closure z'(y | x) = max_x' e^(-α d(x, x')) z(y | x') has ratios of at most e^(α d) by
        the triangle inequality (distances are replaced by their shortest paths, which asks for
        the same privacy). Its rows then sum to s(x) ≥ 1, and s(x) ≤ e^(α d) s(x'), so dividing by
        the sums costs at most another α: some exponent α in [ε/2, ε] serves, and the largest one
        found is used; the identity becomes the calibrated exponential mechanism. If the sums are
        one up to a solver's tolerance, α = ε itself serves after mixing in a trace of a channel
        that is private with room to spare, the one at α = ε/4. The nearer of the two channels is
        returned: a solver's answer hardly moves.
        """
        epsilon = check_epsilon(epsilon)
        if self.privacy_level() <= epsilon:
            return self
        metric = shortest_path_closure(self.distances)

        def closure(alpha):
            closed = np.zeros(self.matrix.shape)
            _max_product(np.exp(-alpha * metric), self.matrix, closed)
            return closed / closed.sum(axis=1, keepdims=True)

        lowered = largest_private(
            closure,
            lambda alpha: privacy_level(closure(alpha), self.distances),
            epsilon,
            self.distances,
        )
        full, spare = closure(epsilon), closure(epsilon / 4)
        if privacy_level(spare, self.distances) > epsilon:  # so small a budget that rounding shows
            return Channel(lowered, self.distances)
        mixed = settle(
            lambda weight: weight * full + (1 - weight) * spare, 1.0, epsilon, self.distances
        )
        nearest = min((lowered, mixed), key=lambda matrix: np.abs(matrix - self.matrix).sum())
        return Channel(nearest, self.distances)

    @cached_property
    def _level(self):
        return privacy_level(self.matrix, self.distances)

    @cached_property
    def _sampler(self):
        """The rows' distribution functions, and where to start the search in each."""
        cumulative = np.cumsum(self.matrix, axis=1)
        cumulative /= cumulative[:, -1:]
        # Four cells an output: the first comparison is then nearly always the last.
        cells = 4 << (self.outputs - 1).bit_length()
        guide = np.empty((self.states, cells), dtype=np.min_scalar_type(self.outputs))
        thresholds = np.arange(cells) / cells
        for row, starts in zip(cumulative, guide, strict=True):
            starts[:] = np.searchsorted(row, thresholds, side="right")
        return cumulative, guide


def _check_states(states, count):
    states = np.asarray(states)
    if not np.issubdtype(states.dtype, np.integer):
        raise InvalidDomain(f"states must be integer indices, got dtype {states.dtype}")
    if states.size and (states.min() < 0 or states.max() >= count):
        position = np.flatnonzero((np.ravel(states) < 0) | (np.ravel(states) >= count))[0]
        raise InvalidDomain(
            f"state {np.ravel(states)[position]} at position {position} is outside "
            f"0, ..., {count - 1}"
        )
    return states


@numba.njit(cache=True)
def _invert(states, uniforms, cumulative, guide, reports):
    cells = guide.shape[1]
    for i in range(len(states)):
        x = states[i]
        u = uniforms[i]
        y = np.int64(guide[x, int(u * cells)])
        while cumulative[x, y] <= u:
            y += 1
        reports[i] = y


@numba.njit(cache=True, fastmath={"nnan", "nsz"})
def _max_product(kernel, matrix, out):
    """Raise out[x, y] to max_x' kernel[x, x'] matrix[x', y]."""
    n, m = matrix.shape
    for x in range(n):
        for z in range(n):
            factor = kernel[x, z]
            for y in range(m):
                out[x, y] = max(out[x, y], factor * matrix[z, y])
