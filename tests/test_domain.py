import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp import Attribute, Domain
from dephdp.errors import InvalidDomain, InvalidFrame

SCHOOLING = ["primary", "secondary", "tertiary"]


def people():
    return pd.DataFrame(
        {
            "sex": ["F", "M", "M", "F"],
            "schooling": ["tertiary", "primary", "secondary", "primary"],
            "age": [17, 30, 64, 90],
            "children": [0, 2, 1, 2],
        },
        index=["ann", "bob", "carl", "dora"],
    )


def declare(frame, **numeric):
    numeric = {"age": [0, 18, 65, 100], "children": (0, 10)} | numeric
    return Domain.from_frame(
        frame, nominal=["sex"], ordinal={"schooling": SCHOOLING}, numeric=numeric
    )


def test_from_frame_declares_in_column_order():
    domain = declare(people())
    assert domain.names == ("sex", "schooling", "age", "children")
    assert domain.sizes == (2, 3, 3, 3)
    assert domain.size() == 54
    assert domain["age"].levels == (9.0, 41.5, 82.5)
    assert domain["age"].range == (0.0, 100.0)
    assert domain["children"].levels == (0.0, 1.0, 2.0)
    assert domain["children"].range == (0.0, 10.0)
    assert "age: numeric 3" in repr(domain)


