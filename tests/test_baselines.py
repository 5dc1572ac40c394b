"""The baselines: certified by brute force, ordered as they must be, and honest references."""

from functools import reduce

import numpy as np
import pandas as pd
import pytest

from book.published import published
from dephdp import (
    DepHDP,
    Domain,
    FrequencyEstimation,
    allocate_budget,
    datasets,
    distance_matrix,
    envelope_allocation,
    even_allocation,
    exponential_mechanism,
    loss_curve,
    privacy_level,
    split_budget,
)
from dephdp.baselines import (
    METHODS,
    SPLIT_METHODS,
    alc_dpn,
    alc_rmp,
    dephdp_m,
    dephdp_r,
    spl_dpn,
    spl_rmp,
)
from dephdp.errors import DephdpError

PS = [1.0, 1.5, 2.0, 4.0, np.inf]
SHARED = {"pairs": None, "points": 17, "tol": 1e-4}


def people(rows=200, seed=0):
    rng = np.random.default_rng(seed)
    job = rng.choice(["none", "part", "full"], rows, p=[0.2, 0.3, 0.5])
    wage = np.where(job == "full", rng.integers(2, 4, rows), rng.integers(0, 3, rows))
    rank = pd.Categorical(rng.choice(list("SML"), rows, p=[0.6, 0.3, 0.1]), list("SML"), True)
    return pd.DataFrame({"job": job, "wage": wage, "flag": rng.random(rows) < 0.1, "rank": rank})


def fitted(method, epsilon, p=2, **options):
    design = METHODS[method](epsilon, p, **SHARED | options)
    return design.fit(people(), rng=np.random.default_rng(1))


@pytest.mark.parametrize("p", PS)
@pytest.mark.parametrize("method", METHODS)
def test_certificates_hold_for_every_pair_of_records(method, p):
    """The product channel of 3 · 4 · 2 · 3 records, written down, against all distances."""
    for epsilon in (0.7, 5.0):
        design = fitted(method, epsilon, p)
        channel = reduce(lambda a, b: a.product(b, p), design.channels_)
        names = [name for group in design.groups_ for name in group.names]
        order = np.argsort([design.domain_.names.index(name) for name in names])
        sizes = [design.domain_[name].size for name in names]
        codes = np.indices(sizes).reshape(len(sizes), -1).T[:, order]
        distances = distance_matrix(design.domain_, design.domain_.names, p, codes=codes)
        level = privacy_level(channel.matrix, distances)
        assert level <= epsilon * (1 + 1e-12)
        assert design.certificate_.holds
        assert design.certificate_.level == pytest.approx(level, rel=1e-9)


def test_split_baselines_are_the_mechanisms_at_an_even_share():
    for p in (1.0, 2.0, np.inf):
        plain, remapped = (fitted(method, 3.0, p) for method in ("SPL+DPN", "SPL+RMP"))
        share = split_budget(3.0, len(plain.groups_), p)[0]
        expected = 0.0
        for profile, channel in zip(plain.profiles_, plain.channels_, strict=True):
            by_hand = exponential_mechanism(profile.distances, share)
            np.testing.assert_allclose(channel.matrix, by_hand.matrix, rtol=1e-9)
            expected += by_hand.expected_loss(profile.prior, profile.loss)
        assert plain.loss_ == pytest.approx(expected)
        guesses = 0.0
        for profile, channel in zip(plain.profiles_, plain.channels_, strict=True):
            joint = profile.prior[:, None] * channel.matrix
            guesses += (joint.T @ profile.loss).min(axis=1).sum()
        assert remapped.loss_ == pytest.approx(guesses)


@pytest.mark.parametrize("p", PS)
def test_allocations_are_ordered_and_bounded(p):
    """On one grid: lower bound <= exact <= envelopes <= even split, for each family."""
    profiles = fitted("SPL+DPN", 4.0, p).profiles_
    grid = np.linspace(0, 4, 33)
    for family in ("exponential", "exponential+remap", "tight+remap"):
        curves = [loss_curve(x.prior, x.loss, x.distances, grid, family).losses for x in profiles]
        exact = allocate_budget(grid, curves, 4.0, p)
        envelope = envelope_allocation(grid, curves, 4.0, p)
        even = even_allocation(grid, curves, 4.0, p)
        assert exact.lower_bound <= exact.loss <= envelope.loss + 1e-12
        assert envelope.loss <= even.loss + 1e-12
        assert envelope.lower_bound <= exact.loss + 1e-12


