"""Speed of the estimators and of the arg-max attack, as ratios against plainer routes."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import gammaln, psi

import drha

CELLS, LEVELS = 200_000, 8


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(12)
    sizes = rng.negative_binomial(1.2, 0.05, CELLS) + 1
    return rng.multinomial(sizes, rng.dirichlet(np.linspace(0.2, 2.0, LEVELS), CELLS))


def fit_by_scipy(table):
    """The same maximum by L-BFGS-B on the textbook likelihood with its gradient."""
    n = table.sum(axis=1)

    def loss(t):
        alpha = np.exp(t)
        total = alpha.sum()
        value = (gammaln(total) - gammaln(total + n)).sum()
        value += (gammaln(table + alpha) - gammaln(alpha)).sum()
        slope = (psi(table + alpha) - psi(alpha)).sum(axis=0) - (psi(n + total) - psi(total)).sum()
        return -value, -slope * alpha

    start = np.zeros(table.shape[1])
    return np.exp(minimize(loss, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-13}).x)


def test_dirichlet_against_scipy(race, counts):
    part = counts[: CELLS // 20]
    np.testing.assert_allclose(drha.fit_dirichlet(part).alpha, fit_by_scipy(part), rtol=1e-3)
    ratios = race(
        "Dirichlet fit of 200,000 cells x 8 levels (cells)",
        lambda: drha.fit_dirichlet(counts),
        {"SciPy L-BFGS-B": (lambda: fit_by_scipy(part), len(part))},
        work=CELLS,
        rounds=3,
    )
    assert ratios["SciPy L-BFGS-B"] > 5


def test_largest_count_against_simulation(race, counts):
    """Exact to 1e-12 in less time than a thousand releases, which leave an error of 1.6 %."""
    cells, noise, rng = counts[:2000], drha.laplace(0.5), np.random.default_rng(13)

    def simulate():
        return drha.simulated_risk(cells, noise, draws=1000, rng=rng, kind="largest")

    risk = simulate()
    gap = np.abs(risk.value - drha.argmax_risk(cells, noise))
    assert (gap < 5 * np.maximum(risk.standard_error, 1e-3)).all()
    ratios = race(
        "largest count right, 2,000 cells (cells)",
        lambda: drha.argmax_risk(cells, noise),
        {"1,000 releases": (simulate, len(cells))},
        work=len(cells),
        rounds=2,
    )
    assert ratios["1,000 releases"] > 2
