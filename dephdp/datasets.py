"""Three real data sets, embedded: no function here touches the network.

All come from the UCI Machine Learning Repository under CC BY 4.0. Every load verifies the SHA-256
of the embedded file. ``frame.attrs`` holds the title, citation, DOI, licence, and the columns'
units.
"""

import gzip
import hashlib
import io
from importlib import resources

from dephdp.errors import InvalidFrame

_LICENCE = "CC BY 4.0, https://creativecommons.org/licenses/by/4.0/"

_CHECKSUMS = {
    "adult": "cfee74f9482f599a0afa30fe70b3ec84f18210dd301dd4c216697315d886cb25",
    "heart_disease": "4c24d088a5c0f4e7f5beeadcf4c36716ef17d03bda0f7efd49e0ac0c2c7ef0a4",
    "wine_red": "34459fc3ae6aa3f571402d0294c0d28fd931e5bf8899e81ca2b9122c92c5a3f7",
}

EDUCATION = (
    "Preschool",
    "1st-4th",
    "5th-6th",
    "7th-8th",
    "9th",
    "10th",
    "11th",
    "12th",
    "HS-grad",
    "Some-college",
    "Assoc-voc",
    "Assoc-acdm",
    "Bachelors",
    "Masters",
    "Prof-school",
    "Doctorate",
)
"""Adult's levels of education, lowest first: level i has ``education_num`` i + 1."""


