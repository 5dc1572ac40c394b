"""Disclosure risk from homogeneity attack in differentially private frequency tables."""

from drha import conventions
from drha.auditing import Audit, audit
from drha.calibrate import EpsilonChoice, choose_epsilon, homogeneous_sandwich
from drha.errors import (
    BoundaryEstimate,
    DrhaError,
    InvalidCounts,
    InvalidFrame,
    InvalidModel,
    InvalidNoise,
    InvalidQuestion,
    InvalidTable,
    NoSafeEpsilon,
    NotEstimable,
)
from drha.estimators import (
    DirichletFit,
    NegativeBinomialFit,
    dirichlet_posterior,
    fit_dirichlet,
    fit_negative_binomial,
    fit_poisson,
    poisson_posterior,
    poisson_posterior_grid,
)
from drha.measures import expected_risk, marginal_risk, marginal_shrinkage_risk, shrinkage_risk
from drha.noise import CountNoise, discrete_gaussian, gaussian, geometric, laplace
from drha.questions import argmax_risk, excess_risk, positive_predictive_value
from drha.risk import homogeneous_risk, local_risk, scenario_8_expression
from drha.scenarios import Scenario, scenario_probabilities
from drha.several import Homogeneity, SensitiveTables, joint_risk
from drha.simulation import Estimate, simulated_risk
from drha.sizes import CellSizes, negative_binomial, poisson
from drha.table import FrequencyTable
from drha.table_risk import DisclosedCells, TableRisk, average_risk, table_risk
from drha.utility import mean_absolute_error
from drha.worst_case import printed_bound_threshold, risk_bound, worst_case_risk, worst_cell

__all__ = [
    "Audit",
    "BoundaryEstimate",
    "CellSizes",
    "CountNoise",
    "DirichletFit",
    "DisclosedCells",
    "DrhaError",
    "EpsilonChoice",
    "Estimate",
    "FrequencyTable",
    "Homogeneity",
    "InvalidCounts",
    "InvalidFrame",
    "InvalidModel",
    "InvalidNoise",
    "InvalidQuestion",
    "InvalidTable",
    "NegativeBinomialFit",
    "NoSafeEpsilon",
    "NotEstimable",
    "Scenario",
    "SensitiveTables",
    "TableRisk",
    "argmax_risk",
    "audit",
    "average_risk",
    "choose_epsilon",
    "conventions",
    "dirichlet_posterior",
    "discrete_gaussian",
    "excess_risk",
    "expected_risk",
    "fit_dirichlet",
    "fit_negative_binomial",
    "fit_poisson",
    "gaussian",
    "geometric",
    "homogeneous_risk",
    "homogeneous_sandwich",
    "joint_risk",
    "laplace",
    "local_risk",
    "marginal_risk",
    "marginal_shrinkage_risk",
    "mean_absolute_error",
    "negative_binomial",
    "poisson",
    "poisson_posterior",
    "poisson_posterior_grid",
    "positive_predictive_value",
    "printed_bound_threshold",
    "risk_bound",
    "scenario_8_expression",
    "scenario_probabilities",
    "shrinkage_risk",
    "simulated_risk",
    "table_risk",
    "worst_case_risk",
    "worst_cell",
]
