"""Local differential privacy of one sampled attribute: two references that ignore the metric.

Every user keeps the truth of one attribute with some probability and replaces it by a uniform level
otherwise (generalised randomised response). `RandomSampling` reports that attribute only;
`FakeDataSampling` hides which it was among uniform fake values of the others.
"""

import math
from collections.abc import Mapping

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom

from dephdp.domain import Domain
from dephdp.errors import InvalidBudget, InvalidDistribution, InvalidDomain, InvalidFrame
from dephdp.metric import check_weights, component_distances
from dephdp.validation import check_epsilon, check_exponent, check_prior

_LARGEST_BUDGET = 700.0  # e^-708 is the least normal double
_MISSING = -1  # the code of an attribute that a user does not report


def amplified_budget(epsilon, attributes):
    """Return the budget ln(L (e^ε - 1) + 1) that RS+FD spends on the sampled attribute.

    Parameters
    ----------
    epsilon : float
        Budget of the whole report.
    attributes : int
        Number L of attributes.

    Returns
    -------
    float

    Raises
    ------
    InvalidBudget
        If epsilon or the number of attributes is not positive.

    Notes
    -----
    The rule of Arcolezi, Couchot, Al Bouna and Xiao (2021), from amplification by sampling. It
    bounds what a change of *one* attribute reveals, and that only if all attributes have equally
    many levels: see `FakeDataSampling.privacy_level`.
    """
    epsilon = check_epsilon(epsilon)
    if isinstance(attributes, bool) or not isinstance(attributes, int | np.integer):
        raise InvalidBudget(f"the number of attributes must be an integer, got {attributes!r}")
    if attributes < 1:
        raise InvalidBudget(f"the number of attributes must be positive, got {attributes!r}")
    if epsilon > _LARGEST_BUDGET:
        raise InvalidBudget(f"epsilon {epsilon!r} is too large: at most {_LARGEST_BUDGET:g}")
    return math.log1p(attributes * math.expm1(epsilon))


