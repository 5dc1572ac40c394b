"""Disclosure risk from homogeneity attack in differentially private frequency tables."""

from drha import conventions
from drha.errors import DrhaError, InvalidCounts, InvalidFrame, InvalidNoise, InvalidTable
from drha.noise import CountNoise, discrete_gaussian, gaussian, geometric, laplace
from drha.risk import homogeneous_risk, local_risk, scenario_8_expression
from drha.scenarios import Scenario, scenario_probabilities
from drha.simulation import Estimate, simulated_risk
from drha.table import FrequencyTable

__all__ = [
    "CountNoise",
    "DrhaError",
    "Estimate",
    "FrequencyTable",
    "InvalidCounts",
    "InvalidFrame",
    "InvalidNoise",
    "InvalidTable",
    "Scenario",
    "conventions",
    "discrete_gaussian",
    "gaussian",
    "geometric",
    "homogeneous_risk",
    "laplace",
    "local_risk",
    "scenario_8_expression",
    "scenario_probabilities",
    "simulated_risk",
]
