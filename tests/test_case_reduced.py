"""The reading of Table 7's reduced domains, and the search for the best division."""

import itertools
import math

import numpy as np
import pytest

from book.cases import reduced
from book.experiments import reduced_domains
from book.published import published
from dephdp import optimal_mechanism, optimal_mechanism_lp


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(4)
    places = rng.random((10, 2))
    return np.linalg.norm(places[:, None] - places, axis=2)


def test_farthest_points_start_at_the_first_and_are_farthest_in_turn(points):
    for count in range(1, 11):
        kept = reduced.farthest_points(points, count)
        assert len(set(kept)) == count and 0 in kept and (np.diff(kept) > 0).all()
        assert set(reduced.farthest_points(points, count - 1)) <= set(kept) if count > 1 else True
    three = set(reduced.farthest_points(points, 3))
    second = int(points[0].argmax())
    third = max(set(range(10)) - {0, second}, key=lambda x: min(points[x, 0], points[x, second]))
    assert three == {0, second, third}
    with pytest.raises(ValueError, match="cannot take 11 of 10"):
        reduced.farthest_points(points, 11)


def test_the_names_of_the_cases_fit_the_sizes_of_the_domains():
    assert reduced.parse("high G2 G6x8") == (("G2", 2, None), ("G6x8", 6, 8))
    full = {("FE", 2): 6, ("FE", 5): 7, ("EE", 2): 2, ("EE", 4): 2}
    sizes = {}
    for task, case in published("table7")[["task", "case"]].drop_duplicates().to_numpy():
        states = [count or full[task, k] for _, k, count in reduced.parse(case)]
        sizes.setdefault(task, []).append(math.prod(states))
    # what appendix D.4 says of them
    assert (min(sizes["FE"]), max(sizes["FE"])) == (42, 64)
    assert (min(sizes["EE"]), max(sizes["EE"])) == (16, 64)
    assert (min(sizes["CC"]), max(sizes["CC"])) == (36, 64)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 7.0])
def test_the_formula_for_a_line_is_the_optimum(epsilon):
    group = reduced.line_group((2, 1, 3), 0.6)
    formula = reduced.line_loss((2, 1, 3), 0.6, epsilon)
    reference = optimal_mechanism_lp(group.prior, group.loss, group.distances, epsilon)
    assert reference.loss == pytest.approx(formula, rel=1e-6)


def test_the_fitted_spacings_give_the_printed_digits():
    table = published("table7").query("task == 'FE'").pivot(index="case", columns="epsilon")
    assert len(reduced.line_cases()) == 5
    for case in reduced.line_cases():
        names = [name for name, _, _ in reduced.parse(case)]
        curves = [
            lambda b, name=name: reduced.line_loss(
                reduced.LINES[name], reduced.line_spacings()[name], b
            )
            for name in names
        ]
        printed = table["group_opt"].loc[case]
        ours = reduced.best_angle(*curves, printed.index.to_numpy())
        assert ours == pytest.approx(printed.to_numpy(), rel=1e-5)
        noise = [reduced.noise_curve(group) for group in reduced.line_groups(case)]
        printed = table["all_dpn"].loc[case]
        ours = reduced.best_angle(*noise, printed.index.to_numpy())
        assert ours == pytest.approx(printed.to_numpy(), rel=1e-5)


def test_a_joined_record_adds_losses_and_has_euclidean_distances():
    first, second = reduced.line_groups("native G2 G5")
    record = reduced.joined(first, second)
    rng = np.random.default_rng(0)
    for a, b, c, d in zip(*rng.integers(6, size=(4, 20)), strict=True):
        x, y = 7 * a + b, 7 * c + d
        assert record.loss[x, y] == pytest.approx(first.loss[a, c] + second.loss[b, d])
        apart = math.hypot(first.distances[a, c], second.distances[b, d])
        assert record.distances[x, y] == pytest.approx(apart)
    assert record.prior.sum() == pytest.approx(1)


@pytest.mark.parametrize("family", ["exponential+remap", "optimal"])
def test_the_search_finds_the_best_angle_and_bounds_all_divisions(family):
    first, second = reduced.line_groups("native G2 G5")
    epsilon = 4.0
    curves = [reduced_domains.Curve(group, family, 1e-6) for group in (first, second)]
    division = reduced_domains.Division(*curves, epsilon)
    found = division.on_grid()
    every = [
        sum(c.loss(b) for c, b in zip(curves, division.budgets(angle), strict=True))
        for angle in reduced.ANGLES
    ]
    assert found == min(every)
    loss, bound = division.off_grid(5e-3)
    assert loss <= found and (1 - 5e-3) * loss <= bound <= loss
    between = np.random.default_rng(1).uniform(0, np.pi / 2, 40)
    losses = [
        sum(c.loss(b) for c, b in zip(curves, division.budgets(float(angle)), strict=True))
        for angle in between
    ]
    assert min(losses) >= bound
    assert division.level() <= epsilon


def test_noise_curves_agree_with_the_package_and_do_not_rise():
    for group in reduced.line_groups("high G4x8 G6x8"):
        budgets = np.linspace(0.1, 10, 60)
        fast = reduced.noise_curve(group)(budgets)
        slow = reduced_domains.Curve(group, "exponential+remap", 1e-6)
        assert fast == pytest.approx([slow.loss(b) for b in budgets], rel=1e-9)
        assert (np.diff(fast) <= 1e-12).all()


@pytest.mark.parametrize("task", ["FE", "EE", "CC"])
def test_a_sampled_case_has_the_states_and_losses_of_its_sample(task):
    sample = reduced.SAMPLES[task].draw(np.random.default_rng(2))
    case = published("table7").query("task == @task")["case"].iloc[0]
    for (_, k, count), group in zip(
        reduced.parse(case), reduced.sampled_groups(sample, case), strict=True
    ):
        profile = sample.profiles[k - 1]
        n = count or len(profile.distances)
        assert group.loss.shape == (n, n) and group.prior == pytest.approx(np.full(n, 1 / n))
        kept = reduced.farthest_points(profile.distances, n)
        for i, j in itertools.product(range(n), repeat=2):
            expected = sample.coefficients[k - 1] * profile.loss[kept[i], kept[j]]
            assert group.loss[i, j] == pytest.approx(expected)


def test_the_best_product_is_no_better_than_the_best_record():
    row = reduced_domains.reduced_domain("FE", "native G2 G5", "fitted", 2.0)[0]
    assert row["full_bound"] <= row["full_opt"] <= row["group_opt"] <= row["all_dpn"]
    assert row["group_exact_bound"] <= row["group_exact"] <= row["group_opt"]
    for name in ("full", "group", "dpn", "calibrated", "tight"):
        assert row[f"{name}_level"] <= 2.0
    record = reduced.joined(*reduced.line_groups("native G2 G5"))
    again = optimal_mechanism(record.prior, record.loss, record.distances, 2.0, tol=1e-5)
    assert again.lower_bound <= row["full_opt"] and row["full_bound"] <= again.loss