def test_the_methods_are_ordered_where_theory_says_so():
    losses = {method: fitted(method, 4.0, allocation="exact").loss_ for method in METHODS}
    split = {method: fitted(method, 4.0, allocation="even").loss_ for method in METHODS}
    for method in METHODS:
        assert losses[method] <= split[method] + 1e-12
    assert losses["ALC+RMP"] <= losses["ALC+DPN"] + 1e-12
    best = DepHDP(4.0, select="always", **SHARED).fit(people(), rng=np.random.default_rng(1))
    for method in METHODS:
        assert best.lower_bound_ <= losses[method] + 1e-12


def test_scores_choose_the_groups():
    """The MSE class lies in the isotonic one, so -m optimises at least the groups of -r."""
    for threshold in (0.0, 0.3, 0.7, 1.0):
        m, r = (fitted(name, 2.0, threshold=threshold) for name in ("DepHDP-m", "DepHDP-r"))
        chosen_m, chosen_r = (np.array(d.families_) == "optimal" for d in (m, r))
        assert (chosen_m >= chosen_r).all()
        assert (np.array(m.families_)[~chosen_m] == "exponential").all()
    assert chosen_m.all()
    assert "exponential+remap" in fitted("DepHDP-m", 2.0, noise="exponential+remap").families_


@pytest.mark.parametrize("method", SPLIT_METHODS)
@pytest.mark.parametrize("states", ["full", "observed"])
def test_split_variants_configure_on_one_part_and_design_for_the_other(method, states):
    """The split by hand: fit on one part, then design for the other with all that given."""
    frame, options = people(300), SHARED | {"threshold": 0.9, "states": states, "pairs": 400}
    options |= {"domain": Domain.infer(frame)}
    split = SPLIT_METHODS[method](3.0, **options).fit(frame, np.random.default_rng(5))
    order = np.random.default_rng(5).permutation(300)
    first, rest = (frame.iloc[np.sort(part)] for part in (order[:188], order[188:]))
    rng = np.random.default_rng(5)
    rng.permutation(300)
    whole = METHODS[method.removesuffix("-s")]
    configured = whole(3.0, **options).fit(first, rng)
    assert split.families_ == configured.families_
    np.testing.assert_array_equal(split.scores_, configured.scores_)
    np.testing.assert_array_equal(split.surrogate_.coefficients, configured.surrogate_.coefficients)
    names = [group.names for group in configured.groups_]
    given = whole(3.0, **options | {"groups": names, "pairs": None}).fit(rest)
    assert [group.names for group in split.groups_] == names
    for ours, by_hand in zip(split.profiles_, given.profiles_, strict=True):
        np.testing.assert_array_equal(ours.prior, by_hand.prior)
        np.testing.assert_array_equal(ours.loss, by_hand.loss)
        assert ours.group.size == by_hand.group.size
    losses = [
        channel.expected_loss(profile.prior, profile.loss)
        for channel, profile in zip(split.channels_, given.profiles_, strict=True)
    ]
    assert split.loss_ == pytest.approx(configured.surrogate_.predict(losses), rel=1e-9)
    assert split.certificate_.holds
    if states == "full":  # mechanisms made for the rest lose no more there than the others do
        assert split.loss_ <= configured.evaluate(rest) * 1.05
        assert split.evaluate(rest) == pytest.approx(split.loss_)


def test_a_split_leaves_records_on_both_sides():
    assert SPLIT_METHODS["DepHDP-m-s"](2.0).fitting == 0.625
    for share in (0.0, -1, 1.5, np.nan):
        with pytest.raises(DephdpError, match="fitting must lie in"):
            dephdp_m(2.0, fitting=share)
    with pytest.raises(DephdpError, match="no record on one side"):
        dephdp_m(2.0, fitting=0.9999, **SHARED).fit(people())


