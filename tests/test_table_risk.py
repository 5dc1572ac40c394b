"""Table-level risk against enumeration, scipy's Poisson binomial, pandas and simulation."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import drha

NOISES = {
    "laplace": drha.laplace(0.7),
    "gaussian": drha.gaussian(0.9, delta=1e-5),
    "geometric": drha.geometric(0.4),
    "discrete gaussian": drha.discrete_gaussian(sigma=1.1),
}
MECHANISMS = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(2)
    n = 400
    return pd.DataFrame(
        {
            "age": rng.integers(0, 9, n),
            "sex": rng.choice(["f", "m"], n),
            "area": pd.Categorical(rng.choice(["north", "south"], n), ["south", "north", "west"]),
            "ill": rng.choice(["no", "flu", "hiv"], n, p=[0.8, 0.15, 0.05]),
            "rich": rng.choice([False, True], n, p=[0.85, 0.15]),
        }
    )


@pytest.fixture(scope="module")
def table(frame):
    return drha.FrequencyTable.from_frame(frame, ["age", "sex", "area"], "ill")


@MECHANISMS
def test_averages_are_equation_12(table, noise):
    risk = drha.table_risk(table, noise)
    n = table.sizes
    for kind in ("exact", "refined"):
        rho = drha.local_risk(table, noise, kind)
        assert risk.average(kind) == pytest.approx(rho.sum() / len(n), rel=1e-13)
        assert risk.average(kind, weighted=True) == pytest.approx(
            (n * rho).sum() / n.sum(), rel=1e-13
        )
    assert risk.disclosed_records == pytest.approx((risk.refined * n).sum(), rel=1e-13)
    many = drha.average_risk(np.stack([risk.exact, risk.refined]), n)
    assert many[1] == pytest.approx(risk.average("refined", weighted=True), rel=1e-13)
    assert str(table.n_cells) in repr(risk)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_number_of_disclosed_cells_equals_enumeration(risk):
    risk = np.array(risk)
    pmf = np.zeros(len(risk) + 1)
    for pattern in itertools.product([0, 1], repeat=len(risk)):
        pmf[sum(pattern)] += np.prod(np.where(pattern, risk, 1 - risk))
    disclosed = drha.DisclosedCells(risk)
    np.testing.assert_allclose(disclosed.pmf, pmf, rtol=1e-12, atol=1e-15)
    assert disclosed.at_least_one == pytest.approx(1 - pmf[0], abs=1e-14)
    numbers = np.arange(len(pmf))
    assert disclosed.mean == pytest.approx(numbers @ pmf, abs=1e-13)
    assert disclosed.variance == pytest.approx(numbers**2 @ pmf - (numbers @ pmf) ** 2, abs=1e-12)


@pytest.mark.parametrize("cells", [1, 2, 33, 700])
def test_number_of_disclosed_cells_equals_scipy(cells):
    risk = np.random.default_rng(cells).beta(0.4, 2.0, cells)
    disclosed = drha.DisclosedCells(risk)
    pmf = stats.poisson_binom(risk).pmf(np.arange(cells + 1))
    np.testing.assert_allclose(disclosed.pmf, pmf, rtol=1e-9, atol=1e-15)
    for level in (0.01, 0.5, 0.99):
        assert disclosed.quantile(level) == np.argmax(np.cumsum(pmf) >= level)
    assert str(cells) in repr(disclosed)


def test_extreme_numbers_of_disclosed_cells():
    assert drha.DisclosedCells(np.full(3, 1e-300)).at_least_one == pytest.approx(3e-300, rel=1e-12)
    sure = drha.DisclosedCells([1.0, 1.0, 0.0])
    assert sure.at_least_one == 1.0
    np.testing.assert_array_equal(sure.pmf, [0, 0, 1, 0])
    many = drha.DisclosedCells(np.full(50_000, 0.3))
    k = np.arange(50_001)
    np.testing.assert_allclose(many.pmf, stats.binom.pmf(k, 50_000, 0.3), rtol=1e-8, atol=1e-25)


@MECHANISMS
def test_simulated_releases_of_a_table(table, noise):
    draws, rng = 20_000, np.random.default_rng(9)
    true = table.counts
    released = noise.release(np.broadcast_to(true, (draws, *true.shape)), rng) > 0
    hit = (released.sum(axis=2) == 1) & (released & (true > 0)).any(axis=2)
    people = (hit[:, :, None] * released * true).sum(axis=(1, 2))
    risk = drha.table_risk(table, noise)
    cells = hit.sum(axis=1)
    for value, exact in (
        (cells, risk.disclosed_cells.mean),
        (people, risk.disclosed_records),
        (cells > np.median(cells), risk.disclosed_cells.pmf[int(np.median(cells)) + 1 :].sum()),
    ):
        error = value.std(ddof=1) / math.sqrt(draws)
        assert abs(value.mean() - exact) < 4 * error
    assert cells.var(ddof=1) == pytest.approx(risk.disclosed_cells.variance, rel=0.05)


def test_subgroups_are_tables_of_their_own(frame, table):
    noise = NOISES["laplace"]
    risk = drha.table_risk(table, noise)
    for names in ("sex", "area", ["sex", "age"]):
        by = risk.by(names)
        assert by["cells"].sum() == table.n_cells
        assert by["records"].sum() == table.n_records
        keys = [names] if isinstance(names, str) else names
        for value, row in by.iterrows():
            values = value if isinstance(value, tuple) else (value,)
            mask = np.all([table.labels[k] == v for k, v in zip(keys, values, strict=True)], axis=0)
            part = drha.table_risk(drha.FrequencyTable.from_counts(table.counts[mask]), noise)
            assert row["over cells"] == pytest.approx(part.average(), rel=1e-12)
            assert row["over records"] == pytest.approx(part.average(weighted=True), rel=1e-12)
            assert row["share disclosed"] == pytest.approx(
                part.average("refined", weighted=True), rel=1e-12
            )
            assert row["largest"] == part.exact.max()
            assert row["at least one"] == pytest.approx(
                part.disclosed_cells.at_least_one, rel=1e-12
            )


def test_worst_cells(table):
    risk = drha.table_risk(table, NOISES["laplace"])
    worst = risk.worst(5)
    assert worst["exact"].tolist() == sorted(risk.exact, reverse=True)[:5]
    assert worst.index.names == ["age", "sex", "area"]
    assert len(risk.worst(10**6)) == table.n_cells


@MECHANISMS
def test_several_sensitive_attributes(frame, noise):
    both = drha.SensitiveTables.from_frame(frame, ["age", "sex", "area"], ["ill", "rich"])
    other = drha.laplace(2.0)
    grouped = frame.groupby(["age", "sex", "area"], observed=True)
    distinct = grouped[["ill", "rich"]].nunique().to_numpy()
    np.testing.assert_array_equal(both.homogeneous, distinct == 1)
    kinds = (distinct == 1).sum(axis=1)
    np.testing.assert_array_equal(both.homogeneity, kinds)  # with two attributes the number itself
    assert both.sensitive == ("ill", "rich")
    assert str(np.count_nonzero(kinds == 2)) in repr(both)
    risk = both.local_risk([noise, other])
    np.testing.assert_array_equal(risk[:, 0], drha.local_risk(both.tables[0], noise))
    np.testing.assert_array_equal(
        both.local_risk(noise)[:, 1], drha.local_risk(both.tables[1], noise)
    )
    number = both.number_disclosed([noise, other])
    np.testing.assert_allclose(number.sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(number[:, 2], risk.prod(axis=1), rtol=1e-13)
    np.testing.assert_allclose(number[:, 0], (1 - risk).prod(axis=1), rtol=1e-13)
    np.testing.assert_allclose(number @ [0, 1, 2], risk.sum(axis=1), rtol=1e-12)


def test_three_attributes_and_declared_levels(frame):
    frame = frame.assign(constant="same")
    three = drha.SensitiveTables.from_frame(
        frame, ["age"], ["ill", "rich", "constant"], levels={"constant": ["same", "other"]}
    )
    assert three.tables[2].n_levels == 2
    assert three.homogeneous[:, 2].all()
    assert set(three.homogeneity) <= {drha.Homogeneity.PARTIALLY_HOMOGENEOUS, 2}
    number = three.number_disclosed(NOISES["gaussian"])
    risk = three.local_risk(NOISES["gaussian"])
    for j in range(4):
        total = sum(
            np.prod(np.where(pattern, risk, 1 - risk), axis=1)
            for pattern in itertools.product([False, True], repeat=3)
            if sum(pattern) == j
        )
        np.testing.assert_allclose(number[:, j], total, rtol=1e-12)


@MECHANISMS
@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (2, 2, 2), (1, 4)])
def test_joint_table_equals_enumeration_of_zero_patterns(noise, shape):
    rng = np.random.default_rng(len(shape))
    cells = rng.poisson(0.7, (12, *shape))
    cells[0] = 0
    for attribute, levels in enumerate(shape):
        exact, refined = np.zeros(12), np.zeros(12)
        for i, counts in enumerate(cells):
            u = noise.vanishing(counts)
            others = tuple(axis for axis in range(len(shape)) if axis != attribute)
            records = counts.sum(axis=others)
            for pattern in itertools.product([False, True], repeat=counts.size):
                survives = np.reshape(pattern, shape)
                seen = survives.any(axis=others)
                if seen.sum() == 1 and records[seen][0] > 0:
                    chance = np.prod(np.where(survives, 1 - u, u))
                    exact[i] += chance
                    refined[i] += chance * records[seen][0] / records.sum()
        assert levels == len(records)
        ours = drha.joint_risk(cells, noise, attribute)
        np.testing.assert_allclose(ours, exact, rtol=1e-12, atol=1e-15)
        ours = drha.joint_risk(cells, noise, attribute, "refined")
        np.testing.assert_allclose(ours, refined, rtol=1e-12, atol=1e-15)
    flat = cells.reshape(12, -1, 1)
    np.testing.assert_allclose(
        drha.joint_risk(flat, noise, 0), drha.local_risk(flat[..., 0], noise), rtol=1e-12
    )


def test_bad_joint_tables_are_refused():
    noise = NOISES["laplace"]
    with pytest.raises(drha.InvalidCounts, match="cross fewer"):
        drha.joint_risk([[1, 2]], noise, 0)
    with pytest.raises(drha.InvalidCounts, match="-1"):
        drha.joint_risk([[[1, -1]]], noise, 0)
    with pytest.raises(drha.InvalidTable, match="attribute 2"):
        drha.joint_risk(np.ones((3, 2, 2), int), noise, 2)
    with pytest.raises(drha.InvalidNoise):
        drha.joint_risk(np.ones((3, 2, 2), int), 1.0, 0)
    with pytest.raises(drha.DrhaError, match="kind"):
        drha.joint_risk(np.ones((3, 2, 2), int), noise, 0, "paper_bound")


def test_bad_input_is_refused(frame, table):
    with pytest.raises(drha.InvalidTable, match="FrequencyTable"):
        drha.table_risk(table.counts, NOISES["laplace"])
    risk = drha.table_risk(table, NOISES["laplace"])
    with pytest.raises(drha.InvalidTable, match="'race'"):
        risk.by("race")
    with pytest.raises(drha.DrhaError, match="kind"):
        risk.average("paper_bound")
    with pytest.raises(drha.DrhaError, match="level"):
        risk.disclosed_cells.quantile(1.0)
    for bad in ([], 0.3, [0.2, 1.5], [math.nan], ["a"], [-0.1]):
        with pytest.raises(drha.DrhaError, match="risk"):
            drha.average_risk(bad)
        with pytest.raises(drha.DrhaError, match="risk"):
            drha.DisclosedCells(bad)
    with pytest.raises(drha.DrhaError, match="match"):
        drha.average_risk([0.1, 0.2], [3])
    with pytest.raises(drha.InvalidCounts, match="records"):
        drha.average_risk([0.1, 0.2], [3, 0])
    with pytest.raises(drha.DrhaError, match="each cell"):
        drha.DisclosedCells([[0.1, 0.2]])
    from_frame = drha.SensitiveTables.from_frame
    with pytest.raises(drha.InvalidTable, match="list"):
        from_frame(frame, ["age"], "ill")
    with pytest.raises(drha.InvalidTable, match="twice"):
        from_frame(frame, ["age"], ["ill", "ill"])
    with pytest.raises(drha.InvalidTable, match="no table"):
        from_frame(frame, ["age"], [])
    with pytest.raises(drha.InvalidTable, match="not sensitive"):
        from_frame(frame, ["age"], ["ill"], levels={"rich": [False, True]})
    with pytest.raises(drha.InvalidTable, match="different"):
        drha.SensitiveTables(
            (table, drha.FrequencyTable.from_frame(frame[:300], ["age", "sex", "area"], "rich"))
        )
    with pytest.raises(drha.InvalidNoise, match="3 mechanisms"):
        from_frame(frame, ["age"], ["ill"]).local_risk([NOISES["laplace"]] * 3)
