"""Compute the large tables from the command line: ``python -m book.experiments [names]``."""

import argparse
import pkgutil
from importlib import import_module

import book.experiments
from book.experiments.experiment import Experiment


def experiments() -> dict[str, Experiment]:
    """Return every experiment by its name: each sibling module may define some."""
    found = {}
    for module in pkgutil.iter_modules(book.experiments.__path__):
        if module.name != "__main__":
            contents = vars(import_module(f"book.experiments.{module.name}")).values()
            found |= {item.name: item for item in contents if isinstance(item, Experiment)}
    return found


def main():
    """Run the experiments named, or all."""
    known = experiments()
    parser = argparse.ArgumentParser(description="Compute the large tables; resume where stopped.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of: {', '.join(known)}")
    parser.add_argument("--jobs", type=int, default=-1, help="processes (default: all cores)")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(known):
        parser.error(f"no experiment {sorted(unknown)}")
    for name in arguments.names or known:
        known[name].run(arguments.jobs)


if __name__ == "__main__":
    main()
