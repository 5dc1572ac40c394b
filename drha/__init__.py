"""Disclosure risk from homogeneity attack in differentially private frequency tables."""
