"""Stage 2: the loss within a group, averaged over what surrounds it."""

import numpy as np

from dephdp.errors import InvalidGroup, InvalidTask
from dephdp.group import GroupProfile, RowIndex

_CHUNK = 1 << 21  # level codes written down at a time


def within_group_loss(task, group, *, unseen="average", unseen_contexts=256):
    """Return c_k(y_k | x_k): the mean loss of replacing the group's part of a record.

    Parameters
    ----------
    task : Task
        The downstream task, with its N reference records.
    group : Group
        Its n states.
    unseen : {"average", "refuse"}, optional
        What the context of a state is that no reference record has: the contexts of all reference
        records, as if the group were independent of the rest, or an error.
    unseen_contexts : int, optional
        If there are more reference records, an unseen state takes the contexts of so many of
        them, evenly spaced among the records in lexicographic order.

    Returns
    -------
    ndarray, shape (n, n)
        Row x_k, column y_k; zero on the diagonal wherever a task's loss is for x = y.

    Raises
    ------
    InvalidGroup
        If a reference record is in none of the states, or a state has no record and that is to
        be refused.
    InvalidLoss
        If the task returns a loss that is negative or not finite.
    InvalidTask
        If an option is out of range.

    Notes
    -----
    Exact enumeration of Eq. 16-17 of DepHDP: c_k(y_k | x_k) is the average of
    γ(U(x), U(y_k, x_-k)) over the reference records x with the part x_k. All n replacements of a
    record are evaluated at once: N n losses, and at most ``unseen_contexts`` times n more for each
    unseen state. A task's closed form is used where there is one.
    """
    if unseen not in ("average", "refuse"):
        raise InvalidTask(f"unseen is 'average' or 'refuse', got {unseen!r}")
    if unseen_contexts < 1:
        raise InvalidTask(f"unseen_contexts must be positive, got {unseen_contexts!r}")
    states = group.states(task.reference)
    counts = np.bincount(states, minlength=group.size)
    missing = np.flatnonzero(counts == 0)
    if missing.size and unseen == "refuse":
        raise InvalidGroup(
            f"state {missing[0]} of {group!r} has no reference record ({missing.size} such "
            "states): take the observed states, or average over all contexts"
        )
    closed = task.closed_form(group)
    if closed is not None:
        return closed
    total = np.zeros((group.size, group.size))
    for rows in _chunks(len(states), group.size * len(task.domain)):
        before = task.reference[rows][:, None]
        np.add.at(total, states[rows], _replaced(task, group, rows, before))
    if missing.size:
        spread = _spread_rows(task.reference, unseen_contexts)
        counts[missing] = len(spread)
    for state in missing:
        for part in _chunks(len(spread), group.size * len(task.domain)):
            before = group.plug(task.reference[spread[part]], state)[:, None]
            total[state] += _replaced(task, group, spread[part], before).sum(axis=0)
    return total / counts[:, None]


def sampled_loss(task, group, before, after, *, contexts=64, rng):
    """Return estimates of c_k(y_k | x_k) for chosen pairs of states, with standard errors.

    Parameters
    ----------
    task : Task
        The downstream task, with its reference records.
    group : Group
        Its n states; n may be large.
    before, after : array_like of int, shape (m,)
        The pairs of states x_k, y_k.
    contexts : int, optional
        How many reference records with the part x_k to draw for each pair, with replacement; at
        least 2. For a state that no reference record has: among all of them.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    losses, standard_errors : ndarray, shape (m,)
        Unbiased for the average that :func:`within_group_loss` computes from all records.

    Raises
    ------
    InvalidGroup, InvalidTask, InvalidLoss
        If a state or the number of contexts is out of range, or as the exact version.
    TypeError
        If ``rng`` is not a Generator.
    """
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy.random.Generator, got {type(rng).__name__}")
    if contexts < 2:
        raise InvalidTask(f"a standard error needs at least 2 contexts, got {contexts!r}")
    before, after = np.asarray(before), np.asarray(after)
    for states in (before, after):
        if states.ndim != 1 or not np.issubdtype(states.dtype, np.integer):
            raise InvalidGroup("states must be vectors of integers")
        if states.size and not (states.min() >= 0 and states.max() < group.size):
            raise InvalidGroup(f"states must lie in 0, ..., {group.size - 1}")
    owner = group.states(task.reference)
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=group.size)
    starts = np.where(counts > 0, np.cumsum(counts) - counts, 0)
    counts = np.where(counts > 0, counts, len(owner))
    losses, errors = np.empty(len(before)), np.empty(len(before))
    for pairs in _chunks(len(before), contexts * len(task.domain)):
        x, y = before[pairs], after[pairs]
        place = rng.integers(0, counts[x][:, None], size=(len(x), contexts))
        rows = order[starts[x][:, None] + place]
        records = group.plug(task.reference[rows], x[:, None])
        drawn = task.losses(rows, records, group.plug(records, y[:, None]))
        losses[pairs] = drawn.mean(axis=1)
        errors[pairs] = drawn.std(axis=1, ddof=1) / np.sqrt(contexts)
    return losses, errors