def load_adult():
    """Return the Adult census records: 48,842 rows, of which 45,222 are complete.

    Returns
    -------
    pandas.DataFrame
        age (years, Int64); workclass; fnlwgt (people represented, Int64); education (ordered, see
        ``EDUCATION``); education_num (rank of education, Int64); marital_status; occupation;
        relationship; race; sex; capital_gain, capital_loss (US dollars a year, Int64);
        hours_per_week (hours, Int64); native_country; income (ordered: <=50K < >50K, US dollars
        a year); split (train: 32,561 rows, test: 16,281 rows, the original files). Text columns
        are categoricals with sorted levels. Missing entries (workclass, occupation,
        native_country) are NA.

    Notes
    -----
    B. Becker, R. Kohavi, "Adult", UCI Machine Learning Repository, 1996, doi 10.24432/C5XW20,
    CC BY 4.0. The final dots of the original test file's income are removed.
    """
    whole = ["age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
    ordered = {
        "education": EDUCATION,
        "income": ("<=50K", ">50K"),
        "split": ("train", "test"),
    }
    frame = _read("adult", whole=whole, ordered=ordered)
    frame["split"] = frame["split"].cat.as_unordered()
    frame.attrs = {
        "title": "Adult",
        "citation": 'B. Becker, R. Kohavi, "Adult", UCI Machine Learning Repository, 1996',
        "doi": "10.24432/C5XW20",
        "licence": _LICENCE,
        "units": {
            "age": "years",
            "fnlwgt": "people represented",
            "capital_gain": "US dollars a year",
            "capital_loss": "US dollars a year",
            "hours_per_week": "hours",
        },
    }
    return frame


def load_wine_red():
    """Return the red Vinho Verde wines: 1,599 rows, complete.

    Returns
    -------
    pandas.DataFrame
        float64: fixed_acidity (g/dm³ tartaric acid), volatile_acidity (g/dm³ acetic acid),
        citric_acid, residual_sugar (g/dm³), chlorides (g/dm³ sodium chloride),
        free_sulfur_dioxide, total_sulfur_dioxide (mg/dm³), density (g/cm³), pH (dimensionless),
        sulphates (g/dm³ potassium sulphate), alcohol (% by volume); Int64: quality (median score
        of at least three assessors, 0 to 10; 3 to 8 occur).

    Notes
    -----
    P. Cortez, A. Cerdeira, F. Almeida, T. Matos, J. Reis, "Wine Quality", UCI Machine Learning
    Repository, 2009, doi 10.24432/C56S3T, CC BY 4.0. As a multiset the rows are those of the
    original file; their order is not.
    """
    frame = _read("wine_red", whole=["quality"])
    frame.attrs = {
        "title": "Wine Quality (red)",
        "citation": "P. Cortez, A. Cerdeira, F. Almeida, T. Matos, J. Reis, "
        '"Wine Quality", UCI Machine Learning Repository, 2009',
        "doi": "10.24432/C56S3T",
        "licence": _LICENCE,
        "units": {
            "fixed_acidity": "g/dm³ (tartaric acid)",
            "volatile_acidity": "g/dm³ (acetic acid)",
            "citric_acid": "g/dm³",
            "residual_sugar": "g/dm³",
            "chlorides": "g/dm³ (sodium chloride)",
            "free_sulfur_dioxide": "mg/dm³",
            "total_sulfur_dioxide": "mg/dm³",
            "density": "g/cm³",
            "pH": "dimensionless",
            "sulphates": "g/dm³ (potassium sulphate)",
            "alcohol": "% by volume",
            "quality": "score, 0 to 10",
        },
    }
    return frame


def load_heart_disease():
    """Return the heart disease records of four sites: 920 rows, 299 complete in all 13 features.

    Returns
    -------
    pandas.DataFrame
        id (Int64); age (years, Int64); sex; dataset (site: Cleveland 304, Hungary 293, VA Long
        Beach 200, Switzerland 123); cp (chest pain type); trestbps (resting blood pressure, mm Hg,
        Int64); chol (serum cholesterol, mg/dl, Int64); fbs (fasting blood sugar above 120 mg/dl,
        boolean); restecg (resting electrocardiogram); thalch (maximum heart rate, beats a minute,
        Int64); exang (exercise-induced angina, boolean); oldpeak (ST depression by exercise, mm,
        float64); slope (of the peak-exercise ST segment, ordered: upsloping < flat <
        downsloping); ca (major vessels coloured by fluoroscopy, 0 to 3, Int64); thal (thallium
        scan); num (diagnosis, 0 none to 4, Int64). Other text columns are categoricals with
        sorted levels. Missing entries are NA.

    Notes
    -----
    A. Janosi, W. Steinbrunn, M. Pfisterer, R. Detrano, "Heart Disease", UCI Machine Learning
    Repository, 1989, doi 10.24432/C52P4X, CC BY 4.0. A zero in chol or trestbps, impossible in
    the living, is how some sites recorded "not measured"; it is kept as published.
    """
    frame = _read(
        "heart_disease",
        whole=["id", "age", "trestbps", "chol", "thalch", "ca", "num"],
        boolean=["fbs", "exang"],
        ordered={"slope": ("upsloping", "flat", "downsloping")},
    )
    frame.attrs = {
        "title": "Heart Disease",
        "citation": "A. Janosi, W. Steinbrunn, M. Pfisterer, R. Detrano, "
        '"Heart Disease", UCI Machine Learning Repository, 1989',
        "doi": "10.24432/C52P4X",
        "licence": _LICENCE,
        "units": {
            "age": "years",
            "trestbps": "mm Hg",
            "chol": "mg/dl",
            "thalch": "beats a minute",
            "oldpeak": "mm",
            "ca": "vessels",
            "num": "diagnosis, 0 to 4",
        },
    }
    return frame


def _read(name, whole=(), boolean=(), ordered=None):
    """Read an embedded table; text columns that are not ordered become sorted categoricals."""
    import pandas as pd

    # Only an empty field is missing: text such as "NA" would be a value.
    frame = pd.read_csv(io.BytesIO(_bytes(name)), keep_default_na=False, na_values=[""])
    for column in whole:
        frame[column] = frame[column].astype("Int64")
    for column in boolean:
        frame[column] = frame[column].astype("boolean")
    for column, levels in (ordered or {}).items():
        unknown = set(frame[column].dropna()) - set(levels)
        if unknown:
            raise InvalidFrame(f"{name}: column {column!r} holds undocumented levels {unknown}")
        frame[column] = pd.Categorical(frame[column], list(levels), ordered=True)
    for column in frame.columns:
        if not isinstance(frame[column].dtype, pd.CategoricalDtype) and (
            pd.api.types.is_string_dtype(frame[column])
        ):
            frame[column] = frame[column].astype("category")
    return frame


def _bytes(name):
    packed = resources.files("dephdp").joinpath(f"data/{name}.csv.gz").read_bytes()
    found = hashlib.sha256(packed).hexdigest()
    if found != _CHECKSUMS[name]:
        raise InvalidFrame(
            f"dephdp/data/{name}.csv.gz has SHA-256 {found}, expected {_CHECKSUMS[name]}: "
            "the file is damaged, install the package again"
        )
    return gzip.decompress(packed)
