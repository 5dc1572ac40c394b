"""The package as a whole: what importing it costs, and what its docstrings promise."""

import doctest
import importlib
import pkgutil
import subprocess
import sys

import pytest

import drha

MODULES = ["drha", *(f"drha.{module.name}" for module in pkgutil.iter_modules(drha.__path__))]


def test_importing_the_core_imports_no_heavy_package():
    heavy = ("pandas", "matplotlib", "cvxpy", "numba", "dephdp")
    program = f"import sys, drha; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_public_names_exist_and_are_documented():
    for name in drha.__all__:
        assert getattr(drha, name).__doc__
    assert drha.__all__ == sorted(drha.__all__, key=lambda name: (name.islower(), name))