class _SampledAttribute:
    """What both references share: a domain, a budget for each attribute, the estimators.

    With budget b and k levels, the response keeps the truth with probability λ and draws a uniform
    level otherwise. For λ = (e^b - 1) / (e^b + k - 1) the true level is e^b times as likely as any
    other: (λ + (1 - λ) / k) / ((1 - λ) / k) = e^b.
    """

    def __init__(self, domain, budgets):
        if not isinstance(domain, Domain):
            raise InvalidDomain(f"a Domain is needed, got {type(domain).__name__}")
        self.domain = domain
        self.budgets = _check_budgets(budgets, domain)
        self.budgets.flags.writeable = False

    def __repr__(self):
        return f"{type(self).__name__}({self.domain!r}, budgets={self.budgets.tolist()})"

    def privatize(self, frame, rng):
        """Return one report a record.

        Parameters
        ----------
        frame : pandas.DataFrame
            Records. Columns that the domain does not declare are not read.
        rng : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        pandas.DataFrame
            One column an attribute, one row a record; missing where an attribute is not reported.

        Raises
        ------
        InvalidFrame, InvalidDomain
            If a record does not fit the domain.
        TypeError
            If ``rng`` is not a Generator.
        """
        return _decode(self.domain, self.randomize(self.domain.encode(frame), rng))

    def randomize(self, codes, rng):
        """Return one report a record, as level codes.

        Parameters
        ----------
        codes : array_like of int, shape (n, L)
            Level codes of the records.
        rng : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        ndarray of int, shape (n, L)
            -1 where an attribute is not reported.
        """
        if not isinstance(rng, np.random.Generator):
            raise TypeError(f"rng must be a numpy.random.Generator, got {type(rng).__name__}")
        codes = self.domain.check_codes(codes)
        if codes.ndim != 2:
            raise InvalidDomain(f"codes must be (records, attributes), got shape {codes.shape}")
        chosen = rng.integers(len(self.domain), size=len(codes))
        honest = rng.random(len(codes)) < self.truth[chosen]
        return self._reports(codes, chosen, honest, rng)

    def frequencies(self, reports):
        """Return unbiased estimates of the records' frequencies.

        Parameters
        ----------
        reports : pandas.DataFrame
            As `privatize` returns them.

        Returns
        -------
        dict
            Name → estimated frequency of each level, in the order of ``domain[name].levels``. They
            sum to one and may be negative: nothing is clipped, which would bias them.

        Raises
        ------
        InvalidFrame, InvalidDomain
            If there is no report of an attribute, or the reports are not of this kind.
        """
        return dict(zip(self.domain.names, self.estimate(self._encode(reports)), strict=True))

    def estimate(self, codes):
        """Return unbiased estimates of the records' frequencies from reports as level codes.

        Parameters
        ----------
        codes : array_like of int, shape (n, L)
            As `randomize` returns them.

        Returns
        -------
        list of ndarray
            One vector an attribute, see `frequencies`.

        Notes
        -----
        A report of an attribute shows level v with probability θ f_v + (1 - θ)/k, where f is the
        frequency among the records and θ the chance that the level shown is the record's own. So
        f_v is estimated by (share of v among the reports - (1 - θ)/k) / θ.
        """
        estimates = []
        columns = zip(self.domain.attributes, self._check_reports(codes).T, self.shown, strict=True)
        for attribute, column, theta in columns:
            counts = np.bincount(column[column >= 0], minlength=attribute.size)
            if not counts.any():
                raise InvalidFrame(
                    f"no user reported attribute {attribute.name!r}: its frequencies cannot be "
                    "estimated, collect more reports"
                )
            estimates.append((counts / counts.sum() - (1 - theta) / attribute.size) / theta)
        return estimates

    def variances(self, frequencies, records):
        """Return the exact variance of the estimates, given the records.

        Parameters
        ----------
        frequencies : mapping
            Name → frequencies of the attribute's levels among the records.
        records : int
            Number n of records.

        Returns
        -------
        dict
            Name → variance of each level's estimate. For records that are themselves an independent
            sample of a population with these frequencies, add f (1 - f) / n.

        Raises
        ------
        InvalidDistribution
            If an attribute has no frequencies or they are no distribution.
        """
        if not isinstance(records, int | np.integer) or isinstance(records, bool) or records < 1:
            raise InvalidFrame(f"the number of records must be a positive integer, got {records!r}")
        if not isinstance(frequencies, Mapping) or set(frequencies) != set(self.domain.names):
            raise InvalidDistribution(f"frequencies are needed for each of {self.domain.names}")
        variances = {}
        for attribute, theta in zip(self.domain.attributes, self.shown, strict=True):
            f = check_prior(frequencies[attribute.name], attribute.size)
            lie = (1 - theta) / attribute.size
            truth = theta + lie
            # of one report, given whose it is
            one = (f * truth * (1 - truth) + (1 - f) * lie * (1 - lie)) / theta**2
            variances[attribute.name] = self._variance(f, one, records)
        return variances

    @property
    def truth(self):
        """Probability that the response of each attribute keeps the truth, shape (L,)."""
        sizes, decay = np.array(self.domain.sizes), np.exp(-self.budgets)
        return -np.expm1(-self.budgets) / (1 + (sizes - 1) * decay)