def sample_pairs(group, count, rng):
    """Draw ordered pairs of different states, uniformly.

    Parameters
    ----------
    group : Group
        Its n states, at least two.
    count : int
        How many pairs.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    before, after : ndarray of int, shape (count,)

    Raises
    ------
    InvalidGroup
        If there is only one state.
    """
    if group.size < 2:
        raise InvalidGroup(f"{group!r} has no two different states")
    before = rng.integers(group.size, size=count)
    return before, (before + rng.integers(1, group.size, size=count)) % group.size


def estimated_loss(task, group, contexts, rng):
    """Return estimates of all c_k(y_k | x_k), with standard errors.

    Parameters
    ----------
    task, group, contexts, rng
        As :func:`sampled_loss`.

    Returns
    -------
    losses, standard_errors : ndarray, shape (n, n)
        Independent between the entries; exact, with errors zero, where the task has a closed form.
    """
    closed = task.closed_form(group)
    if closed is not None:
        return closed, np.zeros(closed.shape)
    n = group.size
    before, after = np.divmod(np.arange(n * n), n)
    found = sampled_loss(task, group, before, after, contexts=contexts, rng=rng)
    return tuple(part.reshape(n, n) for part in found)


def profile_group(
    task, group, p=2, weights=None, prior="empirical", *, unseen="average", contexts=None, rng=None
):
    """Return the prior, distances and losses of a group: what Stages 3 and 4 work with.

    Parameters
    ----------
    task : Task
        The downstream task, with its reference records.
    group : Group
        Its n states.
    p : float, optional
        Exponent of the record metric, in [1, ∞].
    weights : mapping or sequence of float, optional
        Of the group's attributes, as in :func:`dephdp.distance_matrix`.
    prior : {"empirical", "uniform"} or array_like, shape (n,), optional
        The reference records' distribution, or equal probabilities (the reading of the paper's
        experiments that reproduces them), or a distribution of one's own.
    unseen : {"average", "refuse"}, optional
        As in :func:`within_group_loss`.
    contexts : int, optional
        Estimate the losses from so many contexts a pair of states, as :func:`estimated_loss`,
        instead of taking all reference records.
    rng : numpy.random.Generator, optional
        Draws the contexts.

    Returns
    -------
    GroupProfile
    """
    if isinstance(prior, str):
        if prior not in ("empirical", "uniform"):
            raise InvalidTask(f"prior is 'empirical', 'uniform' or an array, got {prior!r}")
        prior = group.prior(task.reference if prior == "empirical" else None)
    if contexts is None:
        loss = within_group_loss(task, group, unseen=unseen)
    else:
        loss, _ = estimated_loss(task, group, contexts, rng)
    return GroupProfile(group, prior, group.distances(p, weights), loss)


def _replaced(task, group, rows, before):
    """Losses of replacing the group's part of each record by every state, (rows, n)."""
    return task.losses(rows[:, None], before, group.plug(before, np.arange(group.size)))


def _spread_rows(reference, count):
    """Rows evenly spaced among the sorted records: a sample that no order of the table moves."""
    order = np.argsort(RowIndex(reference).inverse, kind="stable")
    if count >= len(order):
        return order
    return order[((np.arange(count) + 0.5) * len(order) / count).astype(int)]


def _chunks(count, width):
    step = max(1, _CHUNK // width)
    for start in range(0, count, step):
        yield np.arange(start, min(start + step, count))
