"""Stage 2: the loss of a record as a weighted sum of the losses of its groups."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.optimize import nnls

from dephdp.composition import split_budget
from dephdp.errors import InvalidDomain, InvalidLoss, InvalidTask
from dephdp.group import check_partition
from dephdp.mechanisms.exponential import exponential_mechanism


@dataclass(frozen=True, eq=False)
class CalibrationPairs:
    """Candidate pairs of a record and its report, with their losses.

    Attributes
    ----------
    rows : ndarray of int, shape (T,)
        Rows of the task's reference: the records x.
    reports : ndarray of int, shape (T, K)
        State y_k of each group in the report y.
    record_losses : ndarray, shape (T,)
        c = γ(U(x), U(y)) (Eq. 18).
    group_losses : ndarray, shape (T, K)
        c_k = γ(U(x), U(y_k, x_-k)): only group k is replaced (Eq. 16).
    """

    rows: np.ndarray
    reports: np.ndarray
    record_losses: np.ndarray
    group_losses: np.ndarray


def pilot_channels(groups, epsilon, p=2, weights=None):
    """Return the mechanisms that candidate pairs are drawn from: exponential, budget split evenly.

    Parameters
    ----------
    groups : sequence of Group
        A partition of the attributes.
    epsilon : float
        Budget of the whole record.
    p : float, optional
        Exponent of the record metric, in [1, ∞].
    weights : mapping of str to float, optional
        Positive weight of each attribute; one by default.

    Returns
    -------
    list of Channel
        Their product has a level of at most epsilon.
    """
    budgets = split_budget(epsilon, len(groups), p)
    return [
        exponential_mechanism(
            group.distances(p, weights and {name: weights[name] for name in group.names}), budget
        )
        for group, budget in zip(groups, budgets, strict=True)
    ]


def calibration_pairs(task, groups, channels, count, rng):
    """Draw candidate pairs and evaluate their losses.

    Parameters
    ----------
    task : Task
        The downstream task; records are drawn from its reference, with replacement.
    groups : sequence of Group
        A partition of the attributes of the task's domain.
    channels : sequence of Channel, or "uniform"
        Reports are drawn from one channel a group: from :func:`pilot_channels`, unless better is
        known of what will be deployed. "uniform" makes every state of a group equally likely
        whatever the record, the choice of the paper's experiments; what is fitted to such pairs
        describes reports that no mechanism with a useful budget makes.
    count : int
        How many pairs, T.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    CalibrationPairs

    Raises
    ------
    InvalidDomain
        If the channels do not fit the groups.
    InvalidGroup
        If the groups are not a partition of the attributes, or a reference record is in none of
        a group's states.
    InvalidLoss
        If the task returns a loss that is negative or not finite.
    """
    groups = list(groups)
    check_partition([group.names for group in groups], task.domain)
    rows = rng.integers(len(task.reference), size=count)
    before = task.reference[rows]
    if isinstance(channels, str):
        if channels != "uniform":
            raise InvalidTask(f"channels are a sequence, or 'uniform', not {channels!r}")
        reports = [rng.integers(group.size, size=count) for group in groups]
    else:
        sizes = [(channel.states, channel.outputs) for channel in channels]
        if sizes != [(group.size, group.size) for group in groups]:
            raise InvalidDomain(f"channels of (states, outputs) {sizes} do not fit {groups}")
        reports = [
            channel.sample(group.states(before), rng)
            for group, channel in zip(groups, channels, strict=True)
        ]
    return evaluate_pairs(task, groups, rows, np.stack(reports, axis=1))


def evaluate_pairs(task, groups, rows, reports):
    """Return the losses of given pairs of records and reports.

    Parameters
    ----------
    task : Task
        The downstream task.
    groups : sequence of Group
        A partition of the attributes, K groups.
    rows : array_like of int, shape (T,)
        Rows of the task's reference: the records x.
    reports : array_like of int, shape (T, K)
        State y_k of each group in the report y.

    Returns
    -------
    CalibrationPairs
    """
    rows, reports = np.asarray(rows), np.asarray(reports)
    before, whole, isolated = task.reference[rows], task.reference[rows], []
    for group, states in zip(groups, reports.T, strict=True):
        whole = group.plug(whole, states)
        isolated.append(task.losses(rows, before, group.plug(before, states)))
    return CalibrationPairs(
        rows, reports, task.losses(rows, before, whole), np.stack(isolated, axis=1)
    )


@dataclass(frozen=True, eq=False)
class Surrogate:
    """The first-order surrogate c ≈ β_0 + Σ_k β_k c_k of Eq. 20.

    Attributes
    ----------
    intercept : float
        β_0, of either sign.
    coefficients : ndarray, shape (K,)
        β_k ≥ 0.
    r_squared : float
        Share of the variance of c explained on the pairs that were fitted.
    held_out_r_squared : float
        The same on pairs that a fit to the others had not seen; it may be negative.
    """

    intercept: float
    coefficients: np.ndarray
    r_squared: float
    held_out_r_squared: float

    def predict(self, group_losses):
        """Return β_0 + Σ_k β_k c_k.

        Parameters
        ----------
        group_losses : array_like, shape (..., K)
            Losses of single pairs (Eq. 20), or expected losses 𝓛_k of mechanisms (Eq. 22).

        Returns
        -------
        ndarray, shape (...)
        """
        return self.intercept + np.asarray(group_losses) @ self.coefficients


def fit_surrogate(record_losses, group_losses, rng, held_out=0.25):
    """Fit the surrogate by nonnegative least squares with a free intercept.

    Parameters
    ----------
    record_losses : array_like, shape (T,)
        Losses c of whole reports.
    group_losses : array_like, shape (T, K)
        Losses c_k with one group replaced.
    rng : numpy.random.Generator
        Chooses the pairs that are held out.
    held_out : float, optional
        Their share, in (0, 1).

    Returns
    -------
    Surrogate
        Fitted to all pairs; only ``held_out_r_squared`` is of the fit to the rest.

    Raises
    ------
    InvalidLoss
        If a loss is not finite or the shapes do not agree.
    InvalidTask
        If ``held_out`` leaves fewer than two pairs on either side.

    Notes
    -----
    The best intercept makes the mean residual zero, so centring every column leaves a nonnegative
    least-squares problem in β alone (Lawson and Hanson's active-set method). The coefficient of
    a group whose losses do not vary is not determined; it is 0.
    """
    c, x = _check_pairs(record_losses, group_losses)
    if not 0 < held_out < 1:
        raise InvalidTask(f"held_out must lie in (0, 1), got {held_out!r}")
    order = rng.permutation(len(c))
    cut = round(held_out * len(c))
    if min(cut, len(c) - cut) < 2:
        raise InvalidTask(f"{len(c)} pairs are too few to hold out a share of {held_out}")
    test, train = order[:cut], order[cut:]
    intercept, coefficients = _nonnegative_fit(c[train], x[train])
    unseen = r_squared(c[test], intercept + x[test] @ coefficients)
    intercept, coefficients = _nonnegative_fit(c, x)
    return Surrogate(intercept, coefficients, r_squared(c, intercept + x @ coefficients), unseen)


@dataclass(frozen=True, eq=False)
class QuadraticFit:
    """The quadratic diagnostic c + Σ a_i x_i + Σ_{i<j} b_ij x_i x_j + Σ d_i x_i² of Eq. 84.

    Attributes
    ----------
    intercept : float
        The constant.
    linear : ndarray, shape (K,)
        a_i.
    interactions : ndarray, shape (K, K)
        b_ij above the diagonal, zero elsewhere.
    squares : ndarray, shape (K,)
        d_i.
    r_squared : float
        Share of the variance explained by the quadratic model.
    linear_r_squared : float
        The same for its linear part alone, refitted.
    """

    intercept: float
    linear: np.ndarray
    interactions: np.ndarray
    squares: np.ndarray
    r_squared: float
    linear_r_squared: float


def quadratic_diagnostic(record_losses, group_losses):
    """Fit a quadratic model by least squares, to see whether a linear one is enough.

    Parameters
    ----------
    record_losses : array_like, shape (T,)
        Losses c of whole reports.
    group_losses : array_like, shape (T, K)
        Losses x_k with one group replaced.

    Returns
    -------
    QuadraticFit

    Raises
    ------
    InvalidLoss
        If a loss is not finite or the shapes do not agree.

    Notes
    -----
    A term that earlier ones determine on these pairs has the coefficient zero, in the order
    constant, linear, interactions, squares: the square of a loss that takes two values only is
    such a term. The size of a coefficient depends on the unit of the losses; compare the shares.
    """
    c, x = _check_pairs(record_losses, group_losses)
    count = x.shape[1]
    pairs = list(combinations(range(count), 2))
    columns = [np.ones(len(c)), *x.T, *(x[:, i] * x[:, j] for i, j in pairs), *(x**2).T]
    design = np.stack(columns, axis=1)
    solution = _least_squares(design, c)
    linear = design[:, : count + 1]
    interactions = np.zeros((count, count))
    for (i, j), value in zip(pairs, solution[count + 1 :], strict=False):
        interactions[i, j] = value
    return QuadraticFit(
        float(solution[0]),
        solution[1 : count + 1],
        interactions,
        solution[count + 1 + len(pairs) :],
        r_squared(c, design @ solution),
        r_squared(c, linear @ _least_squares(linear, c)),
    )


def r_squared(values, predictions):
    """Return the share of the variance that predictions explain.

    Parameters
    ----------
    values, predictions : array_like, shape (T,)

    Returns
    -------
    float
        At most 1; negative if the mean of the values predicts better. For values that do not vary:
        1 if the predictions agree with them up to rounding, otherwise -inf.
    """
    values, predictions = np.asarray(values), np.asarray(predictions)
    residual = np.sum((values - predictions) ** 2)
    total = np.sum((values - values.mean()) ** 2)
    rounding = len(values) * (1e-12 * np.abs(values).max()) ** 2
    if total > rounding:
        return float(1 - residual / total)
    return 1.0 if residual <= rounding else -np.inf


def _nonnegative_fit(c, x):
    centre, middle = x.mean(axis=0), c.mean()
    scale = np.linalg.norm(x - centre, axis=0)
    varies = scale > 1e-12 * np.linalg.norm(x, axis=0)
    coefficients = np.zeros(x.shape[1])
    if varies.any():
        columns = (x - centre)[:, varies] / scale[varies]
        coefficients[varies] = nnls(columns, c - middle)[0] / scale[varies]
    return float(middle - centre @ coefficients), coefficients


def _least_squares(design, c):
    """Least squares on the columns that are no combination of earlier ones; zero elsewhere."""
    scale = np.linalg.norm(design, axis=0)
    columns = design / np.where(scale > 0, scale, 1.0)
    basis, kept = np.empty((len(c), 0)), []
    for k, column in enumerate(columns.T):
        new = column - basis @ (basis.T @ column)
        new -= basis @ (basis.T @ new)  # once more, against rounding
        if np.linalg.norm(new) > 1e-9:
            kept.append(k)
            basis = np.column_stack([basis, new / np.linalg.norm(new)])
    solution = np.zeros(design.shape[1])
    solution[kept] = np.linalg.lstsq(columns[:, kept], c)[0] / scale[kept]
    return solution


def _check_pairs(record_losses, group_losses):
    c, x = np.asarray(record_losses, dtype=float), np.asarray(group_losses, dtype=float)
    if c.ndim != 1 or x.ndim != 2 or len(x) != len(c) or not x.size:
        raise InvalidLoss(
            f"losses (pairs,) and (pairs, groups) are needed, got {c.shape} and {x.shape}"
        )
    for name, losses in (("record", c), ("group", x)):
        bad = np.argwhere(~np.isfinite(losses))
        if bad.size:
            raise InvalidLoss(f"the {name} losses of pair {bad[0][0]} are not all finite")
    return c, x
