"""What the chapters on the case studies share: noise by its formula, and a truncated program."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from book.cases.noise import near_only, noise_losses
from book.cases.truncation import coverage, truncated_optimum
from book.cases.wine import WineSample
from dephdp import loss_curve, optimal_mechanism, optimal_mechanism_lp, privacy_level
from dephdp.metric import shortest_path_closure


@pytest.fixture(scope="module")
def profile():
    return WineSample.draw(np.random.default_rng(5), size=25).profiles[2]


def test_the_formula_of_noise_agrees_with_the_package(profile):
    budgets = np.array([0.3, 2.0, 9.0])
    for family, losses in zip(
        ("exponential", "exponential+remap"), noise_losses(profile, budgets), strict=True
    ):
        curve = loss_curve(profile.prior, profile.loss, profile.distances, budgets, family)
        np.testing.assert_allclose(losses, curve.measured, rtol=1e-10)


def test_coverage_counts_pairs_and_lonely_states():
    points = np.array([[0.0], [0.4], [0.5], [3.0], [5.0]])
    line = SimpleNamespace(distances=cdist(points, points))
    assert np.isinf(near_only(line, 0.45)[0, 2]) and near_only(line, 0.45)[0, 1] == 0.4
    assert coverage(line, 0.45) == (4 / 20, 2)
    assert coverage(line, 9.0) == (1.0, 0)
    assert coverage(line, 0.05) == (0.0, 5)


def test_the_truncated_optimum_is_not_private(profile):
    arguments = profile.prior, profile.loss, profile.distances, 1.0
    threshold = np.quantile(profile.distances, 0.1)
    truncated = truncated_optimum(profile, threshold, 1.0)
    assert np.isinf(privacy_level(truncated.channel.matrix, profile.distances))
    assert truncated.loss < optimal_mechanism(*arguments, tol=1e-3).lower_bound
    near = shortest_path_closure(near_only(profile, threshold))
    reference = optimal_mechanism_lp(profile.prior, profile.loss, near, 1.0)
    assert truncated.loss == pytest.approx(reference.loss, rel=2e-3)
    whole = truncated_optimum(profile, profile.distances.max(), 1.0)
    assert whole.channel.privacy_level() <= 1.0
