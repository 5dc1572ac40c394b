import numpy as np
import pytest
from channels import euclidean
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp import (
    allocate_budget,
    bayes_remap,
    exponential_mechanism,
    optimal_mechanism,
    optimal_mechanism_lp,
    tight_constraints_mechanism,
)
from dephdp.curves import (
    FAMILIES,
    LossCurve,
    _parts,
    loss_curve,
    loss_curves,
    partition_bound,
)
from dephdp.errors import DephdpError, InfeasibleMechanism, InvalidBudget, InvalidLoss
from dephdp.group import GroupProfile
from dephdp.optimal.bound import cluster_bound
from dephdp.optimal.problem import Problem


def instance(seed, n=6):
    rng = np.random.default_rng(seed)
    distances = euclidean(rng.random((n, 2)))
    return rng.dirichlet(np.ones(n)), rng.random((n, n)) + distances, distances


def six_pairs():
    """States in pairs, distance 1 inside and 10 between; only the partner costs anything."""
    distances = np.full((12, 12), 10.0)
    for first in range(0, 12, 2):
        distances[first : first + 2, first : first + 2] = 1
    np.fill_diagonal(distances, 0)
    return np.full(12, 1 / 12), (distances == 1) * 1.0, distances


GRID = np.array([0, 0.5, 1, 2, 4, 8])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(3))
def test_every_loss_is_that_of_a_mechanism_within_the_budget(family, seed):
    prior, loss, distances = instance(seed)
    curve = loss_curve(prior, loss, distances, GRID, family)
    assert (np.diff(curve.losses) <= 0).all()
    assert (curve.lower_bounds <= curve.losses).all()
    assert (np.diff(curve.lower_bounds) <= 0).all()
    for epsilon in [*GRID, 3.0, 20.0]:
        channel = curve.mechanism(epsilon)
        assert channel.privacy_level() <= epsilon
        assert channel.expected_loss(prior, loss) == pytest.approx(
            curve.losses_at(epsilon), rel=1e-12
        )


def test_families_are_the_mechanisms_they_are_named_after():
    prior, loss, distances = instance(1)
    at = {family: loss_curve(prior, loss, distances, [2.0], family) for family in FAMILIES}
    noise = {
        "exponential": exponential_mechanism(distances, 2.0),
        "calibrated": exponential_mechanism(distances, 2.0, calibrated=True),
    }
    for name, channel in noise.items():
        assert at[name].losses[0] == pytest.approx(channel.expected_loss(prior, loss))
        remapped = bayes_remap(channel, prior, loss).expected_loss(prior, loss)
        assert at[name + "+remap"].losses[0] == pytest.approx(remapped)
        assert at[name + "+remap"].losses[0] <= at[name].losses[0]
    best = optimal_mechanism_lp(prior, loss, distances, 2.0)
    assert at["optimal"].losses[0] == pytest.approx(best.loss, rel=1e-2)
    assert all(at[name].losses[0] >= at["optimal"].lower_bounds[0] for name in FAMILIES)


def test_tight_constraints_fall_back_on_calibration_where_they_do_not_exist():
    prior, loss, distances = six_pairs()
    rng = np.random.default_rng(3)
    while True:
        distances = euclidean(rng.random((10, 2)))
        try:
            tight_constraints_mechanism(distances, 0.5)
        except InfeasibleMechanism:
            break
    prior, loss = np.full(10, 0.1), 1 - np.eye(10)
    curve = loss_curve(prior, loss, distances, [0.5, 200.0], "tight")
    calibrated = exponential_mechanism(distances, 0.5, calibrated=True)
    assert curve.losses[0] == pytest.approx(calibrated.expected_loss(prior, loss))
    tight = tight_constraints_mechanism(distances, 200.0)
    assert curve.losses[1] == pytest.approx(tight.expected_loss(prior, loss))


def test_zero_budget_is_exact():
    prior, loss, distances = instance(2)
    for family in FAMILIES:
        curve = loss_curve(prior, loss, distances, [0.0], family)
        constant = family == "optimal" or family.endswith("remap")
        expected = (prior @ loss).min() if constant else (prior @ loss).mean()
        assert curve.losses[0] == pytest.approx(expected, rel=1e-14)
        assert curve.mechanism(0.0).privacy_level() == 0


def test_six_pairs_rise_and_the_closure_does_not():
    """The exponential mechanism first finds the pair, and only then the state."""
    prior, loss, distances = six_pairs()
    curve = loss_curve(prior, loss, distances, [0, 0.5, 1, 2, 8], "exponential")
    np.testing.assert_allclose(curve.measured[:4].round(3), [0.083, 0.300, 0.362, 0.269])
    np.testing.assert_allclose(curve.losses[:4], 1 / 12)
    assert curve.sources.tolist() == [0, 0, 0, 0, 4]
    assert curve.mechanism(2.0).privacy_level() == 0
    # Allocation refuses the curve as measured.
    with pytest.raises(InvalidLoss, match="running minimum"):
        allocate_budget(curve.budgets, [curve.measured], 8.0)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shortfall=st.floats(0, 1e-9))
def test_a_budget_short_by_rounding_keeps_its_sample(seed, shortfall):
    prior, loss, distances = instance(seed)
    for family in ("calibrated", "tight+remap", "optimal"):
        curve = loss_curve(prior, loss, distances, [0.0, 1.0, 2.0], family)
        epsilon = 2.0 * (1 - shortfall)
        channel = curve.mechanism(epsilon)
        assert channel.privacy_level() <= epsilon
        assert channel.expected_loss(prior, loss) == pytest.approx(curve.losses[2], rel=1e-7)