class RandomSampling(_SampledAttribute):
    """SMP: report one attribute, chosen at random and disclosed, with the whole budget.

    Parameters
    ----------
    domain : Domain
        The attributes of a record.
    budgets : float or array_like, shape (L,)
        Budget ε of the randomised response, for all attributes or for each.

    Raises
    ------
    InvalidDomain, InvalidBudget
        If an argument is not what it must be.

    Examples
    --------
    >>> import numpy as np
    >>> from dephdp import Attribute
    >>> domain = Domain([Attribute.nominal("sex", "FM"), Attribute.ordinal("size", "SML")])
    >>> sampling = RandomSampling(domain, 1.0)
    >>> sampling.privacy_level(), sampling.privacy_level(p=1)
    (1.0, 2.0)
    >>> reports = sampling.randomize(np.zeros((4, 2), dtype=int), np.random.default_rng(0))
    >>> (reports >= 0).sum(axis=1).tolist()
    [1, 1, 1, 1]
    """

    @classmethod
    def calibrated(cls, domain, epsilon, p=None, weights=None):
        """Return the reference whose exact privacy level is epsilon.

        Parameters
        ----------
        domain : Domain
            The attributes of a record.
        epsilon : float
            Budget of the record.
        p, weights
            The record metric, as in `privacy_level`.

        Returns
        -------
        RandomSampling
            The budget of each attribute is epsilon times the least distance between records that
            differ in it.
        """
        epsilon = check_epsilon(epsilon)
        steps = _steps(domain, p, weights)
        sampling = cls(domain, _shares(epsilon, steps))
        while sampling.privacy_level(p, weights) > epsilon:
            sampling = cls(domain, np.nextafter(sampling.budgets, 0))
        return sampling

    @property
    def shown(self):
        """Chance θ that a reported level is the record's own, beyond chance: shape (L,)."""
        return self.truth

    def privacy_level(self, p=None, weights=None):
        """Return the exact level: max ln(M(y | x) / M(y | x')) / d(x, x').

        Parameters
        ----------
        p : float, optional
            Exponent in [1, ∞] of the record metric d_p. Without it, the discrete metric d = 1 of
            local differential privacy: any two records are to be confused.
        weights : sequence of float, optional
            One positive weight an attribute in d_p; one by default.

        Returns
        -------
        float

        Notes
        -----
        A report shows which attribute j it is about. Its likelihoods under x and x' have the ratio
        e^(ε_j) at most, attained exactly if the records differ in j. So the level is the largest
        ε_j over the least distance of records that differ in j, w_j^(1/p) δ_j with δ_j the least
        distance between two levels: what they do in the other attributes can only bring them
        farther apart.
        """
        steps = _steps(self.domain, p, weights)
        return float((self.budgets / steps).max())

    def _reports(self, codes, chosen, honest, rng):
        reports = np.full(codes.shape, _MISSING)
        rows = np.arange(len(codes))
        fake = rng.integers(np.array(self.domain.sizes)[chosen])
        reports[rows, chosen] = np.where(honest, codes[rows, chosen], fake)
        return reports

    def _variance(self, f, one, records):
        # m reports are of a random subset of the records: their own frequency has the variance
        # f (1 - f) (n - m) / (m (n - 1)), of sampling without replacement
        inverse = _mean_inverse(records, 1 / len(self.domain))
        return inverse * one + f * (1 - f) * (records * inverse - 1) / max(records - 1, 1)

    def _encode(self, reports):
        return _encode(self.domain, reports)

    def _check_reports(self, codes):
        codes = np.asarray(codes)
        shown = codes != _MISSING
        self.domain.check_codes(np.where(shown, codes, 0))
        if codes.ndim != 2 or not len(codes):
            raise InvalidFrame(f"reports must be (records, attributes), got shape {codes.shape}")
        bad = np.flatnonzero(shown.sum(axis=1) != 1)
        if bad.size:
            raise InvalidFrame(
                f"report {bad[0]} shows {shown[bad[0]].sum()} attributes instead of one: these are "
                "not reports of random sampling"
            )
        return codes


