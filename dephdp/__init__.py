"""Heterogeneous mechanism design for multi-attribute metric differential privacy."""
