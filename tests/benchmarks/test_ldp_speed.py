"""The LDP references against multi-freq-ldpy, which privatises one record at a time."""

import numpy as np
import pytest
from multi_freq_ldpy.mdim_freq_est.RSpFD_solution import RSpFD_GRR_Client
from multi_freq_ldpy.mdim_freq_est.SMP_solution import SMP_GRR_Client

from dephdp import Attribute, Domain
from dephdp.ldp import FakeDataSampling, RandomSampling, amplified_budget

SIZES = [9, 16, 7, 15, 6, 5, 2, 10]  # as Adult's nominal attributes have
RECORDS, FEW = 500_000, 20_000


@pytest.mark.parametrize(
    ("kind", "client"),
    [(RandomSampling, SMP_GRR_Client), (FakeDataSampling, RSpFD_GRR_Client)],
    ids=["SMP", "RS+FD"],
)
def test_reports_of_eight_attributes(race, kind, client):
    domain = Domain(Attribute.nominal(f"a{j}", range(k)) for j, k in enumerate(SIZES))
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(k, size=RECORDS) for k in SIZES], axis=1)
    budget = 1.0 if kind is RandomSampling else amplified_budget(1.0, len(SIZES))
    sampling, tuples = kind(domain, budget), codes[:FEW].tolist()
    ratios = race(
        f"{kind.__name__}, 8 attributes",
        lambda: sampling.randomize(codes, rng),
        {
            f"multi-freq-ldpy {client.__name__}": (
                lambda: [client(record, SIZES, len(SIZES), 1.0) for record in tuples],
                FEW,
            )
        },
        work=RECORDS,
    )
    assert ratios[f"multi-freq-ldpy {client.__name__}"] > 5
