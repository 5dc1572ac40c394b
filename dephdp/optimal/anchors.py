"""Anchor-based approximation of the optimal mechanism, and the guarantee that it really gives.

Phase I: a person draws a random set of states, near ones with a high probability, and sends it.
Phase II: a linear program over those states alone, the anchors, gives each a row of probabilities;
the person reports from the row of the nearest anchor in the own set. The scheme is that of Liu and
Qiu (PAnDA, CCS 2025). What it costs and guarantees is computed here exactly, over all sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np

from dephdp.certificate import log_ratios
from dephdp.channel import Channel
from dephdp.errors import DephdpError, InvalidBudget, InvalidChannel, InvalidDomain
from dephdp.metric import check_distances, check_metric
from dephdp.optimal.certified import OptimalMechanism
from dephdp.optimal.solve import optimal_mechanism
from dephdp.validation import check_epsilon, check_loss, check_prior

_ENUMERABLE = 14  # candidates whose sets are written down
_FINITE = 1e300  # stands for infinity where infinities would be subtracted
_SAME = 1e-9  # a privacy loss that exceeds what is allowed by this little, relatively, is rounding

_KERNELS = {
    "exponential": lambda t, decay: np.exp(-decay * t),
    "power": lambda t, decay: 1 / (1 + t**decay),
    "logistic": lambda t, decay: 2 / (1 + np.exp(decay * t)),
}


@dataclass(frozen=True)
class AnchorSelection:
    """Probabilities with which a person's state selects each state as an anchor.

    Parameters
    ----------
    alpha : float, optional
        Probability that a state selects itself, in (0, 1).
    decay : float, optional
        λ > 0: how fast the probability falls with the distance.
    divisor : float, optional
        The radius is the largest distance divided by it.
    far : float, optional
        Probability of a state at the radius or beyond, in (0, 1).
    kernel : {"exponential", "power", "logistic"}, optional
        Shape within the radius: e^(-λ t), 1 / (1 + t^λ) or 2 / (1 + e^(λ t)) at distance t.

    Examples
    --------
    >>> import numpy as np
    >>> line = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    >>> AnchorSelection(divisor=1.5, far=0.01)(line).round(4)[0]
    array([0.95  , 0.6368, 0.01  ])
    """

    alpha: float = 0.95
    decay: float = 0.4
    divisor: float = 100.0
    far: float = 1e-4
    kernel: str = "exponential"

    def __post_init__(self):
        for name in ("alpha", "far"):
            if not 0 < getattr(self, name) < 1:
                raise InvalidChannel(
                    f"{name} = {getattr(self, name)!r} must lie strictly between 0 and 1: a "
                    "certain or impossible selection tells states apart without limit"
                )
        for name in ("decay", "divisor"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise DephdpError(f"{name} must be finite and positive")
        if self.kernel not in _KERNELS:
            raise DephdpError(f"kernel {self.kernel!r} is not one of {', '.join(_KERNELS)}")

    def radius(self, distances):
        """Return the distance from which on states count as far."""
        distances = np.asarray(distances, dtype=float)
        return float(distances[np.isfinite(distances)].max(initial=0.0)) / self.divisor

    def __call__(self, distances):
        """Return the selection probabilities.

        Parameters
        ----------
        distances : array_like, shape (n, n)

        Returns
        -------
        ndarray, shape (n, n)
            Entry (i, j): the probability that a person in state i selects state j.
        """
        distances = check_distances(distances)
        near = (distances < self.radius(distances)) | (distances == 0)
        shape = self.alpha * _KERNELS[self.kernel](np.where(near, distances, 0.0), self.decay)
        return np.where(near, np.maximum(shape, self.far), self.far)


def selection_cost(probabilities):
    """Return what sending the selected set costs in privacy, for every pair of states.

    Parameters
    ----------
    probabilities : array_like, shape (n, m)
        Entry (i, j): probability that state i selects candidate j, strictly between 0 and 1.

    Returns
    -------
    ndarray, shape (n, n)
        Entry (i, k): max over all nonempty sets S of ln Pr(S | i) / Pr(S | k), in nats.

    Raises
    ------
    InvalidChannel
        If an entry is not strictly between 0 and 1; the message names the first.

    Notes
    -----
    Candidates are drawn independently, and all again if none was drawn. So

        ln Pr(S | i) / Pr(S | k) = Σ_(j in S) ln q_ij / q_kj
                                 + Σ_(j not in S) ln (1 - q_ij) / (1 - q_kj) + ln h_k / h_i

    with h = Pr(S not empty). Each candidate can be put in or left out on its own, so the maximum
    takes the larger term of each; should that leave all out, the cheapest one is put in.
    O(n² m) time.
    """
    q = _check_probabilities(probabilities)
    cost = np.empty((len(q), len(q)))
    _selection_costs(np.log(q), np.log1p(-q), _log_nonempty(q), cost)
    return cost


def surrogate_distribution(probabilities, distances):
    """Return with which probability each candidate is the nearest of a person's set.

    Parameters
    ----------
    probabilities : array_like, shape (n, m)
        As in `selection_cost`.
    distances : array_like, shape (n, m)
        From states to candidates; of equally near candidates the first is taken.

    Returns
    -------
    ndarray, shape (n, m)
        Rows sum to one: q_ia Π (1 - q_ij) / h_i, over the candidates j nearer to i than a.
    """
    q = _check_probabilities(probabilities)
    order = _nearest_first(distances)
    inside = np.take_along_axis(q, order, axis=1)
    passed = np.cumsum(np.log1p(-inside), axis=1) - np.log1p(-inside)
    sorted_rows = np.exp(np.log(inside) + passed - _log_nonempty(q)[:, None])
    surrogates = np.empty_like(q)
    np.put_along_axis(surrogates, order, sorted_rows, axis=1)
    return surrogates / surrogates.sum(axis=1, keepdims=True)


def draw_sets(probabilities, states, rng):
    """Draw the set of candidates that each person selects; an empty one is drawn again.

    Parameters
    ----------
    probabilities : array_like, shape (n, m)
        As in `selection_cost`.
    states : array_like of int, shape (N,)
        State of each person.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of bool, shape (N, m)
    """
    rows = _check_probabilities(probabilities)[np.asarray(states)]
    # The first candidate selected, by its exact law, then the later ones: no loop over attempts.
    stay = np.log1p(-rows)
    before = np.cumsum(stay, axis=1) - stay
    first = np.cumsum(rows * np.exp(before), axis=1)
    index = (first < rng.random((len(rows), 1)) * first[:, -1:]).sum(axis=1)
    position = np.arange(rows.shape[1])
    chosen = rng.random(rows.shape) < rows
    return np.where(position > index[:, None], chosen, position == index[:, None])


def surrogate_margin(room, anchor_room, surrogates, delta):
    """Return how much less two surrogates may differ, so that their persons' bound mostly holds.

    Parameters
    ----------
    room : array_like, shape (n, n)
        What two states may still differ by after Phase I, in nats.
    anchor_room : array_like, shape (m, m)
        The same for two candidates.
    surrogates : array_like, shape (n, m)
        As `surrogate_distribution` returns them.
    delta : float
        In (0, 1).

    Returns
    -------
    ndarray, shape (n, n)
        Entry (i, k): the least ξ ≥ 0 for which independent surrogates a of i and b of k have
        anchor_room(a, b) - ξ ≤ room(i, k) with probability at least 1 - δ.

    Notes
    -----
    The least likely surrogates of each state, of total probability δ/4 at most, count as failures
    without being looked at: ξ is never too small for that.
    """
    if not 0 < delta < 1:
        raise InvalidBudget(f"delta must lie strictly between 0 and 1, got {delta!r}")
    surrogates = np.asarray(surrogates, dtype=float)
    likely = np.argsort(-surrogates, axis=1, kind="stable")
    mass = np.take_along_axis(surrogates, likely, axis=1)
    count = 1 + (np.cumsum(mass, axis=1) < 1 - delta / 4).sum(axis=1)
    count = np.minimum(count, surrogates.shape[1])
    margin = np.empty(np.shape(room))
    _margins(
        np.asarray(room, float), np.asarray(anchor_room, float), likely, mass, count, delta, margin
    )
    return margin


@dataclass(frozen=True)
class AnchorCertificate:
    """What an anchor mechanism guarantees, computed and not assumed.

    Attributes
    ----------
    epsilon : float
        The budget that it was asked for.
    selection_level : float
        Exact level of Phase I, from a state to the set that is sent: no report can repair it.
    level : float
        Exact level of both phases together, from a state to the set and the report.
    report_level : float
        Exact level from a state to the report, for somebody who never sees the set.
    states : tuple of int or None
        The ordered pair at which ``level`` is attained.
    exhausted : float
        Share of the ordered pairs of distinct states whose whole budget ε d Phase I spends.
    surrogate_probability : float
        The least over all ordered pairs of the probability that independent surrogates of the two
        states keep within what Phase I left of ε d: the guarantee that PAnDA states.
    """

    epsilon: float
    selection_level: float
    level: float
    report_level: float
    states: tuple[int, int] | None
    exhausted: float
    surrogate_probability: float

    @property
    def holds(self):
        """Whether the mechanism is (ε, d)-private, set and report taken together."""
        return self.level <= self.epsilon

    def __str__(self):
        verdict = "holds" if self.holds else "FAILS"
        return (
            f"privacy level {self.level:.10g} against epsilon {self.epsilon:.10g}: {verdict} "
            f"(selected set alone {self.selection_level:.4g}, report alone "
            f"{self.report_level:.4g}; Phase I spends the budget of {self.exhausted:.1%} of the "
            f"pairs; worst pair kept with probability {self.surrogate_probability:.4g})"
        )


@dataclass(frozen=True, eq=False)
class AnchorMechanism:
    """Both phases of an anchor mechanism; build one with :func:`anchor_mechanism`.

    Attributes
    ----------
    distances : ndarray, shape (n, n)
        Between the states.
    anchors : ndarray of int, shape (m,)
        The candidates, as states.
    probabilities : ndarray, shape (n, m)
        With which each state selects each candidate.
    program : OptimalMechanism
        Phase II: the rows of the candidates, certified against what they were allowed to differ
        by (its ``problem.distances``, at budget one). Its lower bound is for this program only.
    epsilon : float
        The budget asked for; see :meth:`certificate` for what is delivered.
    """

    distances: np.ndarray
    anchors: np.ndarray
    probabilities: np.ndarray
    program: OptimalMechanism
    epsilon: float

    @property
    def rows(self):
        """Distribution of the report for each candidate, shape (m, outputs)."""
        return self.program.channel.matrix

    @cached_property
    def surrogates(self):
        """Distribution of the surrogate of each state, shape (n, m)."""
        return surrogate_distribution(self.probabilities, self._to_anchors)

    @property
    def loss(self):
        """Expected loss of a report, over set and report."""
        return self.program.loss

    def report_channel(self):
        """Return the channel from a state to the report alone.

        Returns
        -------
        Channel
            Row i is Σ_a B_ia z_a with B the surrogates' distribution.
        """
        matrix = self.surrogates @ self.rows
        return Channel(matrix / matrix.sum(axis=1, keepdims=True), self.distances)

    def joint_channel(self):
        """Return the channel from a state to the set and the report, by writing down all sets.

        Returns
        -------
        Channel
            Output (S, y) has index ``(S - 1) * outputs + y``; bit j of S says whether candidate j
            is in the set.

        Raises
        ------
        DephdpError
            If there are too many candidates to write down their sets.
        """
        sets, likelihoods = self._all_sets()
        first = self._nearest_in(sets)  # (sets, n)
        joint = np.exp(likelihoods)[:, :, None] * self.rows[first]
        matrix = joint.transpose(1, 0, 2).reshape(len(self.distances), -1)
        return Channel(matrix / matrix.sum(axis=1, keepdims=True), self.distances)

    def log_ratios(self):
        """Return the largest log-likelihood ratio of set and report, for every pair of states.

        Returns
        -------
        ndarray, shape (n, n)
            Entry (i, k): max over nonempty sets S and reports y of ln Pr(S, y | i) / Pr(S, y | k).

        Notes
        -----
        Exact without writing down the sets. That a is nearest to i and b nearest to k in S puts a
        and b in and everything nearer out; every other candidate is free, and takes the larger of
        its two terms as in `selection_cost`. The rows of a and b add their own largest ratio. With
        the candidates in order of distance, a running sum gives all b for one a: O(n² m²) time.
        """
        q = self.probabilities
        between = np.minimum(log_ratios(self.rows), _FINITE)
        ratios = np.empty((len(q), len(q)))
        order, rank = self._orders
        _joint_ratios(np.log(q), np.log1p(-q), _log_nonempty(q), order, rank, between, ratios)
        ratios[ratios >= _FINITE / 2] = np.inf
        return ratios

    def surrogate_probabilities(self):
        """Return with which probability independent surrogates keep within what Phase I left.

        Returns
        -------
        ndarray, shape (n, n)
            Entry (i, k): probability that surrogates a of i and b of k, drawn independently,
            satisfy cost(i, k) + max_y ln z_a(y) / z_b(y) ≤ ε d(i, k), with the cost of
            `selection_cost`.
        """
        left = self.epsilon * self.distances - selection_cost(self.probabilities)
        between = np.minimum(log_ratios(self.rows), _FINITE)
        kept = np.empty(left.shape)
        _kept(left + _SAME * self.epsilon * self.distances, between, self.surrogates, kept)
        np.fill_diagonal(kept, 1.0)
        return np.minimum(kept, 1.0)

    def holding_probability(self, state, other):
        """Return the probability that the privacy loss of a pair is at most ε times its distance.

        Parameters
        ----------
        state, other : int
            The person is in ``state``; the alternative is ``other``.

        Returns
        -------
        float
            Pr(ln Pr(S, y | i) / Pr(S, y | k) ≤ ε d(i, k)) over the set and the report of state i,
            exactly, from all sets.

        Raises
        ------
        DephdpError
            If there are too many candidates; see :meth:`estimate_holding_probability`.
        """
        sets, likelihoods = self._all_sets()
        weight = np.exp(likelihoods[:, state])
        kept = self._kept_given(sets, likelihoods[:, state] - likelihoods[:, other], state, other)
        return float(weight @ kept / weight.sum())

    def estimate_holding_probability(self, state, other, draws, rng):
        """Estimate :meth:`holding_probability` from random sets, for any number of candidates.

        Parameters
        ----------
        state, other : int
        draws : int
            How many sets; the report is summed over, not drawn.
        rng : numpy.random.Generator

        Returns
        -------
        estimate, standard_error : float
        """
        sets = draw_sets(self.probabilities, np.full(draws, state), rng)
        likelihood = self._log_likelihoods(sets, [state, other])
        kept = self._kept_given(sets, likelihood[:, 0] - likelihood[:, 1], state, other)
        return float(kept.mean()), float(kept.std(ddof=1) / np.sqrt(draws))

    def privacy_level(self):
        """Return the exact level from a state to the set and the report.

        Returns
        -------
        float
        """
        return float(self._levels(self.log_ratios()).max(initial=0.0))

    def certificate(self) -> AnchorCertificate:
        """Return what the mechanism guarantees.

        Returns
        -------
        AnchorCertificate
        """
        levels, cost = self._levels(self.log_ratios()), selection_cost(self.probabilities)
        worst = tuple(map(int, np.unravel_index(levels.argmax(), levels.shape)))
        pairs = ~np.eye(len(levels), dtype=bool)
        return AnchorCertificate(
            epsilon=self.epsilon,
            selection_level=float(self._levels(cost).max(initial=0.0)),
            level=float(levels.max(initial=0.0)),
            report_level=abs(self.report_channel().privacy_level()),
            states=worst if len(levels) > 1 else None,
            exhausted=float(
                (cost >= self.epsilon * self.distances)[pairs].mean() if pairs.any() else 0.0
            ),
            surrogate_probability=float(self.surrogate_probabilities().min()),
        )

    def sample(self, states, rng):
        """Draw the set and the report of each person.

        Parameters
        ----------
        states : array_like of int, shape (N,)
        rng : numpy.random.Generator

        Returns
        -------
        sets : ndarray of bool, shape (N, m)
        reports : ndarray of int, shape (N,)
        """
        states = np.asarray(states)
        sets = draw_sets(self.probabilities, states, rng)
        order, _ = self._orders
        ordered = np.take_along_axis(sets, order[states], axis=1)
        nearest = order[states, ordered.argmax(axis=1)]
        return sets, self.program.channel.sample(nearest, rng)

    # -- what the methods share --------------------------------------------------------------------

    @property
    def _to_anchors(self):
        return self.distances[:, self.anchors]

    @cached_property
    def _orders(self):
        """Candidates of each state by distance, and their places."""
        order = _nearest_first(self._to_anchors)
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(order.shape[1])[None, :], axis=1)
        return order, rank

    def _nearest_in(self, sets, states=slice(None)):
        """Nearest candidate of each state in each set, shape (sets, states)."""
        order, _ = self._orders
        return np.stack([row[sets[:, row].argmax(axis=1)] for row in order[states]], axis=1)

    def _log_likelihoods(self, sets, states=slice(None)):
        """Ln Pr(S | i), shape (sets, states)."""
        q = self.probabilities[states]
        inside, outside = np.log(q), np.log1p(-q)
        return sets @ (inside - outside).T + outside.sum(axis=1) - _log_nonempty(q)

    def _all_sets(self):
        count = len(self.anchors)
        if count > _ENUMERABLE:
            raise DephdpError(
                f"{count} candidates have 2^{count} sets; only up to {_ENUMERABLE} candidates are "
                "enumerated: use log_ratios, which needs no sets, or estimate_holding_probability"
            )
        sets = (np.arange(1, 1 << count)[:, None] >> np.arange(count)) & 1 == 1
        return sets, self._log_likelihoods(sets)

    def _kept_given(self, sets, ratio, state, other):
        """Probability over the report, for each set, that the privacy loss is within ε d."""
        pair = self._nearest_in(sets, [state, other])
        mine, theirs = self.rows[pair[:, 0]], self.rows[pair[:, 1]]
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = ratio[:, None] + np.log(mine) - np.log(theirs)
        allowed = self.epsilon * self.distances[state, other]
        within = (mine > 0) & (loss <= allowed * (1 + _SAME))
        return (mine * within).sum(axis=1)

    def _levels(self, ratios):
        levels = np.zeros(ratios.shape)
        finite = np.isfinite(self.distances) & (self.distances > 0)
        np.divide(ratios, self.distances, out=levels, where=finite)
        levels[(self.distances == 0) & (ratios > 1e-12)] = np.inf
        np.fill_diagonal(levels, 0.0)
        return levels


def anchor_mechanism(
    prior,
    loss,
    distances,
    epsilon,
    selection=None,
    *,
    anchors=None,
    priced=True,
    delta=0.01,
    neighbourhood=np.inf,
    tol=1e-3,
    time_limit=None,
) -> AnchorMechanism:
    """Return an anchor mechanism after Liu and Qiu (PAnDA, 2025), with its true guarantee.

    Parameters
    ----------
    prior : array_like, shape (n,)
        Probability of each state.
    loss : array_like, shape (n, outputs)
        Loss of each report in each state.
    distances : array_like, shape (n, n)
        A metric between the states, all finite.
    epsilon : float
        Budget per unit of distance that the program is given.
    selection : callable, optional
        From distances (n, n) to selection probabilities (n, n); `AnchorSelection()` by default.
    anchors : array_like of int, shape (m,), optional
        The candidates; all states by default. They are public: a person whose own set decided
        which they are is not covered by the certificate.
    priced : bool, optional
        Subtract the exact cost of Phase I from what two anchors may differ by.
    delta : float, optional
        Failure probability for the margin, see `surrogate_margin`.
    neighbourhood : float, optional
        Only anchors at most this far apart are constrained, as in PAnDA; all by default. Pairs
        without a chain of neighbours are not constrained at all then.
    tol, time_limit
        As in :func:`dephdp.optimal_mechanism`, for the program.

    Returns
    -------
    AnchorMechanism
        Ask its :meth:`~AnchorMechanism.certificate` before use. It is **not** private at
        ``epsilon`` in general: where Phase I alone spends more than ε d, the program can only ask
        for equal rows.

    Raises
    ------
    InvalidDistribution, InvalidLoss, InvalidMetric, InvalidBudget
        If an argument is not what it must be.
    InvalidChannel
        If a selection probability is not strictly between 0 and 1.
    InvalidDomain
        If an anchor is no state, or is named twice.
    CertificationError, SolverError
        If the program's answer could not be certified.

    See Also
    --------
    public_anchor_mechanism : anchors that cost nothing, and an exact guarantee.

    Notes
    -----
    With B the surrogates' distribution, the loss of a row z_a is Σ_i π_i B_ia Σ_y c(i, y) z_a(y):
    the program minimises the expected loss of both phases exactly, subject to

        z_a(y) ≤ exp(max(0, ε d(a, b) - cost(a, b) - ξ(a, b))) z_b(y)

    for neighbouring anchors, with cost and ξ the larger ones of the two directions. It is an
    optimal-mechanism problem for those bounds as distances (their shortest paths, which ask for the
    same), and solved as one.
    """
    epsilon = check_epsilon(epsilon)
    distances = _check_finite(distances)
    n = len(distances)
    prior = check_prior(prior, n)
    loss = check_loss(loss, (n, np.shape(loss)[1] if np.ndim(loss) == 2 else n))
    anchors = _check_anchors(anchors, n)
    selection = AnchorSelection() if selection is None else selection
    everyone = _check_probabilities(selection(distances))
    if everyone.shape != (n, n):
        raise InvalidChannel(
            f"the selection returned shape {everyone.shape} for {n} states, expected {(n, n)}"
        )
    probabilities = everyone[:, anchors]
    surrogates = surrogate_distribution(probabilities, distances[:, anchors])

    room = epsilon * distances
    if priced:
        cost = selection_cost(probabilities)
        room = np.maximum(room - np.maximum(cost, cost.T), 0.0)
        np.fill_diagonal(room, 0.0)
    square = np.ix_(anchors, anchors)
    margin = surrogate_margin(room, room[square], surrogates, delta)
    # A state's margin counts for the anchor that most likely stands for it.
    served = surrogates.argmax(axis=1)
    stands = np.zeros((len(anchors), n))
    np.maximum.at(stands, served, margin)
    between = np.zeros((len(anchors), len(anchors)))
    np.maximum.at(between.T, served, stands.T)
    allowed = np.maximum(room[square] - np.maximum(between, between.T), 0.0)
    allowed[distances[square] > neighbourhood] = np.inf
    np.fill_diagonal(allowed, 0.0)

    weight = prior[:, None] * surrogates
    program = _solve(weight, loss, allowed, 1.0, tol, time_limit)
    return AnchorMechanism(distances, anchors, probabilities, program, epsilon)


def public_anchor_mechanism(
    prior, loss, distances, epsilon, anchors, *, tol=1e-3, time_limit=None
) -> Channel:
    """Return a private channel in which every state reports like its nearest public anchor.

    Parameters
    ----------
    prior, loss, distances, epsilon
        As in `anchor_mechanism`; the distances need not be finite.
    anchors : array_like of int, shape (m,)
        States, chosen without looking at anyone's record.
    tol, time_limit
        As in :func:`dephdp.optimal_mechanism`.

    Returns
    -------
    Channel
        From the n states to the reports; its exact level is at most epsilon.

    Raises
    ------
    InvalidDistribution, InvalidLoss, InvalidMetric, InvalidBudget, InvalidDomain
        If an argument is not what it must be.
    CertificationError, SolverError
        If no channel could be certified.

    Notes
    -----
    Two anchors may differ by e^(ε D), with D the least distance between a state of the one and a
    state of the other. That is the best any mechanism with equal rows in each cell can do, and the
    program has m states instead of n.
    """
    distances = check_metric(distances)
    n = len(distances)
    prior = check_prior(prior, n)
    loss = check_loss(loss, (n, np.shape(loss)[1] if np.ndim(loss) == 2 else n))
    anchors = _check_anchors(anchors, n)
    cell = distances[:, anchors].argmin(axis=1)
    between = np.full((len(anchors), n), np.inf)
    np.minimum.at(between, cell, distances)
    gap = np.full((len(anchors), len(anchors)), np.inf)
    np.minimum.at(gap.T, cell, between.T)
    np.fill_diagonal(gap, 0.0)
    weight = np.zeros((n, len(anchors)))
    weight[np.arange(n), cell] = prior
    program = _solve(weight, loss, gap, epsilon, tol, time_limit)
    channel = Channel(program.channel.matrix[cell], distances)
    channel.certify(epsilon)
    return channel


def _solve(weight, loss, allowed, epsilon, tol, time_limit):
    """Solve the anchors' program; weight[i, a] is the probability of state i with surrogate a."""
    mass = weight.sum(axis=0)
    own = weight.T @ loss / np.where(mass > 0, mass, 1.0)[:, None]
    options = {"tol": tol, "time_limit": time_limit, "closure": True}
    return optimal_mechanism(mass / mass.sum(), own, allowed, epsilon, **options)