class FakeDataSampling(_SampledAttribute):
    """RS+FD: report one attribute by randomised response, the others as uniform fake values.

    Parameters
    ----------
    domain : Domain
        The attributes of a record.
    budgets : float or array_like, shape (L,)
        Budget of the randomised response, for all attributes or for each. The published rule is
        ``amplified_budget(epsilon, len(domain))``; see `privacy_level` for what it guarantees, and
        `calibrated` for the budget of a given level.

    Raises
    ------
    InvalidDomain, InvalidBudget
        If an argument is not what it must be.

    Notes
    -----
    The same responses with the attribute disclosed are `RandomSampling`; filling in the fake values
    is then post-processing. So at equal budgets this can only know less.

    Examples
    --------
    >>> from dephdp import Attribute
    >>> domain = Domain([Attribute.nominal("sex", "FM"), Attribute.nominal("smokes", "NY")])
    >>> published = FakeDataSampling(domain, amplified_budget(1.0, 2))
    >>> round(published.privacy_level(p=1), 6), round(published.privacy_level(), 6)
    (1.0, 1.48988)
    """

    @classmethod
    def calibrated(cls, domain, epsilon, p=None, weights=None):
        """Return the reference whose exact privacy level is epsilon.

        Parameters
        ----------
        domain : Domain
            The attributes of a record.
        epsilon : float
            Budget of the record.
        p, weights
            The record metric, as in `privacy_level`.

        Returns
        -------
        FakeDataSampling
            The budgets are in proportion to the least distances between records that differ in the
            attribute, as large as the level allows. Its level is below epsilon only if no budget
            attains that, which attributes of one level can bring about: a user who samples one of
            them says nothing.
        """
        epsilon = check_epsilon(epsilon)
        steps = _steps(domain, p, weights)
        if np.isinf(steps).all():
            return cls(domain, epsilon)

        def level(scale):
            return cls(domain, _shares(scale, steps)).privacy_level(p, weights)

        low, high, largest = epsilon / 2, epsilon, _LARGEST_BUDGET / steps[np.isfinite(steps)].max()
        while level(high) < epsilon and high < largest:
            high = min(2 * high, largest)
        if level(high) < epsilon:
            return cls(domain, _shares(high, steps))
        # RandomSampling at these budgets has the level of the scale; hiding cannot raise it.
        scale = brentq(lambda s: level(s) - epsilon, low, high, xtol=1e-300, rtol=1e-14)
        while level(scale) > epsilon:
            scale *= 1 - 1e-15
        return cls(domain, _shares(scale, steps))

    @property
    def shown(self):
        """Chance θ = λ / L that a reported level is the record's own, beyond chance: shape (L,)."""
        return self.truth / len(self.domain)

    def privacy_level(self, p=None, weights=None):
        """Return the exact level: max ln(M(y | x) / M(y | x')) / d(x, x').

        Parameters
        ----------
        p : float, optional
            Exponent in [1, ∞] of the record metric d_p. Without it, the discrete metric d = 1 of
            local differential privacy: any two records are to be confused.
        weights : sequence of float, optional
            One positive weight an attribute in d_p; one by default.

        Returns
        -------
        float

        Notes
        -----
        The report y has probability proportional to Σ_j (1 - λ_j + λ_j k_j [y_j = x_j]). Let x and
        x' differ in the attributes of S. The ratio is largest where y agrees with x on S and with
        neither elsewhere:

            1 + Σ_{j in S} g_j,   g_j = λ_j k_j / Σ_i (1 - λ_i),

        with 1 in place of 1 - λ_i for an attribute of one level. With a common budget b the ratio
        of records that differ everywhere is e^b: hiding the attribute amplifies nothing for them.
        With the published budget and equally many levels it is 1 + |S| (e^ε - 1), so that the level
        is ε if one attribute changes, and at most ε under d_1, the number of changed attributes.

        The distance of records that differ exactly in S is least (Σ_S w_j δ_j^p)^(1/p). The level
        is the largest ln(1 + Σ_S g_j) over that, found among the sets that no other one beats in
        both sums.
        """
        steps = _steps(self.domain, p, weights)
        gains = self._gains()
        varies = np.isfinite(steps)
        steps, gains = steps[varies], gains[varies]
        if not len(steps):
            return 0.0
        if p is None:
            return math.log1p(math.fsum(gains))
        if math.isinf(p):
            order = np.argsort(steps)
            return float((np.log1p(np.cumsum(gains[order])) / steps[order]).max())
        logs, sums = _undominated_sums(p * np.log(steps), gains)
        return float((np.log1p(sums) / np.exp(logs / p)).max())

    def _gains(self):
        sizes, decay = np.array(self.domain.sizes), np.exp(-self.budgets)
        fake = np.where(sizes > 1, sizes * decay / (1 + (sizes - 1) * decay), 1.0)
        return self.truth * sizes / fake.sum()

    def _reports(self, codes, chosen, honest, rng):
        fake = [rng.integers(size, size=len(codes)) for size in self.domain.sizes]
        reports = np.stack(fake, axis=1)
        rows, columns = np.flatnonzero(honest), chosen[honest]
        reports[rows, columns] = codes[rows, columns]
        return reports

    def _variance(self, f, one, records):
        return one / records

    def _encode(self, reports):
        return self.domain.encode(reports)

    def _check_reports(self, codes):
        codes = self.domain.check_codes(codes)
        if codes.ndim != 2 or not len(codes):
            raise InvalidFrame(f"reports must be (records, attributes), got shape {codes.shape}")
        return codes


