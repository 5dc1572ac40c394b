"""The reading of the paper's Case II."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from book.cases import wine
from book.experiments import wine as tables
from book.published import published
from dephdp import loss_curve, split_budget
from dephdp.datasets import load_wine_red


@pytest.fixture(scope="module")
def sample():
    return wine.WineSample.draw(np.random.default_rng(0))


def labels(table):
    """The five labels of every wine, one feature and one wine after the other."""
    acidity = ["fixed_acidity", "volatile_acidity", "citric_acid"]
    sulfur = ["free_sulfur_dioxide", "total_sulfur_dioxide"]
    composites = [
        [sum(row) for row in table.to_numpy()],
        [sum(row[acidity]) / 3 for _, row in table.iterrows()],
        [(row["residual_sugar"] + row["alcohol"]) / 2 for _, row in table.iterrows()],
        [-max(row[sulfur]) for _, row in table.iterrows()],
        [(row["chlorides"] + row["density"] + row["sulphates"]) / 3 for _, row in table.iterrows()],
    ]
    found = []
    for values in composites:
        low, high = min(values), max(values)
        shares = [(value - low) / (high - low) for value in values]
        found.append([min(max(int(4 * share + 1 + 0.5), 1), 5) for share in shares])
    return np.array(found)


def test_the_groups_partition_the_features():
    named = [name for group in wine.WINE_GROUPS for name in group]
    assert sorted(named) == sorted(wine.wine_records().columns)
    assert len(wine.WINE_COEFFICIENTS) == len(wine.WINE_GROUPS)


def test_a_sample_is_a_bootstrap(sample):
    assert len(sample.records) == 150 and not sample.records.index.is_unique
    known = load_wine_red().drop(columns="quality")
    assert (known.loc[sample.records.index] == sample.records).all(axis=None)
    distinct = len(sample.records.drop_duplicates())
    assert all(profile.group.size <= distinct for profile in sample.profiles)


def test_distances_are_euclidean_between_z_scores(sample):
    for own, reference in ((True, sample.records), (False, wine.wine_records())):
        drawn = wine.WineSample(sample.records, own_scores=own)
        scores = (sample.records - reference.mean()) / reference.std(ddof=0)
        for k in (1, 2):
            group = drawn.profile(wine.WINE_GROUPS[k]).group
            first = [np.flatnonzero(group.states(sample.codes) == i)[0] for i in range(group.size)]
            points = scores[list(wine.WINE_GROUPS[k])].to_numpy()[first]
            found = drawn.profile(wine.WINE_GROUPS[k]).distances
            np.testing.assert_allclose(found, cdist(points, points), atol=1e-12)


def test_the_loss_is_that_of_one_replaced_wine():
    small = wine.WineSample.draw(np.random.default_rng(4), size=14)
    table = small.records.reset_index(drop=True)
    before = labels(table)
    for names, profile in zip(wine.WINE_GROUPS, small.profiles, strict=True):
        np.testing.assert_allclose(profile.prior, 1 / profile.group.size)
        owner = profile.group.states(small.codes)
        expected = np.zeros_like(profile.loss)
        for row in range(len(table)):
            for state in range(profile.group.size):
                other = int(np.flatnonzero(owner == state)[0])
                changed = table.copy()
                changed.loc[row, list(names)] = table.loc[other, list(names)]
                after = labels(changed)
                share = np.abs(after - before).sum() / after.sum()
                expected[owner[row], state] += 1e4 * share / (owner == owner[row]).sum()
        np.testing.assert_allclose(profile.loss, expected, rtol=1e-12, atol=1e-9)
        assert profile.loss.max() > 0


def test_the_even_split_comes_out_near_the_published_one():
    """By the formulas, without the package: the mean of eight samples, which scatter by 14 %."""
    table = published("table1").query("case == 'II'").set_index(["method", "epsilon"])["loss"]
    rng = np.random.default_rng(1)
    drawn = [wine.WineSample.draw(rng) for _ in range(8)]
    for epsilon in (1, 6):
        plain, remapped = [], []
        for one in drawn:
            losses = np.zeros(2)
            for beta, p in zip(wine.WINE_COEFFICIENTS, one.profiles, strict=True):
                weights = np.exp(-epsilon / 4 * p.distances)  # ε/2 over the root of four groups
                joint = p.prior[:, None] * weights / weights.sum(axis=1, keepdims=True)
                losses += beta * np.array(
                    [(joint * p.loss).sum(), (joint.T @ p.loss).min(axis=1).sum()]
                )
            plain.append(losses[0])
            remapped.append(losses[1])
        for method, found in (("SPL+DPN", plain), ("SPL+RMP", remapped)):
            assert np.mean(found) == pytest.approx(table[method, epsilon], rel=0.2)
            assert np.std(found, ddof=1) < 0.3 * np.mean(found)


def test_the_tables_rows_are_in_order():
    """Against the package's certified curves, and against each other."""
    sample = tables.wine_sample(3)
    rows = tables.noise_rows(3)
    assert [row["epsilon"] for row in rows] == list(range(1, 11))
    for row in (rows[0], rows[5]):
        share = split_budget(row["epsilon"], 4, 2)[:1]
        for noise, family in (("DPN", "exponential"), ("RMP", "exponential+remap")):
            curves = [
                loss_curve(p.prior, p.loss, p.distances, share, family) for p in sample.profiles
            ]
            even = sum(b * c.losses[0] for b, c in zip(wine.WINE_COEFFICIENTS, curves, strict=True))
            assert row[f"SPL+{noise}"] == pytest.approx(even, rel=1e-9)
            assert row[f"ALC+{noise} bound"] <= row[f"ALC+{noise}"] <= even * (1 + 1e-9)
    (row,) = tables.optimum_rows(3, 3, 1.0)
    assert row["truncated"] < row["bound"] <= row["optimal"] <= row["tight+remap"] * 1.02
    assert row["tight+remap"] <= row["calibrated+remap"] <= row["exponential+remap"]
    assert row["level"] <= 1.0


def test_refitted_coefficients_stand_beside_their_group():
    rows = tables.group_rows(3)
    assert [row["states"] for row in rows] == [p.group.size for p in tables.wine_sample(3).profiles]
    for row in rows:
        assert 0 <= row["mse"] <= row["radial"] <= 1
        assert min(row["equal"], row["uniform"], row["pilot"]) >= 0
    assert rows[2]["equal"] == pytest.approx(1, abs=0.1)
