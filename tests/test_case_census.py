"""The reading of the paper's Case I, and the tables it is compared with."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from book.cases import census
from book.published import TABLES, published
from dephdp import Attribute, Domain, loss_curve, optimal_mechanism_lp, split_budget
from dephdp.datasets import load_adult
from dephdp.group import Group
from dephdp.losses import profile_group
from dephdp.tasks import FrequencyEstimation


@pytest.fixture(scope="module")
def sample():
    return census.CensusSample.draw(np.random.default_rng(0))


def test_records_are_numbers_and_ranks_of_labels():
    records = census.census_records()
    assert records.shape == (30162, 15) and np.isfinite(records.to_numpy()).all()
    adult = load_adult().query("split == 'train'").drop(columns="split").dropna()
    assert (records["age"].to_numpy() == adult["age"].to_numpy(float)).all()
    for name in ("education", "native_country", "income"):
        labels = adult[name].astype(str).to_numpy()
        assert (np.unique(labels)[records[name].astype(int)] == labels).all()


def test_the_groups_partition_the_attributes():
    named = [name for group in census.CENSUS_GROUPS for name in group]
    assert sorted(named) == sorted(census.census_records().columns)


def test_a_sample_holds_different_records(sample):
    assert len(sample.records) == 300 and sample.records.index.is_unique


def test_distances_are_euclidean_between_z_scores(sample):
    everyone = census.census_records()
    scores = (sample.records - everyone.mean()) / everyone.std(ddof=0)
    for names, profile in zip(census.CENSUS_GROUPS, sample.profiles, strict=True):
        states = scores[list(names)].to_numpy()[
            [
                int(np.flatnonzero(profile.group.states(sample.codes) == k)[0])
                for k in range(profile.group.size)
            ]
        ]
        assert np.allclose(profile.distances, cdist(states, states), atol=1e-12)


def test_own_scores_have_the_standard_deviations_of_the_sample(sample):
    own = census.CensusSample(sample.records, own_scores=True)
    for k, (name,) in ((3, census.CENSUS_GROUPS[3]), (5, census.CENSUS_GROUPS[5])):
        ratio = census.census_records()[name].std(ddof=0) / sample.records[name].std(ddof=0)
        assert np.allclose(own.profiles[k].distances, ratio * sample.profiles[k].distances)


def test_the_prior_is_uniform_and_the_loss_is_that_of_one_replaced_record(sample):
    profile = sample.profiles[2]
    assert np.allclose(profile.prior, 1 / profile.group.size)
    owner = profile.group.states(sample.codes)
    table = sample.records.to_numpy().copy()
    columns = list(profile.group.columns)
    for row, other in ((0, 1), (5, 200), (17, 18)):
        changed = table.copy()
        changed[row, columns] = table[other, columns]
        moved = 0.0
        for before, after in zip(table.T, changed.T, strict=True):
            values = np.unique(before)
            moved += sum(((before == v).mean() - (after == v).mean()) ** 2 for v in values)
        assert np.isclose(1e5 * moved, profile.loss[owner[row], owner[other]], rtol=1e-12)


def test_the_even_split_comes_out_as_published(sample):
    table = published("table1").query("case == 'I'").set_index(["method", "epsilon"])["loss"]
    for epsilon in (1, 6):
        share = split_budget(epsilon, 6, 2)[:1]
        for method, family in (("SPL+DPN", "exponential"), ("SPL+RMP", "exponential+remap")):
            curves = [
                loss_curve(p.prior, p.loss, p.distances, share, family) for p in sample.profiles
            ]
            loss = sum(curve.losses[0] for curve in curves)
            # one sample; the standard deviation over samples is below one per cent
            assert loss == pytest.approx(table[method, epsilon], rel=0.03)


def test_no_output_escapes_the_bound():
    rng = np.random.default_rng(3)
    domain = Domain([Attribute.numeric("a", values=range(4)), Attribute.nominal("b", "xyz")])
    codes = np.column_stack([rng.integers(0, 4, 9), rng.integers(0, 3, 9)])
    task = FrequencyEstimation(domain, codes)
    unit = task.loss_of_one_attribute
    profile = profile_group(task, Group.observed(domain, ["a", "b"], codes), prior="uniform")
    everything = domain.unravel(np.arange(12))
    loss = unit * (profile.group.codes[:, None] != everything).sum(axis=2)
    for epsilon in (0.5, 2.0, 5.0):
        best = optimal_mechanism_lp(profile.prior, loss, profile.distances, epsilon).loss
        bounds = [
            census.bound_for_any_output(profile, unit, epsilon, size=size, tol=1e-6)
            for size in (1, 3, 20)
        ]
        assert 0 <= bounds[0] <= bounds[1] <= bounds[2] <= best * (1 + 1e-6)
        assert bounds[2] > 0.5 * best


def test_the_bound_is_the_optimum_of_one_attribute_in_one_part():
    sample = census.CensusSample.draw(np.random.default_rng(1), size=40)
    profile = sample.profiles[4]
    unit = sample.task.loss_of_one_attribute
    best = optimal_mechanism_lp(profile.prior, profile.loss, profile.distances, 1.5).loss
    bound = census.bound_for_any_output(profile, unit, 1.5, size=40, tol=1e-7)
    assert bound == pytest.approx(best, rel=1e-5) and bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("table", ["table1", "table7"])
def test_published_tables_name_their_source(table):
    first = (TABLES / f"{table}.csv").read_text().splitlines()[0]
    assert first.startswith("#") and "arXiv 2610.05561v1" in first
    found = published(table)
    assert not found.isna().to_numpy().any()
    assert found.duplicated(subset=list(found.columns[:3])).sum() == 0


def test_published_losses_fall_with_the_budget():
    for _, rows in published("table1").query("case == 'I'").groupby("method"):
        assert rows["epsilon"].tolist() == list(range(1, 11))
        assert (np.diff(rows["loss"]) < 0).all()