def test_options_are_passed_on_and_checked():
    assert alc_dpn(2.0, allocation="exact").allocation == "exact"
    assert spl_rmp(2.0, noise="calibrated").noise == "calibrated"
    assert dephdp_m(2.0).threshold == 0.3
    assert dephdp_r(2.0, threshold=0.1).threshold == 0.1
    assert alc_rmp(2.0, np.inf).p == np.inf
    with pytest.raises(DephdpError, match="noise must be one of"):
        spl_dpn(1.0, noise="none")
    with pytest.raises(DephdpError, match="epsilon"):
        spl_dpn(-1.0)


# -- reduced Adult: 32 records in the six groups of the paper's artifact -----------------------

GROUPS = [
    ["age", "education", "race", "capital_gain", "hours_per_week", "income"],
    ["workclass"],
    ["fnlwgt", "relationship", "sex", "capital_loss", "native_country"],
    ["education_num"],
    ["marital_status"],
    ["occupation"],
]
COMPARED = ["SPL+DPN", "SPL+RMP", "ALC+DPN", "ALC+RMP", "ALC+calibrated", "exact+tight"]
_TABLE = published("independent_prototype").pivot(index="epsilon", columns="method", values="loss")
PROTOTYPE = {epsilon: tuple(_TABLE.loc[epsilon, COMPARED]) for epsilon in (1, 4, 10)}


@pytest.fixture(scope="module")
def reduced():
    """A design in the paper's reading: z-scores of codes, observed states, uniform prior."""
    adult = datasets.load_adult()
    names = [name for group in GROUPS for name in group]
    complete = adult.loc[adult["split"] == "train", names].dropna()
    codes = complete.apply(
        lambda column: (
            pd.factorize(column.astype(str), sort=True)[0]
            if isinstance(column.dtype, pd.CategoricalDtype)
            else column.astype(float)
        )
    )
    few = codes.iloc[np.random.default_rng(0).permutation(len(codes))[:32]].astype(float)
    spans = (few.max() - few.min()).where(few.nunique() > 1, 1.0)
    domain = Domain.from_frame(
        few, numeric={name: (few[name].min(), few[name].min() + spans[name]) for name in names}
    )
    deviation = few.std().where(few.nunique() > 1, 1.0)
    options = {
        "domain": domain,
        "groups": GROUPS,
        "states": "observed",
        "prior": "uniform",
        "pairs": None,
        "weights": ((spans / deviation) ** 2).to_dict(),
        # 2 scale / N² as for the paper's N = 300 records
        "task": lambda d, c: FrequencyEstimation(d, c, scale=1e5 * (32 / 300) ** 2),
    }
    return few, options


def test_reduced_adult_agrees_with_an_independent_prototype(reduced):
    few, options = reduced
    for epsilon, expected in PROTOTYPE.items():
        for method, value in zip((spl_dpn, spl_rmp), expected, strict=False):
            design = method(epsilon, points=2, **options).fit(few)
            assert [group.size for group in design.groups_] == [32, 6, 32, 9, 5, 11]
            assert design.loss_ == pytest.approx(value, rel=0.015)
    grid = np.linspace(0, 10, 21)
    for family, column in (("exponential", 2), ("exponential+remap", 3), ("calibrated+remap", 4)):
        curves = [loss_curve(x.prior, x.loss, x.distances, grid, family) for x in design.profiles_]
        losses = np.array([curve.losses for curve in curves])
        for epsilon, expected in PROTOTYPE.items():
            suggested = envelope_allocation(grid, losses, epsilon)
            value = min(
                interpolated(grid, losses, budgets)
                for budgets in (suggested.minorant_budgets, suggested.majorant_budgets)
            )
            assert value == pytest.approx(expected[column], rel=0.015)
    curves = [
        loss_curve(x.prior, x.loss, x.distances, grid, "tight+remap") for x in design.profiles_
    ]
    fine = np.linspace(0, 10, 401)
    losses = np.array([np.interp(fine, grid, curve.losses) for curve in curves])
    for epsilon, expected in PROTOTYPE.items():
        assert allocate_budget(fine, losses, epsilon).loss == pytest.approx(expected[5], rel=0.015)


def interpolated(grid, losses, budgets):
    """The prototype's reading between samples: linear."""
    return sum(np.interp(b, grid, row) for b, row in zip(budgets, losses, strict=True))
