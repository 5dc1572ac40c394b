import cvxpy as cp
import numpy as np
import pytest
from channels import euclidean
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp.adequacy import mse_likeness, prefer_optimal, radial_fit, relative_gain
from dephdp.errors import InvalidDistribution, InvalidLoss, InvalidMetric


def weights_of(shape, prior, diagonal):
    weights = np.ones(shape) if prior is None else np.tile(np.array(prior)[:, None], shape[1])
    if not diagonal:
        weights = weights * (1 - np.eye(*shape))
    return weights / weights.sum()


def by_program(loss, distances, fitted, constraints, weights):
    """The least squares of (25) or (28) as a convex program, then (26) or (29)."""
    problem = cp.Problem(
        cp.Minimize(cp.sum(cp.multiply(weights, cp.square(loss - fitted)))), constraints
    )
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13)
    spread = np.sqrt((weights * (loss - (weights * loss).sum()) ** 2).sum())
    return 1 - np.sqrt(max(problem.value, 0)) / spread


def random_instance(rng, ties):
    n = int(rng.integers(3, 7))
    points = rng.integers(0, 3, (n, 2)) if ties else rng.random((n, 2))
    distances = euclidean(points)
    loss = rng.random((n, n)) + rng.choice([0, 1, 3]) * distances**2
    prior = rng.dirichlet(np.ones(n)) if rng.random() < 0.5 else None
    return loss, distances, prior, bool(rng.random() < 0.5)


@pytest.mark.parametrize("seed", range(20))
def test_mse_likeness_equals_a_quadratic_program(seed):
    loss, distances, prior, diagonal = random_instance(np.random.default_rng(seed), seed % 2)
    if seed % 3 == 0:
        loss = -loss + loss.max()  # falls with the distance: the slope is clipped at zero
    a, b = cp.Variable(nonneg=True), cp.Variable()
    weights = weights_of(loss.shape, prior, diagonal)
    expected = by_program(loss, distances, a * distances**2 + b, [], weights)
    score = mse_likeness(loss, distances, prior=prior, diagonal=diagonal)
    assert score == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_radial_fit_equals_a_quadratic_program(seed):
    loss, distances, prior, diagonal = random_instance(np.random.default_rng(seed), seed % 2)
    levels, index = np.unique(distances, return_inverse=True)
    g = cp.Variable(len(levels))
    fitted = cp.reshape(g[index.ravel()], loss.shape, order="C")
    weights = weights_of(loss.shape, prior, diagonal)
    expected = by_program(loss, distances, fitted, [cp.diff(g) >= 0], weights)
    score = radial_fit(loss, distances, prior=prior, diagonal=diagonal)
    assert score == pytest.approx(expected, abs=1e-5)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), ties=st.booleans(), scale=st.floats(1e-9, 1e9))
def test_laws_of_the_scores(seed, ties, scale):
    rng = np.random.default_rng(seed)
    loss, distances, prior, diagonal = random_instance(rng, ties)
    options = {"prior": prior, "diagonal": diagonal}
    mse, radial = (f(loss, distances, **options) for f in (mse_likeness, radial_fit))
    assert 0 <= mse <= radial + 1e-9 <= 1 + 1e-9
    # Units of the loss, its origin and units of the distance do not matter.
    assert mse_likeness(scale * loss, distances, **options) == pytest.approx(mse, abs=1e-7)
    assert radial_fit(loss + 5, distances, **options) == pytest.approx(radial, abs=1e-7)
    assert radial_fit(loss, scale * distances, **options) == pytest.approx(radial, abs=1e-7)
    # Nor does the order of the states.
    order = rng.permutation(len(loss))
    square = np.ix_(order, order)
    options["prior"] = None if prior is None else prior[order]
    assert radial_fit(loss[square], distances[square], **options) == pytest.approx(radial, abs=1e-9)


def test_radial_losses_score_one():
    distances = euclidean(np.random.default_rng(0).random((12, 2)))
    assert mse_likeness(3 * distances**2 + 1, distances) == pytest.approx(1)
    assert radial_fit(np.sqrt(distances), distances) == pytest.approx(1)
    assert mse_likeness(np.sqrt(distances), distances) < 0.95
    hamming = 1 - np.eye(12)
    assert radial_fit(hamming, distances) == mse_likeness(hamming, distances) == 1
    # With the diagonal the same loss has to jump at zero, which a parabola cannot.
    assert mse_likeness(hamming, distances, diagonal=True) < 0.2
    assert radial_fit(hamming, distances, diagonal=True) == pytest.approx(1)