def _check_budgets(budgets, domain):
    try:
        budgets = np.array(budgets, dtype=float)
    except (TypeError, ValueError):
        raise InvalidBudget(f"budgets must be numbers, got {budgets!r}") from None
    if budgets.shape not in ((), (len(domain),)):
        raise InvalidBudget(
            f"one budget, or one for each of {len(domain)} attributes, got shape {budgets.shape}"
        )
    budgets = np.array(np.broadcast_to(budgets, len(domain)))
    bad = np.flatnonzero(~((budgets > 0) & (budgets <= _LARGEST_BUDGET)))
    if bad.size:
        raise InvalidBudget(
            f"the budget of attribute {domain.names[bad[0]]!r} is {budgets[bad[0]]:g}: it must lie "
            f"in (0, {_LARGEST_BUDGET:g}], or the chance of a lie underflows"
        )
    return budgets


def _steps(domain, p, weights):
    """w_j^(1/p) δ_j: how near records can be that differ in attribute j; inf for one level."""
    weights = check_weights(weights, len(domain))
    varies = np.array(domain.sizes) > 1
    if p is None:
        return np.where(varies, 1.0, np.inf)
    p = check_exponent(p)
    steps = np.full(len(domain), np.inf)
    for j in np.flatnonzero(varies):
        distances = component_distances(domain.attributes[j])
        steps[j] = distances[~np.eye(len(distances), dtype=bool)].min()
    return steps * weights ** (1 / p)


def _shares(scale, steps):
    """Budgets in proportion to the steps; an attribute of one level has nothing to hide."""
    return scale * np.where(np.isfinite(steps), steps, min(steps.min(), 1.0))


def _undominated_sums(log_costs, gains):
    """Log cost and gain of every nonempty set of items that no other one beats in both.

    Equal items are taken one after another, so that equal sets have equal sums, bit by bit.
    """
    costs, sums = np.array([-np.inf]), np.zeros(1)
    for item in np.lexsort((gains, log_costs)):
        costs = np.concatenate([costs, np.logaddexp(costs, log_costs[item])])
        sums = np.concatenate([sums, sums + gains[item]])
        order = np.lexsort((-sums, costs))
        earlier = np.append(-np.inf, np.maximum.accumulate(sums[order])[:-1])
        kept = order[sums[order] > earlier]
        costs, sums = costs[kept], sums[kept]
    return costs[1:], sums[1:]  # the empty set is the first


def _mean_inverse(records, share):
    """E[1/m | m > 0] for a binomial number m of reports."""
    m = np.arange(1, records + 1)
    probabilities = binom.pmf(m, records, share)
    return float((probabilities / m).sum() / probabilities.sum())


def _decode(domain, codes):
    """Return the records that level codes stand for, missing where a code is."""
    if (codes >= 0).all():
        return domain.decode(codes)
    import pandas as pd

    columns = []
    for attribute, column in zip(domain.attributes, codes.T, strict=True):
        rows = np.flatnonzero(column >= 0)
        shown = Domain([attribute]).decode(column[rows, None])
        columns.append(shown.set_axis(rows).reindex(range(len(codes))))
    return pd.concat(columns, axis=1)


def _encode(domain, frame):
    """Return level codes of records, missing where a value is."""
    absent = [name for name in domain.names if name not in getattr(frame, "columns", ())]
    if absent:
        raise InvalidFrame(f"the reports have no columns {absent}")
    codes = np.full((len(frame), len(domain)), _MISSING)
    for j, attribute in enumerate(domain.attributes):
        shown = frame[attribute.name].notna().to_numpy()
        if shown.any():
            part = frame.loc[shown, [attribute.name]]
            codes[shown, j] = Domain([attribute]).encode(part)[:, 0]
    return codes
