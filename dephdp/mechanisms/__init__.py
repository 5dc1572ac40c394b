"""Closed-form mechanisms: each knows the channel and nothing else."""
