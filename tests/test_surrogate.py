"""The surrogate: its fit, its diagnostic, and what Proposition 1 does and does not say."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from dephdp import Attribute, Channel, Domain, compose_budget
from dephdp.errors import InvalidDomain, InvalidGroup, InvalidLoss, InvalidTask
from dephdp.group import Group
from dephdp.losses import within_group_loss
from dephdp.surrogate import (
    calibration_pairs,
    evaluate_pairs,
    fit_surrogate,
    pilot_channels,
    quadratic_diagnostic,
    r_squared,
)
from dephdp.tasks import FrequencyEstimation, RecordTask

DOMAIN = Domain(
    [
        Attribute.nominal("a", range(2)),
        Attribute.nominal("b", range(2)),
        Attribute.ordinal("c", range(3)),
    ]
)


def draw(rng, count):
    return np.stack([rng.integers(size, size=count) for size in DOMAIN.sizes], axis=-1)


def groups():
    return [Group.full(DOMAIN, ["a"]), Group.full(DOMAIN, ["b", "c"])]


def product_task(reference):
    return RecordTask(
        DOMAIN,
        reference,
        lambda x: (1.0 + x[:, 0]) * (1 + x[:, 1] + x[:, 2]),
        lambda u, v: np.abs(u - v),
    )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(8, 40), width=st.integers(1, 4))
def test_the_fit_is_the_nonnegative_least_squares_one(seed, count, width):
    rng = np.random.default_rng(seed)
    x = rng.random((count, width)) * 10 ** rng.uniform(-2, 2, width)
    c = x @ rng.normal(size=width) + rng.normal(size=count) - 3
    fit = fit_surrogate(c, x, rng)
    design = np.column_stack([np.ones(count), x])
    bounds = ([-np.inf] + [0] * width, np.inf)
    reference = lsq_linear(design, c, bounds, method="bvls")
    ours = c - fit.predict(x)
    # KKT: mean residual zero, no coefficient negative, no column that would still help
    assert abs(ours.mean()) < 1e-10 * max(1, np.abs(c).max())
    assert (fit.coefficients >= 0).all()
    gradient = x.T @ ours
    scale = np.linalg.norm(x, axis=0) * np.linalg.norm(c)
    assert (gradient <= 1e-9 * scale).all()
    assert np.abs(gradient * (fit.coefficients > 0) / scale).max() < 1e-9
    assert ours @ ours <= 2 * reference.cost * (1 + 1e-9)
    assert fit.held_out_r_squared <= 1


def test_an_additive_loss_is_recovered_exactly():
    rng = np.random.default_rng(1)
    task = FrequencyEstimation(DOMAIN, draw(rng, 50))
    pairs = calibration_pairs(task, groups(), pilot_channels(groups(), 3.0), 500, rng)
    np.testing.assert_allclose(pairs.group_losses.sum(axis=1), pairs.record_losses, rtol=1e-12)
    fit = fit_surrogate(pairs.record_losses, pairs.group_losses, rng)
    np.testing.assert_allclose(fit.coefficients, 1, rtol=1e-9)
    assert abs(fit.intercept) < 1e-9 and fit.held_out_r_squared == pytest.approx(1)
    quadratic = quadratic_diagnostic(pairs.record_losses, pairs.group_losses)
    assert quadratic.linear_r_squared == pytest.approx(1)
    assert quadratic.r_squared == pytest.approx(1)
    np.testing.assert_allclose(quadratic.linear, 1)
    np.testing.assert_allclose(quadratic.interactions, 0, atol=1e-9)
    np.testing.assert_allclose(quadratic.squares, 0, atol=1e-9)


def test_pairs_hold_the_losses_they_name():
    rng = np.random.default_rng(2)
    task = product_task(draw(rng, 20))
    pairs = calibration_pairs(task, groups(), "uniform", 60, rng)
    for s, (row, (first, second)) in enumerate(zip(pairs.rows, pairs.reports, strict=True)):
        x = task.reference[row]
        y = np.concatenate([groups()[0].codes[first], groups()[1].codes[second]])
        assert pairs.record_losses[s] == task.losses(row, x, y)
        assert pairs.group_losses[s, 0] == task.losses(row, x, [y[0], *x[1:]])
        assert pairs.group_losses[s, 1] == task.losses(row, x, [x[0], *y[1:]])
    again = evaluate_pairs(task, groups(), pairs.rows, pairs.reports)
    np.testing.assert_array_equal(again.record_losses, pairs.record_losses)


def test_pilot_channels_keep_the_budget_and_the_weights():
    for p in (1, 2, math.inf):
        channels = pilot_channels(groups(), 2.0, p, {"a": 2.0, "b": 1.0, "c": 0.5})
        levels = [channel.privacy_level() for channel in channels]
        assert compose_budget(levels, p) <= 2.0
    np.testing.assert_array_equal(channels[1].distances, groups()[1].distances(math.inf))


def test_proposition_1_is_an_identity_with_its_residual():
    """L(M) = β0 + Σ βk Lk(Mk) + E[residual], by enumeration, for any coefficients."""
    rng = np.random.default_rng(3)
    reference = draw(rng, 25)
    task, parts = product_task(reference), groups()
    channels = [Channel(rng.dirichlet(np.ones(g.size), size=g.size), g.distances()) for g in parts]
    fit_to = calibration_pairs(task, parts, "uniform", 200, rng)
    fit = fit_surrogate(fit_to.record_losses, fit_to.group_losses, rng)
    rows = np.repeat(np.arange(25), 2 * 6)
    reports = np.tile(list(itertools.product(range(2), range(6))), (25, 1))
    every = evaluate_pairs(task, parts, rows, reports)
    chance = np.full(len(rows), 1 / 25)
    for k, (group, channel) in enumerate(zip(parts, channels, strict=True)):
        chance *= channel.matrix[group.states(reference[rows]), reports[:, k]]
    assert chance.sum() == pytest.approx(1)
    expected = chance @ every.record_losses
    within = [
        channel.expected_loss(group.prior(reference), within_group_loss(task, group))
        for group, channel in zip(parts, channels, strict=True)
    ]
    # the tower property: the mean of context-averaged losses is the mean of the losses
    np.testing.assert_allclose(within, chance @ every.group_losses, rtol=1e-12)
    residual = chance @ (every.record_losses - fit.predict(every.group_losses))
    assert expected == pytest.approx(fit.predict(within) + residual, rel=1e-12)
    assert abs(residual) > 0.01  # and it is not small


@pytest.mark.parametrize("chance", [0.5, 0.2, 0.05])
def test_parity_makes_the_coefficients_what_the_pairs_are(chance):
    """Two flips cancel: the best coefficient is 1 - 2 P(change), whatever will be deployed."""
    domain = Domain([Attribute.nominal(name, range(2)) for name in "ab"])
    reference = list(itertools.product(range(2), repeat=2))
    task = RecordTask(domain, reference, lambda x: x.sum(axis=1) % 2, lambda u, v: u ^ v)
    parts = [Group.full(domain, name) for name in "ab"]
    flips = {0.5: 1, 0.2: 4, 0.05: 19}[chance]  # one change in so many + 1
    draws = itertools.product(range(flips + 1), repeat=2)
    rows, changes = zip(*itertools.product(range(4), draws), strict=True)
    reports = np.array(reference)[list(rows)] ^ (np.array(changes) == 0)
    pairs = evaluate_pairs(task, parts, rows, reports)
    fit = fit_surrogate(pairs.record_losses, pairs.group_losses, np.random.default_rng(4))
    np.testing.assert_allclose(fit.coefficients, 1 - 2 * chance, atol=1e-12)
    # c = c1 + c2 - 2 c1 c2: the quadratic diagnostic sees it
    quadratic = quadratic_diagnostic(pairs.record_losses, pairs.group_losses)
    assert quadratic.r_squared == pytest.approx(1)
    assert quadratic.interactions[0, 1] == pytest.approx(-2)
    np.testing.assert_allclose(quadratic.linear, 1)
    assert not quadratic.squares.any()  # the square of a loss in {0, 1} is the loss itself


def test_the_quadratic_diagnostic_recovers_a_quadratic():
    rng = np.random.default_rng(5)
    x = rng.random((200, 3))
    c = 1 + x @ [1, 2, 3] + 0.5 * x[:, 0] * x[:, 2] - 0.25 * x[:, 1] ** 2
    fit = quadratic_diagnostic(c, x)
    assert fit.intercept == pytest.approx(1)
    np.testing.assert_allclose(fit.linear, [1, 2, 3])
    np.testing.assert_allclose(fit.interactions, [[0, 0, 0.5], [0] * 3, [0] * 3], atol=1e-9)
    np.testing.assert_allclose(fit.squares, [0, -0.25, 0], atol=1e-9)
    design = np.column_stack([np.ones(200), x])
    linear = c - design @ np.linalg.lstsq(design, c, rcond=None)[0]
    assert fit.linear_r_squared == pytest.approx(1 - linear @ linear / np.sum((c - c.mean()) ** 2))


def test_constant_losses_have_defined_answers():
    rng = np.random.default_rng(6)
    x = np.column_stack([np.zeros(20), rng.random(20)])
    fit = fit_surrogate(3 + 2 * x[:, 1], x, rng)
    assert fit.coefficients[0] == 0 and fit.coefficients[1] == pytest.approx(2)
    nothing = fit_surrogate(np.full(20, 5.0), x, rng)
    assert nothing.intercept == pytest.approx(5) and not nothing.coefficients.any()
    assert nothing.r_squared == nothing.held_out_r_squared == 1
    assert r_squared([1.0, 1.0], [1.0, 2.0]) == -math.inf
    assert r_squared([1.0, 3.0], [2.0, 2.0]) == 0


def test_bad_input_is_refused_by_name():
    rng = np.random.default_rng(7)
    task = product_task(draw(rng, 5))
    with pytest.raises(InvalidGroup, match="no partition"):
        calibration_pairs(task, groups()[:1], "uniform", 5, rng)
    with pytest.raises(InvalidTask, match="'even'"):
        calibration_pairs(task, groups(), "even", 5, rng)
    with pytest.raises(InvalidDomain, match="do not fit"):
        calibration_pairs(task, groups(), pilot_channels(groups(), 1.0)[::-1], 5, rng)
    few = [Group(DOMAIN, ["a"], [[0]]), groups()[1]]
    with pytest.raises(InvalidGroup, match="not a state"):
        calibration_pairs(task, few, pilot_channels(few, 1.0), 50, rng)
    with pytest.raises(InvalidLoss, match="pairs"):
        fit_surrogate(np.ones(3), np.ones((4, 2)), rng)
    with pytest.raises(InvalidLoss, match="pair 1"):
        quadratic_diagnostic([1, math.nan, 2], np.ones((3, 1)))
    with pytest.raises(InvalidTask, match="held_out"):
        fit_surrogate(np.ones(9), np.ones((9, 1)), rng, held_out=1)
    with pytest.raises(InvalidTask, match="too few"):
        fit_surrogate(np.ones(3), np.ones((3, 1)), rng)
