"""Bayesian remapping: replace each report by the best action given that report."""

import numpy as np

from dephdp.channel import Channel
from dephdp.errors import InvalidLoss
from dephdp.exponents import settle
from dephdp.validation import check_loss, check_prior

_ULP = np.finfo(float).eps


def bayes_remap(channel, prior, loss):
    """Return the channel followed by the deterministic map that minimises the expected loss.

    Parameters
    ----------
    channel : Channel
        From n states to m outputs.
    prior : array_like, shape (n,)
        Distribution of the state.
    loss : array_like, shape (n, k)
        Loss c of reporting each of k final outputs in each state.

    Returns
    -------
    Channel
        From the n states to the k outputs of the loss; its computed level is at most that of
        ``channel``.

    Raises
    ------
    InvalidDistribution, InvalidLoss
        If the prior or the loss does not fit the channel.

    See Also
    --------
    bayes_actions : the map itself.

    Notes
    -----
    Every ratio of sums lies between the ratios of the terms, so post-processing never raises the
    level. Summation rounds, however: where a unit in the last place shows, the result is mixed
    with as little as needed of its own average row, which lowers every ratio.

    Among all maps of reports to final outputs, random ones included, none has a lower expected
    loss: the loss is a sum over reports, and each term is minimised on its own.
    """
    actions = bayes_actions(channel, prior, loss)
    remapped = np.zeros((channel.states, np.shape(loss)[1]))
    for report, action in enumerate(actions):
        remapped[:, action] += channel.matrix[:, report]
    average = remapped.mean(axis=0)

    def mix(weight):
        return weight * remapped + (1 - weight) * average

    matrix = settle(mix, 1.0, channel.privacy_level(), channel.distances)
    return Channel(matrix, channel.distances)


def bayes_actions(channel, prior, loss):
    """Return the final output of least expected posterior loss for each report.

    Parameters
    ----------
    channel : Channel
        From n states to m outputs.
    prior : array_like, shape (n,)
        Distribution of the state.
    loss : array_like, shape (n, k)
        Loss c of reporting each of k final outputs in each state.

    Returns
    -------
    ndarray of int, shape (m,)
        r(y), the first z that minimises Σ_x π(x) M(y | x) c(z | x) up to rounding. A report that
        the prior makes impossible is mapped to 0.

    Raises
    ------
    InvalidDistribution, InvalidLoss
        If the prior or the loss does not fit the channel.

    Notes
    -----
    Actions whose expected losses differ by less than the rounding error of the sums count as
    ties: the map does not depend on the order in which a machine adds.
    """
    prior = check_prior(prior, channel.states)
    shape = np.shape(loss)
    if len(shape) != 2 or shape[1] == 0:
        raise InvalidLoss(f"loss must be a (states, outputs) matrix, got shape {shape}")
    loss = check_loss(loss, (channel.states, shape[1]))
    joint = (prior[:, None] * channel.matrix).T
    expected = joint @ loss
    rounding = (channel.states + 2) * _ULP * (joint @ np.abs(loss))
    threshold = (expected + rounding).min(axis=1, keepdims=True)
    return np.argmax(expected - rounding <= threshold, axis=1)
