"""The large tables: ``make experiments`` computes them, every build recomputes some of their rows.

Each module here describes one table as an `Experiment`; its rows lie in ``book/results``.
"""