def test_a_time_limit_falls_back_on_closed_forms_and_bounds_from_parts():
    prior, loss, distances = instance(5, n=40)
    loss = loss - np.diag(np.diag(loss))
    limited = loss_curve(prior, loss, distances, [2.0, 8.0], "optimal", tol=1e-6, time_limit=1e-6)
    closed = loss_curve(prior, loss, distances, [2.0, 8.0], "tight+remap")
    full = loss_curve(prior, loss, distances, [2.0, 8.0], "optimal", tol=1e-3)
    assert (limited.losses <= closed.losses).all()
    assert (limited.lower_bounds <= full.losses).all()
    for epsilon, bound in zip([2.0, 8.0], limited.lower_bounds, strict=True):
        assert limited.mechanism(epsilon).privacy_level() <= epsilon
        assert bound >= partition_bound(prior, loss, distances, epsilon, size=20) * (1 - 1e-9)


def test_other_grids():
    prior, loss, distances = instance(4)
    curve = loss_curve(prior, loss, distances, [0.0, 1.0, 2.0], "optimal")
    np.testing.assert_array_equal(curve.losses_at([0.5, 1, 1.5, 9]), curve.losses[[0, 1, 1, 2]])
    np.testing.assert_array_equal(curve.lower_bounds_at([0.5, 1]), curve.lower_bounds[[1, 1]])
    assert curve.losses_at(0.7).shape == ()
    with pytest.raises(InvalidBudget, match="up to 2, not to 3"):
        curve.lower_bounds_at(3.0)
    with pytest.raises(InvalidBudget, match="from 0 on"):
        curve.losses_at(-1.0)
    with pytest.raises(InvalidBudget, match="from 0 on"):
        curve.mechanism(np.nan)


def test_parallel_curves_equal_serial_ones():
    class Profile:
        def __init__(self, seed):
            self.prior, self.loss, self.distances = instance(seed)

    profiles, families = [Profile(k) for k in range(3)], ["calibrated", "optimal", "tight+remap"]
    serial = loss_curves(profiles, families, GRID)
    parallel = loss_curves(profiles, families, GRID, jobs=2)
    for one, other, family in zip(serial, parallel, families, strict=True):
        assert isinstance(one, LossCurve) and one.family == family
        np.testing.assert_array_equal(one.losses, other.losses)
        np.testing.assert_array_equal(one.lower_bounds, other.lower_bounds)
    assert [c.family for c in loss_curves(profiles, "tight", [1.0])] == ["tight"] * 3
    with pytest.raises(DephdpError, match="3 profiles but 1 families"):
        loss_curves(profiles, ["tight"], GRID)


def test_profiles_of_a_group_are_taken_as_they_are():
    assert {"prior", "loss", "distances"} <= set(GroupProfile.__dataclass_fields__)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [1, 4, 9, 20])
def test_the_partition_bound_is_below_the_optimum_and_above_no_information(seed, size):
    prior, loss, distances = instance(seed, n=9)
    best = optimal_mechanism(prior, loss, distances, 1.5)
    bound = partition_bound(prior, loss, distances, 1.5, size=size, tol=1e-8)
    assert bound <= best.loss * (1 + 1e-12)
    assert bound >= (prior * loss.min(axis=1)).sum() * (1 - 1e-9)
    if size >= 9:
        assert bound == pytest.approx(best.loss, rel=1e-5)


def test_the_partition_bound_agrees_with_linear_programs_of_the_parts():
    prior, loss, distances = instance(7, n=12)
    loss = np.concatenate([loss, loss[:, :3] + 0.1], axis=1)  # three dominated outputs
    bound = partition_bound(prior, loss, distances, 1.0, size=3, tol=1e-8)
    near = _parts(distances, 3)
    order = np.concatenate(near)
    problem, expected = Problem(prior, loss, distances, 1.0), []
    for position in (np.repeat(range(len(near)), [len(part) for part in near]), np.arange(12)):
        labels = np.empty(12, dtype=int)
        labels[order] = position % len(near)  # near states together, or dealt out
        expected.append(cluster_bound(problem, labels))
    expected = max(expected)
    assert bound == pytest.approx(expected, rel=1e-6)


def test_states_of_no_probability_do_not_count_in_the_bound():
    prior, loss, distances = instance(8, n=8)
    prior[:5] = 0
    prior /= prior.sum()
    best = optimal_mechanism(prior, loss, distances, 1.0)
    for size in (1, 3):
        assert partition_bound(prior, loss, distances, 1.0, size=size) <= best.loss


def test_bad_input_is_named():
    prior, loss, distances = instance(0)
    with pytest.raises(DephdpError, match="no family 'laplace'"):
        loss_curve(prior, loss, distances, GRID, "laplace")
    with pytest.raises(InvalidLoss, match="finite"):
        loss_curve(prior, loss * np.nan, distances, GRID, "tight")
    with pytest.raises(InvalidLoss):
        loss_curve(prior, loss[:, :3], distances, GRID, "exponential")
    with pytest.raises(InvalidBudget, match="does not exceed"):
        loss_curve(prior, loss, distances, [1.0, 1.0], "optimal")
    with pytest.raises(DephdpError, match="positive integer"):
        partition_bound(prior, loss, distances, 1.0, size=0)