def test_encode_and_decode_are_inverse():
    frame = people()
    domain = declare(frame)
    codes = domain.encode(frame)
    assert codes.tolist() == [[0, 2, 0, 0], [1, 0, 1, 2], [1, 1, 1, 1], [0, 0, 2, 2]]
    decoded = domain.decode(codes)
    assert decoded["sex"].tolist() == frame["sex"].tolist()
    assert decoded["schooling"].cat.ordered
    assert decoded["age"].tolist() == [9.0, 41.5, 41.5, 82.5]
    assert decoded["children"].tolist() == frame["children"].tolist()
    assert (domain.encode(decoded) == codes).all()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_round_trips_on_random_domains(sizes, seed):
    rng = np.random.default_rng(seed)
    kinds = rng.integers(3, size=len(sizes))
    attributes = []
    for i, (size, kind) in enumerate(zip(sizes, kinds, strict=True)):
        if kind == 2:
            edges = np.cumsum(rng.uniform(0.1, 2, size + 1))
            attributes.append(Attribute.numeric(f"a{i}", edges=edges))
        else:
            make = Attribute.nominal if kind else Attribute.ordinal
            attributes.append(make(f"a{i}", [f"level {j}" for j in range(size)]))
    domain = Domain(attributes)
    states = np.arange(domain.size())
    codes = domain.unravel(states)
    assert (domain.ravel(codes) == states).all()
    assert (domain.encode(domain.decode(codes)) == codes).all()
    assert len({tuple(code) for code in codes.tolist()}) == domain.size()
    group = list(rng.permutation(domain.names))[: rng.integers(1, len(sizes) + 1)]
    local = domain.ravel(codes[:, domain.positions(group)], group)
    assert (domain.unravel(local, group) == codes[:, domain.positions(group)]).all()
    assert np.bincount(local).tolist() == [domain.size() // domain.size(group)] * domain.size(group)


def test_bins_are_closed_on_the_left_and_the_last_on_both_sides():
    domain = Domain([Attribute.numeric("age", edges=[0, 18, 65, 100])])
    ages = pd.DataFrame({"age": [0, 17.999, 18, 64.999, 65, 100]})
    assert domain.encode(ages)[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_a_number_of_bins_spans_the_observed_range():
    frame = people()[["age"]]
    domain = Domain.from_frame(frame, numeric={"age": 3})
    assert domain["age"].edges == pytest.approx((17, 17 + 73 / 3, 17 + 146 / 3, 90))
    assert domain.encode(frame)[:, 0].tolist() == [0, 0, 1, 2]


def test_categories_declare_levels():
    frame = people()[["sex", "schooling"]]
    frame["sex"] = pd.Categorical(frame["sex"], ["M", "F", "X"])
    frame["schooling"] = pd.Categorical(frame["schooling"], SCHOOLING, ordered=True)
    domain = Domain.from_frame(frame, nominal=["sex"], ordinal=["schooling"])
    assert domain["sex"].levels == ("M", "F", "X")
    assert domain["schooling"].levels == tuple(SCHOOLING)
    assert domain.encode(frame).tolist() == [[1, 2], [0, 0], [0, 1], [1, 0]]


def test_nullable_boolean_and_integer_levels():
    frame = pd.DataFrame(
        {"smokes": pd.array([True, False], "boolean"), "grade": pd.array([3, 1], "Int64")}
    )
    domain = Domain.from_frame(frame, nominal=["smokes"], ordinal={"grade": [1, 2, 3]})
    assert domain["smokes"].levels == (False, True)
    assert domain.encode(frame).tolist() == [[1, 2], [0, 0]]


def test_undeclared_columns_are_an_error_to_declare_and_unread_to_encode():
    frame = people()
    with pytest.raises(InvalidDomain, match=r"\['age', 'children'\] are not declared"):
        Domain.from_frame(frame, nominal=["sex", "schooling"])
    domain = Domain.from_frame(frame[["sex"]], nominal=["sex"])
    assert domain.encode(frame)[:, 0].tolist() == [0, 1, 1, 0]


def test_values_outside_the_domain_name_row_and_column():
    domain = declare(people())
    for column, value in (("sex", "X"), ("age", 101), ("age", math.inf), ("children", 3)):
        frame = people().astype({"age": float})
        frame.loc["carl", column] = value
        with pytest.raises(InvalidDomain, match=rf"row 2 \(label 'carl'\), column '{column}'"):
            domain.encode(frame)
    with pytest.raises(InvalidDomain, match=r"row 3 .*column 'age'"):
        declare(people(), age=[0, 18, 65, 80])
    with pytest.raises(InvalidDomain, match="leave the declared range"):
        declare(people(), children=(0, 1))


def test_missing_values_name_row_and_column():
    domain = declare(people())
    for column in ("sex", "age"):
        frame = people().astype({"age": float})
        frame.loc["bob", column] = None
        for call in (domain.encode, declare):
            with pytest.raises(InvalidFrame, match=rf"row 1 \(label 'bob'\), column '{column}'"):
                call(frame)


def test_duplicate_columns_empty_frames_and_absent_columns():
    domain = declare(people())
    frame = people()
    doubled = pd.concat([frame, frame[["age"]]], axis=1)
    for call in (domain.encode, declare):
        with pytest.raises(InvalidFrame, match="'age' occurs more than once"):
            call(doubled)
        with pytest.raises(InvalidFrame, match="empty"):
            call(frame.iloc[:0])
    with pytest.raises(InvalidFrame, match="'age' is missing"):
        domain.encode(frame.drop(columns="age"))
    with pytest.raises(InvalidFrame, match="empty"):
        Domain.from_frame(pd.DataFrame(index=[0, 1]))


def test_bad_declarations():
    frame = people()
    with pytest.raises(InvalidDomain, match="not in the table"):
        Domain.from_frame(frame[["sex"]], nominal=["sex", "height"])
    with pytest.raises(InvalidDomain, match="declared twice"):
        Domain.from_frame(frame[["sex"]], nominal=["sex"], ordinal={"sex": ["F", "M"]})
    with pytest.raises(InvalidDomain, match="not an ordered categorical"):
        Domain.from_frame(frame[["sex"]], ordinal=["sex"])
    with pytest.raises(InvalidDomain, match="does not hold numbers"):
        Domain.from_frame(frame[["sex"]], numeric={"sex": 3})
    for declaration in (0, True, "ten", None, [[1, 2, 3]]):
        with pytest.raises(InvalidDomain, match="age"):
            Domain.from_frame(frame[["age"]], numeric={"age": declaration})
    with pytest.raises(InvalidDomain, match="constant"):
        Domain.from_frame(frame[["age"]].iloc[:1], numeric={"age": 3})
    mixed = pd.DataFrame({"code": pd.Series(["a", 1], dtype=object)})
    with pytest.raises(InvalidDomain, match="no common order"):
        Domain.from_frame(mixed, nominal=["code"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Attribute.nominal("a", []), "no levels"),
        (lambda: Attribute.nominal("a", ["x", "y", "x"]), "'x' twice"),
        (lambda: Attribute.ordinal("a", ["x", None]), "missing"),
        (lambda: Attribute.nominal("a", ["x", math.nan]), "missing"),
        (lambda: Attribute("a", "cyclic", ("x",)), "unknown kind"),
        (lambda: Attribute("a", "numeric", (1.0,)), "declares a range"),
        (lambda: Attribute.numeric("a"), "either edges or values"),
        (lambda: Attribute.numeric("a", edges=[1, 2], values=[1, 2]), "either edges or values"),
        (lambda: Attribute.numeric("a", edges=[1]), "two edges"),
        (lambda: Attribute.numeric("a", edges=[1, 3, 2]), "must increase"),
        (lambda: Attribute.numeric("a", edges=[1, math.nan]), "finite"),
        (lambda: Attribute.numeric("a", values=[1, 2], range=(2, 1)), "empty"),
        (lambda: Attribute.numeric("a", values=[1, 2], range=(1, 2, 3)), "pair"),
        (lambda: Attribute.numeric("a", values=[1, 2], range=(1.5, 3)), "leave"),
        (lambda: Attribute.numeric("a", values=["one"]), "not numbers"),
        (lambda: Domain([]), "at least one"),
        (lambda: Domain(["a"]), "not an Attribute"),
        (lambda: Domain([Attribute.nominal("a", "xy")] * 2), "declared twice"),
    ],
)
def test_bad_attributes_and_domains(make, message):
    with pytest.raises(InvalidDomain, match=message):
        make()


def test_groups_and_codes_are_checked():
    domain = declare(people())
    with pytest.raises(InvalidDomain, match="'height' is not an attribute"):
        domain.size(["height"])
    with pytest.raises(InvalidDomain, match="twice"):
        domain.positions(["age", "age"])
    with pytest.raises(InvalidDomain, match="at least one"):
        domain.positions([])
    with pytest.raises(InvalidDomain, match="row 1, attribute 'schooling': code 3"):
        domain.ravel([[0, 0], [0, 3]], ["sex", "schooling"])
    with pytest.raises(InvalidDomain, match="code -1"):
        domain.decode([[-1, 0, 0, 0]])
    with pytest.raises(InvalidDomain, match="integers"):
        domain.decode([[0.5, 0, 0, 0]])
    with pytest.raises(InvalidDomain, match="shape"):
        domain.decode([[0, 0]])
    with pytest.raises(InvalidDomain, match="state 54"):
        domain.unravel([0, 54])
    with pytest.raises(InvalidDomain, match="integers"):
        domain.unravel([0.0])


def test_a_group_beyond_64_bits_is_refused_not_wrapped():
    wide = Domain(Attribute.nominal(f"a{i}", range(2**10)) for i in range(7))
    assert wide.size() == 2**70
    with pytest.raises(InvalidDomain, match="64-bit"):
        wide.ravel(np.zeros((1, 7), dtype=int))
    with pytest.raises(InvalidDomain, match="64-bit"):
        wide.unravel([0])
    top = [2**10 - 1] * 6
    assert wide.ravel([top], wide.names[:6]).tolist() == [2**60 - 1]
