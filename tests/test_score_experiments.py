"""The diagnostics of the case studies: each computed by a second route."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from book.experiments import case_samples
from book.experiments.certified_gain import certified_gain
from book.experiments.correlation import correlation, fisher_interval, partial_correlation
from book.experiments.even_split import even_split
from book.experiments.group_scores import group_scores
from book.experiments.score_and_gain import GENERATORS, STATES, draw_instance, score_and_gain
from book.experiments.score_stability import (
    SCORES,
    held_out_score,
    split_pairs,
    split_states,
    stability,
)
from book.experiments.surrogate_fit import CANDIDATES, literal_task, moved_states, surrogate_fit
from book.published import TABLES, published
from dephdp import loss_curve, optimal_mechanism_lp, split_budget


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    return {case: study.draw(rng, size=40) for case, study in case_samples.CASES.items()}


def points_and_losses(rng, n=12):
    points = rng.random((n, 2))
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    return distances, rng.random((n, n)) + distances**2


# correlations


def test_correlations_are_those_of_scipy(rng):
    x = rng.normal(size=60)
    y = x + rng.normal(size=60)
    for ranks, reference in ((False, pearsonr), (True, spearmanr)):
        found = correlation(x, y, rng, ranks=ranks)
        assert found[0] == pytest.approx(reference(x, y).statistic, abs=1e-12)
        assert found[1] < found[0] < found[2]
    expected = pearsonr(x, y).confidence_interval(0.9)
    assert fisher_interval(pearsonr(x, y).statistic, 60, 0.9) == pytest.approx(expected)


def test_intervals_cover_the_true_correlation(rng):
    truth, runs = 0.5, 400
    resampled = fisher = 0
    for _ in range(runs):
        x, z = rng.normal(size=(2, 80))
        value, low, high = correlation(x, truth * x + np.sqrt(0.75) * z, rng, resamples=400)
        resampled += low <= truth <= high
        low, high = fisher_interval(value, 80)
        fisher += low <= truth <= high
    error = np.sqrt(0.95 * 0.05 / runs)
    assert abs(fisher / runs - 0.95) < 4 * error
    assert resampled / runs > 0.93 - 4 * error  # percentiles are a little too close


def test_resampled_and_fisher_intervals_agree_on_normal_pairs(rng):
    x = rng.normal(size=400)
    y = -0.3 * x + rng.normal(size=400)
    value, low, high = correlation(x, y, rng, resamples=4000)
    assert np.allclose([low, high], fisher_interval(value, 400), atol=0.02)


def test_partial_correlation_takes_out_the_third(rng):
    third = rng.random(300)
    x, y = third**2 + 0.1 * rng.random(300), -(third**2) + 0.1 * rng.random(300)
    assert correlation(x, y, rng)[0] < -0.9
    assert abs(partial_correlation(x, y, third)) < 0.25


def test_correlations_of_nothing_are_refused(rng):
    with pytest.raises(ValueError, match="four pairs"):
        correlation([1, 2, 3], [1, 2, 3], rng)
    with pytest.raises(ValueError, match="does not vary"):
        correlation([1, 1, 1, 1], [1, 2, 3, 4], rng)
    with pytest.raises(ValueError, match="four pairs"):
        fisher_interval(0.1, 3)


# held-out scores


def test_pairs_are_held_out_at_all_distances_and_with_their_reverse(rng):
    distances, _ = points_and_losses(rng, 40)
    training, held_out = split_pairs(distances, rng)
    off = ~np.eye(40, dtype=bool)
    assert (training ^ held_out == off).all()
    assert (held_out == held_out.T).all()
    upper = np.triu(off)
    order = np.argsort(distances[upper])
    strata = held_out[upper][order].reshape(-1, 10).sum(axis=1)
    assert (strata == 3).all()


def test_every_pair_is_held_out_equally_often(rng):
    distances = np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))
    runs = 4000
    often = sum(split_pairs(distances, rng)[1].astype(int) for _ in range(runs)) / runs
    share = often[~np.eye(6, dtype=bool)]
    # 15 pairs: three of the first ten and 1.5, rounded to two, of the last five
    assert share.mean() == pytest.approx(5 / 15)
    assert (share > 0.25).all() and (share < 0.45).all()


def test_states_are_held_out_with_all_their_pairs(rng):
    training, held_out = split_states(np.zeros((20, 20)), rng)
    away = held_out.any(axis=1)
    assert away.sum() == 6
    assert not training[away].any() and not training[:, away].any()
    assert training.sum() == 14 * 13 and held_out.sum() == 6 * 5


def test_the_score_of_all_pairs_is_the_score(rng):
    distances, loss = points_and_losses(rng)
    off = ~np.eye(len(loss), dtype=bool)
    for name, score in SCORES.items():
        again = held_out_score(name, loss, distances, off, off)
        assert again == pytest.approx(score(loss, distances), abs=1e-12)


def test_a_held_out_score_is_that_of_the_fitted_function(rng):
    distances, loss = points_and_losses(rng)
    training, held_out = split_pairs(distances, rng)
    slope, level = np.polyfit(distances[training] ** 2, loss[training], 1)
    assert slope > 0
    residual = loss[held_out] - slope * distances[held_out] ** 2 - level
    expected = 1 - np.sqrt(np.mean(residual**2)) / loss[held_out].std()
    assert held_out_score("mse", loss, distances, training, held_out) == pytest.approx(expected)


def test_losses_that_the_fit_cannot_know_score_below_zero():
    distances = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
    off = ~np.eye(4, dtype=bool)
    near = off & (distances < 2)
    loss = np.where(near, distances, 10.0)
    loss[0, 3] = 11.0
    assert held_out_score("radial", loss, distances, near, off & ~near) < 0
    loss[0, 3] = 10.0
    assert held_out_score("radial", loss, distances, near, off & ~near) == -np.inf
    assert held_out_score("mse", np.ones((4, 4)), distances, near, off & ~near) == 1


def test_the_study_of_stability_leaves_out_binary_groups(monkeypatch, samples):
    monkeypatch.setattr("book.experiments.score_stability.draw_sample", lambda c, s: samples[c])
    rows = stability("III", 0)
    binary = {k for k, p in enumerate(samples["III"].profiles, start=1) if p.group.size == 2}
    assert binary and not binary & {row["group"] for row in rows}
    for row in rows:
        profile = samples["III"].profiles[row["group"] - 1]
        assert row["original"] == SCORES[row["score"]](profile.loss, profile.distances)
        assert 0 <= row["agreement"] <= 1 and row["mae"] >= abs(row["held_out"] - row["original"])


# candidates of the surrogate


@pytest.mark.parametrize("case", ["I", "II", "III"])
def test_literal_tasks_have_the_losses_of_the_fast_ones(case, samples, rng):
    task = samples[case].task
    literal = literal_task(task)
    rows = rng.integers(40, size=30)
    before, after = task.reference[rows], task.reference[rng.integers(40, size=30)]
    assert np.allclose(literal.losses(rows, before, after), task.losses(rows, before, after))


def test_no_other_task_has_a_literal_form():
    with pytest.raises(TypeError, match="no literal form"):
        literal_task("task")


def test_moved_states_move_every_record_of_a_state(samples):
    sample = samples["I"]
    groups = [p.group for p in sample.profiles]
    whole, isolated = moved_states(sample.task, groups, 60, np.random.default_rng(1))
    assert np.allclose(whole, isolated.sum(axis=1))
    again, expected = np.random.default_rng(1), []
    states = groups[1].states(sample.task.reference)
    counts = np.bincount(states, minlength=groups[1].size)
    for _ in range(60):
        drawn = [again.integers(group.size, size=2) for group in groups]
        before, after = drawn[1]
        # all of the first state's records join the second: n/N leaves one level for another
        expected.append(0 if before == after else 2e5 * (counts[before] / 40) ** 2)
    assert np.allclose(isolated[:, 1], expected)


def test_the_surrogate_of_hamming_losses_is_their_sum(monkeypatch, samples):
    monkeypatch.setattr("book.experiments.surrogate_fit.draw_sample", lambda c, s: samples[c])
    for candidates in CANDIDATES:
        (row,) = surrogate_fit("I", 0, candidates)
        assert row["min_linear"] == pytest.approx(1) and row["max_linear"] == pytest.approx(1)
        assert row["sum_of_groups"] == pytest.approx(1) and row["second_order"] < 1e-9


# scores, gains and splits


def test_generators_change_one_thing_each():
    drawn = {g: draw_instance(g, np.random.default_rng(3)) for g in GENERATORS}
    (d, stated, share), (_, scaled, _), (_, free, _) = drawn.values()
    off = ~np.eye(STATES, dtype=bool)
    replaced = np.isclose(stated, d)
    assert replaced.mean() == pytest.approx(share, abs=2 / STATES**2)
    assert np.allclose(scaled[replaced], d[replaced] / (2 * d[off].mean()))
    assert (scaled[~replaced] == stated[~replaced]).all()
    assert (free[off] == scaled[off]).all() and not np.diag(free).any()


def test_the_optimum_of_an_instance_is_that_of_the_reference_program():
    row = score_and_gain("one scale", 0)[0]
    rng = np.random.default_rng([1, 0])
    distances, loss, _ = draw_instance("one scale", rng)
    prior = np.full(STATES, 1 / STATES)
    best = optimal_mechanism_lp(prior, loss, distances, 1.0).loss
    assert row["lower_bound"] <= best * (1 + 1e-7) and best <= row["optimal"] * (1 + 1e-7)
    weights = np.exp(-distances / 2)
    channel = weights / weights.sum(axis=1, keepdims=True)
    assert row["exponential"] == pytest.approx(np.sum(channel * loss) / STATES)


def test_group_scores_and_splits_are_those_of_the_sample(monkeypatch, samples):
    for module in ("group_scores", "even_split", "certified_gain"):
        monkeypatch.setattr(f"book.experiments.{module}.draw_sample", lambda c, s: samples[c])
    profiles = samples["II"].profiles
    ratios = []
    for p in profiles:
        pairs = [(i, j) for i in range(p.group.size) for j in range(p.group.size) if i != j]
        ratios.append(np.mean([p.loss[i, j] / p.distances[i, j] for i, j in pairs]))
    scores = group_scores("II", 0)
    assert np.allclose([row["loss_per_distance"] for row in scores], ratios)
    assert [row["mse"] <= row["radial"] for row in scores] == [True] * len(profiles)

    rows = even_split("II", 0, "exponential+remap")
    for epsilon in (1.0, 10.0):
        mine = [row for row in rows if row["epsilon"] == epsilon]
        share = split_budget(epsilon, len(profiles), 2)[:1]
        total = sum(
            beta * loss_curve(p.prior, p.loss, p.distances, share, "exponential+remap").losses[0]
            for beta, p in zip(samples["II"].coefficients, profiles, strict=True)
        )
        assert mine[0]["even"] == pytest.approx(total)
        assert mine[0]["lower_bound"] <= mine[0]["best"] <= mine[0]["even"]
        assert np.linalg.norm([row["budget"] for row in mine]) <= epsilon * (1 + 1e-9)

    (gain,) = certified_gain("II", 0, 2, 4.0)
    best = optimal_mechanism_lp(profiles[1].prior, profiles[1].loss, profiles[1].distances, 2.0)
    assert gain["lower_bound"] <= best.loss * (1 + 1e-7)
    assert best.loss <= gain["found"] * (1 + 1e-7) <= gain["exponential"] * (1 + 1e-6)


# the paper's tables


@pytest.mark.parametrize("table", ["table2", "table5", "figure5"])
def test_published_tables_name_their_source(table):
    first = (TABLES / f"{table}.csv").read_text().splitlines()[0]
    assert first.startswith("#") and "arXiv 2610.05561v1" in first
    assert not published(table).isna().to_numpy().any()


def test_the_published_gap_is_the_error_over_the_score():
    table = published("table5")
    assert np.allclose(100 * table["mae"] / table["original"], table["gap"], atol=0.35)