def test_ties_that_differ_by_rounding_are_pooled():
    distances = 1 - np.eye(4)
    loss = np.random.default_rng(1).random((4, 4))
    jittered = distances * (1 + 1e-15 * np.arange(16).reshape(4, 4))
    assert radial_fit(loss, jittered) == pytest.approx(radial_fit(loss, distances), abs=1e-12)
    assert radial_fit(loss, distances) == pytest.approx(0, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(a=st.floats(0.01, 100), b=st.floats(0.01, 100))
def test_two_states(a, b):
    """Off the diagonal there is one distance; on it the score has a floor of 1 - √(2/3)."""
    loss, distances = np.array([[0, a], [b, 0]]), np.array([[0.0, 3.0], [3.0, 0.0]])
    for score in (mse_likeness, radial_fit):
        assert score(loss, distances) == pytest.approx(float(a == b), abs=1e-9)
        with_diagonal = score(loss, distances, diagonal=True)
        # Residuals ±(a - b)/2 at distance 3, none at 0.
        residual = (a - b) ** 2 / 8
        variance = (a**2 + b**2) / 4 - ((a + b) / 4) ** 2
        assert with_diagonal == pytest.approx(1 - np.sqrt(residual / variance), abs=1e-9)
        assert with_diagonal >= 1 - np.sqrt(2 / 3) - 1e-9


def test_degenerate_groups_score_one():
    for score in (mse_likeness, radial_fit):
        assert score([[0.0]], [[0.0]]) == 1
        assert score(np.full((3, 3), 0.1 + 0.2), 1 - np.eye(3)) == 1
        assert score(np.zeros((3, 3)), np.zeros((3, 3))) == 1


def test_the_prior_decides_between_radial_and_rare_states():
    """Two heavy radial states and ten rare ones without structure, and the other way round."""
    rng = np.random.default_rng(0)
    distances = euclidean(rng.random((12, 2)))
    loss = rng.random((12, 12))
    loss[:2] = distances[:2] ** 2
    heavy = np.array([0.49, 0.49] + [0.002] * 10)
    assert radial_fit(loss, distances, prior=heavy) > radial_fit(loss, distances) + 0.2


def test_delta_is_the_papers_guard():
    loss, distances = np.random.default_rng(2).random((2, 5, 5))
    distances = distances + distances.T
    np.fill_diagonal(distances, 0)
    plain = mse_likeness(loss, distances)
    assert mse_likeness(loss, distances, delta=1e-8) == pytest.approx(plain, abs=1e-6)
    assert mse_likeness(loss, distances, delta=1.0) > plain


def test_outputs_other_than_the_states_have_no_diagonal():
    rng = np.random.default_rng(4)
    loss, distances = rng.random((2, 4, 6))
    assert 0 <= mse_likeness(loss, distances) <= radial_fit(loss, distances) <= 1


def test_the_rule():
    chosen = prefer_optimal([2, 300, 301, 20], [0.3, 0.1, 0.1, 0.31])
    assert chosen.tolist() == [True, True, False, False]
    assert prefer_optimal([301], [0.1], largest=400, threshold=0.05).tolist() == [False]


def test_relative_gain():
    np.testing.assert_allclose(relative_gain([2.0, 1.0, 0.0], [1.0, 1.0, 0.0]), [0.5, 0, 0])
    with pytest.raises(InvalidLoss, match="nonnegative"):
        relative_gain([-1.0], [0.0])


@pytest.mark.parametrize(
    ("loss", "distances", "prior", "error"),
    [
        (np.ones((2, 2)), np.ones(2), None, InvalidMetric),
        (np.ones((2, 2)), np.full((2, 2), np.inf), None, InvalidMetric),
        (np.ones((3, 2)), np.ones((2, 2)), None, InvalidLoss),
        (np.full((2, 2), np.nan), np.ones((2, 2)), None, InvalidLoss),
        (np.ones((2, 2)), np.ones((2, 2)), [0.5, 0.6], InvalidDistribution),
    ],
)
def test_bad_input_is_named(loss, distances, prior, error):
    for score in (mse_likeness, radial_fit):
        with pytest.raises(error):
            score(loss, distances, prior=prior)