def _check_finite(distances):
    distances = check_metric(distances)
    if not np.isfinite(distances).all():
        i, k = np.argwhere(~np.isfinite(distances))[0]
        raise DephdpError(
            f"d({i}, {k}) is infinite: an anchor mechanism needs finite distances, treat the "
            "components one by one"
        )
    return distances


def _check_anchors(anchors, states):
    if anchors is None:
        return np.arange(states)
    anchors = np.asarray(anchors)
    if anchors.ndim != 1 or not anchors.size or not np.issubdtype(anchors.dtype, np.integer):
        raise InvalidDomain("anchors must be a nonempty vector of integers, the states they are")
    if anchors.min() < 0 or anchors.max() >= states:
        raise InvalidDomain(f"anchor {anchors.max()} or {anchors.min()} is none of {states} states")
    if len(np.unique(anchors)) < len(anchors):
        raise InvalidDomain("an anchor is named twice")
    return anchors


def _check_probabilities(probabilities):
    try:
        q = np.asarray(probabilities, dtype=float)
    except (TypeError, ValueError):
        raise InvalidChannel("selection probabilities must be an array of numbers") from None
    if q.ndim != 2 or not q.size:
        raise InvalidChannel(f"selection probabilities are (states, candidates), got {q.shape}")
    bad = np.argwhere(~((q > 0) & (q < 1)))
    if bad.size:
        i, j = bad[0]
        raise InvalidChannel(
            f"state {i} selects candidate {j} with probability {q[i, j]!r}: it must lie strictly "
            "between 0 and 1, or the set tells states apart without limit"
        )
    return q


