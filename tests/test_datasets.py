import socket
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from dephdp import Domain, datasets
from dephdp.errors import InvalidFrame

LOADERS = [datasets.load_adult, datasets.load_wine_red, datasets.load_heart_disease]


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a data set asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_adult():
    adult = datasets.load_adult()
    assert adult.shape == (48842, 16)
    assert len(adult.dropna()) == 45222
    assert adult["split"].value_counts().to_dict() == {"train": 32561, "test": 16281}
    train = adult[adult["split"] == "train"]
    assert len(train.dropna()) == 30162
    assert adult.columns[adult.isna().any()].tolist() == [
        "workclass",
        "occupation",
        "native_country",
    ]
    assert (adult["education"].cat.codes + 1 == adult["education_num"]).all()
    assert adult["education"].cat.ordered
    assert adult["income"].cat.categories.tolist() == ["<=50K", ">50K"]
    assert adult["age"].dtype == "Int64"
    assert isinstance(adult["race"].dtype, pd.CategoricalDtype)
    assert not adult["race"].cat.ordered


def test_wine_red():
    wine = datasets.load_wine_red()
    assert wine.shape == (1599, 12)
    assert not wine.isna().any(axis=None)
    assert wine["quality"].value_counts().to_dict() == {
        5: 681,
        6: 638,
        7: 199,
        4: 53,
        8: 18,
        3: 10,
    }
    assert (wine.dtypes.drop("quality") == np.float64).all()


def test_heart_disease():
    heart = datasets.load_heart_disease()
    assert heart.shape == (920, 16)
    assert len(heart.dropna()) == 299
    assert heart["dataset"].value_counts().to_dict() == {
        "Cleveland": 304,
        "Hungary": 293,
        "VA Long Beach": 200,
        "Switzerland": 123,
    }
    assert heart["fbs"].dtype == heart["exang"].dtype == "boolean"
    assert heart["slope"].cat.categories.tolist() == ["upsloping", "flat", "downsloping"]
    assert heart["ca"].dropna().between(0, 3).all()
    assert heart["id"].is_unique


@pytest.mark.parametrize("load", LOADERS)
def test_every_set_is_attributed_typed_and_documented(load):
    frame = load()
    assert set(frame.attrs) == {"title", "citation", "doi", "licence", "units"}
    assert frame.attrs["doi"] in load.__doc__
    assert set(frame.attrs["units"]) <= set(frame.columns)
    assert not frame.dtypes.isin([object]).any()
    for column in frame.columns:
        assert column in load.__doc__, column


@pytest.mark.parametrize("load", LOADERS)
def test_a_load_is_a_fresh_frame(load):
    first = load()
    first.iloc[0, 1] = first.iloc[1, 1]
    first.attrs["title"] = "changed"
    pd.testing.assert_frame_equal(load(), load())
    assert load().attrs["title"] != "changed"


def test_a_damaged_file_is_refused(monkeypatch):
    monkeypatch.setitem(datasets._CHECKSUMS, "wine_red", "0" * 64)
    with pytest.raises(InvalidFrame, match=r"wine_red\.csv\.gz has SHA-256"):
        datasets.load_wine_red()


def test_real_records_round_trip_through_a_domain():
    adult = datasets.load_adult().dropna()[["education", "sex", "native_country", "age"]]
    domain = Domain.from_frame(
        adult, nominal=["sex", "native_country"], ordinal=["education"], numeric={"age": (17, 90)}
    )
    assert domain.sizes == (16, 2, 41, 74)
    decoded = domain.decode(domain.encode(adult))
    for column in ("education", "sex", "native_country"):
        assert (decoded[column].astype(str).to_numpy() == adult[column].astype(str)).all()
    assert (decoded["age"].to_numpy() == adult["age"].to_numpy(dtype=float)).all()


def test_import_loads_no_pandas_matplotlib_or_cvxpy():
    code = (
        "import sys, dephdp; "
        "print([m for m in ('pandas', 'matplotlib', 'cvxpy') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
