"""Heterogeneous mechanism design for multi-attribute metric differential privacy."""

from dephdp import baselines, datasets
from dephdp.adequacy import mse_likeness, prefer_optimal, radial_fit, relative_gain
from dephdp.allocation import (
    Allocation,
    allocate_budget,
    envelope_allocation,
    even_allocation,
    within_budget,
)
from dephdp.certificate import PrivacyCertificate, certify, privacy_level
from dephdp.channel import Channel
from dephdp.composition import (
    compose_budget,
    guaranteed_level,
    product_privacy_level,
    product_worst_case,
    split_budget,
)
from dephdp.curves import LossCurve, loss_curve, loss_curves, partition_bound
from dephdp.design import DepHDP, RecordCertificate
from dephdp.domain import Attribute, Domain
from dephdp.envelopes import convex_majorant, convex_minorant
from dephdp.group import Group, GroupProfile
from dephdp.grouping import Grouping, group_attributes, normalized_mutual_information
from dephdp.losses import profile_group, within_group_loss
from dephdp.mechanisms.exponential import exponential_mechanism
from dephdp.mechanisms.laplace import (
    geometric_mechanism,
    laplace_mechanism,
    planar_laplace_mechanism,
)
from dephdp.mechanisms.remap import bayes_actions, bayes_remap
from dephdp.mechanisms.tight import tight_constraints_mechanism
from dephdp.metric import check_metric, distance_matrix
from dephdp.optimal.anchors import (
    AnchorMechanism,
    AnchorSelection,
    anchor_mechanism,
    public_anchor_mechanism,
)
from dephdp.optimal.certified import OptimalMechanism
from dephdp.optimal.program import optimal_mechanism_lp
from dephdp.optimal.solve import optimal_curve, optimal_mechanism
from dephdp.product_rule import allocate_by_product_rule
from dephdp.surrogate import Surrogate, fit_surrogate
from dephdp.tasks import (
    Crowdsourcing,
    EntropyEstimation,
    FrequencyEstimation,
    PopulationTask,
    RecordTask,
)

__all__ = [
    "Allocation",
    "AnchorMechanism",
    "AnchorSelection",
    "Attribute",
    "Channel",
    "Crowdsourcing",
    "DepHDP",
    "Domain",
    "EntropyEstimation",
    "FrequencyEstimation",
    "Group",
    "GroupProfile",
    "Grouping",
    "LossCurve",
    "OptimalMechanism",
    "PopulationTask",
    "PrivacyCertificate",
    "RecordCertificate",
    "RecordTask",
    "Surrogate",
    "allocate_budget",
    "allocate_by_product_rule",
    "anchor_mechanism",
    "baselines",
    "bayes_actions",
    "bayes_remap",
    "certify",
    "check_metric",
    "compose_budget",
    "convex_majorant",
    "convex_minorant",
    "datasets",
    "distance_matrix",
    "envelope_allocation",
    "even_allocation",
    "exponential_mechanism",
    "fit_surrogate",
    "geometric_mechanism",
    "group_attributes",
    "guaranteed_level",
    "laplace_mechanism",
    "loss_curve",
    "loss_curves",
    "mse_likeness",
    "normalized_mutual_information",
    "optimal_curve",
    "optimal_mechanism",
    "optimal_mechanism_lp",
    "partition_bound",
    "planar_laplace_mechanism",
    "prefer_optimal",
    "privacy_level",
    "product_privacy_level",
    "product_worst_case",
    "profile_group",
    "public_anchor_mechanism",
    "radial_fit",
    "relative_gain",
    "split_budget",
    "tight_constraints_mechanism",
    "within_budget",
    "within_group_loss",
]