def _log_nonempty(q):
    """Ln of the probability that a set is not empty, for each state."""
    return np.log(-np.expm1(np.log1p(-q).sum(axis=1)))


def _nearest_first(distances):
    return np.argsort(np.asarray(distances, dtype=float), axis=1, kind="stable")


@numba.njit(cache=True)
def _selection_costs(inside, outside, nonempty, cost):
    n, m = inside.shape
    for i in range(n):
        for k in range(n):
            total = nonempty[k] - nonempty[i]
            penalty = np.inf
            for j in range(m):
                into = inside[i, j] - inside[k, j]
                left = outside[i, j] - outside[k, j]
                total += max(into, left)
                penalty = min(penalty, max(left - into, 0.0))
            cost[i, k] = total - penalty
        cost[i, i] = 0.0


@numba.njit(cache=True)
def _joint_ratios(inside, outside, nonempty, order, rank, between, ratios):
    n, m = inside.shape
    spare_in = np.empty(m)  # what forcing a candidate in takes off the free maximum
    spare_out = np.empty(m)
    row_largest = np.array([between[a].max() for a in range(m)])
    largest = row_largest.max()
    for i in range(n):
        for k in range(n):
            free = nonempty[k] - nonempty[i]
            for j in range(m):
                into = inside[i, j] - inside[k, j]
                left = outside[i, j] - outside[k, j]
                best = max(into, left)
                free += best
                spare_in[j] = best - into
                spare_out[j] = best - left
            highest = -np.inf
            nearer = 0.0  # forced out because nearer to i than a
            for r in range(m):
                if free - nearer + largest <= highest:
                    break  # nothing that follows can be higher
                a = order[i, r]
                forced = nearer
                for s in range(rank[k, a] + 1):
                    if free - forced - spare_in[a] + row_largest[a] <= highest:
                        break
                    b = order[k, s]
                    if rank[i, b] < r:
                        continue  # forced out already
                    value = free - forced - spare_in[a] + between[a, b]
                    if b != a:
                        value -= spare_in[b]
                    highest = max(highest, value)
                    forced += spare_out[b]
                nearer += spare_out[a]
            ratios[i, k] = highest
        ratios[i, i] = 0.0


@numba.njit(cache=True)
def _kept(left, between, surrogates, kept):
    n, m = surrogates.shape
    for i in range(n):
        for k in range(n):
            total = 0.0
            for a in range(m if left[i, k] >= 0 else 0):  # ratios of rows are never negative
                inner = 0.0
                for b in range(m):
                    if between[a, b] <= left[i, k]:
                        inner += surrogates[k, b]
                total += surrogates[i, a] * inner
            kept[i, k] = total


@numba.njit(cache=True)
def _margins(room, anchor_room, likely, mass, count, delta, margin):
    n = len(room)
    widest = count.max()
    excess = np.empty(widest * widest)
    weight = np.empty(widest * widest)
    for i in range(n):
        for k in range(n):
            size = 0
            for r in range(count[i]):
                for s in range(count[k]):
                    excess[size] = anchor_room[likely[i, r], likely[k, s]] - room[i, k]
                    weight[size] = mass[i, r] * mass[k, s]
                    size += 1
            at = np.argsort(excess[:size])
            reached = 0.0
            least = 0.0
            for t in at:
                reached += weight[t]
                least = excess[t]
                if reached >= 1 - delta:
                    break
            margin[i, k] = max(least, 0.0)
