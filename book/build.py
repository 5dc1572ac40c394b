"""Build the book from executed chapters: ``python -m book.build``.

Each chapter is executed once by papermill and kept under ``_build/executed``, named by a hash of
everything its outputs depend on. The tests read the same files. Jupyter Book then typesets them
with its own execution switched off, so what readers see is what the tests checked.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import jupytext
import nbformat
import papermill
import yaml
from nbclient.exceptions import DeadKernelError
from tqdm import tqdm
from traitlets.config import Config

from notebooks.claims import Claim, read_claims, require_unique

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "_build"
EXECUTED = BUILD / "executed"
STAGED = BUILD / "src"
HTML = BUILD / "html"
STUDIES = "book/cases", "book/experiments", "book/published", "book/results"
STAMP = HTML / ".inputs"  # digest of what the HTML was built from; a plain build removes it


class ChapterError(RuntimeError):
    """A chapter that did not run to its end."""


@dataclass(frozen=True)
class Outcome:
    """What became of one chapter: the executed notebook, or the error that stopped it."""

    name: str
    path: Path | None
    error: str | None = None

    def notebook(self) -> nbformat.NotebookNode:
        """Return the executed notebook; raise `ChapterError` if there is none."""
        if self.path is None:
            raise ChapterError(self.error)
        return nbformat.read(self.path, as_version=4)

    def claims(self) -> list[Claim]:
        """Return the claims that the executed notebook recorded."""
        return read_claims(self.notebook())


def chapters() -> list[str]:
    """Return the chapters' names in the order of the table of contents."""
    entries = re.findall(r"(?m)^[^#\n]*file:\s*notebooks/(\w+)", (ROOT / "_toc.yml").read_text())
    return list(dict.fromkeys(entries))


def source(name: str) -> Path:
    """Return the path of a chapter's source."""
    return ROOT / "notebooks" / f"{name}.md"


def digest(paths: Iterable[Path], *extra: str) -> str:
    """Hash files, by name and content, and strings."""
    total = hashlib.sha256("\0".join(extra).encode())
    for path in paths:
        total.update(f"\0{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return total.hexdigest()


def files(*folders: str, suffixes: tuple[str, ...] = ()) -> list[Path]:
    """Return the files under some folders of the project, sorted, caches left out."""
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and (not suffixes or path.suffix in suffixes)
    )


def executed_path(name: str, parameters: Mapping) -> Path:
    """Return where the executed chapter is kept: its name and a hash of all it depends on."""
    text = source(name).read_text()
    inputs = [
        source(name),
        *files(*[package for package in ("dephdp", "drha") if re.search(rf"\b{package}\b", text)]),
        *files("notebooks", suffixes=(".py", ".mplstyle")),
        ROOT / "requirements.lock",
    ]
    if re.search(r"(?m)^from book\b", text):
        inputs += files(*STUDIES, suffixes=(".py", ".csv"))
    key = digest(inputs, json.dumps(parameters, sort_keys=True), sys.version)
    return EXECUTED / f"{name}-{key[:16]}.ipynb"


def parameter_names(name: str) -> set[str]:
    """Return the names assigned in a chapter's parameters cell."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chapter.ipynb"
        nbformat.write(jupytext.read(source(name)), path)
        return set(papermill.inspect_notebook(path))


def execute_chapter(name: str, parameters: Mapping | None = None) -> Path:
    """Return the executed chapter, running it only if nobody has run it as it stands.

    Parameters
    ----------
    name : str
        The chapter's file name in ``notebooks/``, without its suffix.
    parameters : mapping, optional
        Values for names in the chapter's parameters cell.

    Returns
    -------
    Path
        The executed notebook.

    Raises
    ------
    ChapterError
        A parameter that the chapter does not declare, or a cell that failed, with its traceback.
    """
    parameters = dict(parameters or {})
    path = executed_path(name, parameters)
    EXECUTED.mkdir(parents=True, exist_ok=True)
    with locked(EXECUTED / f"{path.stem}.lock"):
        if not path.exists():
            if unknown := set(parameters) - parameter_names(name):
                raise ChapterError(f"notebooks/{name}.md declares no parameter {sorted(unknown)}")
            notebook = run(name, parameters)
            partial = path.with_suffix(".partial")
            nbformat.write(notebook, partial)
            partial.replace(path)
    return path


def run(name: str, parameters: Mapping) -> nbformat.NotebookNode:
    """Execute a chapter with papermill and strip what depends on the machine and the hour."""
    try:
        with kernel_environment() as runtime:
            # sockets in a file: no port, and no other kernel's messages
            sockets = {"transport": "ipc", "ip": f"{runtime}/kernel"}
            notebook = papermill.execute_notebook(
                jupytext.read(source(name)),
                None,
                parameters=parameters,
                kernel_name="python3",
                language="python",
                cwd=ROOT / "notebooks",
                progress_bar=False,
                start_timeout=300,  # a kernel starts slowly on a busy machine
                config=Config(KernelManager=sockets),
            )
    except papermill.PapermillExecutionError as error:
        trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
        raise ChapterError(
            f"notebooks/{name}.md: cell {error.cell_index} failed\n\n{error.source}\n\n{trace}"
        ) from None
    except DeadKernelError as error:  # out of memory, most often
        raise ChapterError(f"notebooks/{name}.md: {error}") from None
    ran = notebook.metadata.pop("papermill")
    notebook.metadata["execution"] = {
        "seconds": ran["duration"],
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "parameters": dict(parameters),
    }
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
    return notebook


@contextlib.contextmanager
def kernel_environment() -> Iterator[str]:
    """Let a kernel import the packages uninstalled; yield a folder for its run-time files."""
    before = dict(os.environ)
    path = os.pathsep.join(filter(None, [str(ROOT), before.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory(prefix="book-") as runtime:
        os.environ.update(PYTHONPATH=path, JUPYTER_RUNTIME_DIR=runtime)
        try:
            yield runtime
        finally:
            os.environ.clear()
            os.environ.update(before)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file lock, so that two builds at once still run each chapter once."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def attempt(name: str) -> Outcome:
    """Execute a chapter in a worker process, turning its failure into text."""
    try:
        return Outcome(name, execute_chapter(name))
    except ChapterError as error:
        return Outcome(name, None, str(error))


def execute_chapters(names: Iterable[str], jobs: int | None = None) -> dict[str, Outcome]:
    """Execute chapters side by side; those already executed cost nothing.

    Parameters
    ----------
    names : iterable of str
        Chapter names.
    jobs : int, optional
        Processes at once; by default one for each core.

    Returns
    -------
    dict
        An `Outcome` for each name, in the given order.
    """
    names = list(names)
    done = {name: Outcome(name, executed_path(name, {})) for name in names}
    missing = [name for name, outcome in done.items() if not outcome.path.exists()]
    if missing:
        spawn = multiprocessing.get_context("spawn")  # kernels do not survive a fork
        with ProcessPoolExecutor(jobs or os.cpu_count(), mp_context=spawn) as pool:
            pending = [pool.submit(attempt, name) for name in missing]
            bar = tqdm(as_completed(pending), total=len(missing), desc="chapters", unit="chapter")
            done |= {outcome.name: outcome for outcome in (future.result() for future in bar)}
    return done


def prune(outcomes: Mapping[str, Outcome]) -> None:
    """Delete executed notebooks that no chapter's present state refers to."""
    current = {outcome.path.stem for outcome in outcomes.values() if outcome.path}
    for path in EXECUTED.iterdir():
        if path.stem not in current:
            path.unlink(missing_ok=True)


def stage(outcomes: Mapping[str, Outcome]) -> str:
    """Lay out the source that Jupyter Book typesets; return a digest of it."""
    shutil.rmtree(STAGED, ignore_errors=True)
    ignore = shutil.ignore_patterns("__pycache__", "_ext", "*.py")
    shutil.copytree(ROOT / "book", STAGED / "book", ignore=ignore)
    shutil.copy(ROOT / "_toc.yml", STAGED)
    (STAGED / "notebooks").mkdir()
    for name, outcome in outcomes.items():
        shutil.copy(outcome.path, STAGED / "notebooks" / f"{name}.ipynb")
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    config["execute"]["execute_notebooks"] = "off"
    extensions = config["sphinx"]["local_extensions"]
    config["sphinx"]["local_extensions"] = {k: str(ROOT / v) for k, v in extensions.items()}
    (STAGED / "_config.yml").write_text(yaml.safe_dump(config))
    staged = sorted(path for path in STAGED.rglob("*") if path.is_file())
    # the ledger page is made by an extension that renders claims with the chapters' own module
    code = files("book/_ext", "notebooks", suffixes=(".py",))
    return digest([*staged, *code, ROOT / "requirements.lock"])


def typeset(inputs: str) -> None:
    """Run Jupyter Book on the staged source; any warning is an error."""
    if STAMP.exists() and STAMP.read_text() == inputs:
        print(f"the book is up to date: {HTML / 'index.html'}")
        return
    for folder in (HTML, BUILD / ".doctrees", BUILD / "jupyter_execute"):
        shutil.rmtree(folder, ignore_errors=True)  # a page read earlier would not warn again
    jupyter_book = Path(sys.executable).with_name("jupyter-book")
    options = ["--path-output", ROOT, "-W", "-n", "--keep-going"]
    subprocess.run([jupyter_book, "build", STAGED, *options], check=True)
    STAMP.write_text(inputs)


def problems(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return what is wrong with the executed chapters, one message each."""
    found = [outcome.error for outcome in outcomes.values() if outcome.error]
    claims = []
    for name, outcome in outcomes.items():
        if outcome.error:
            continue
        recorded = outcome.claims()
        if not recorded:
            found.append(f"notebooks/{name}.md records no claim")
        found += [f"notebooks/{name}.md: {c.to_text()}" for c in recorded if not c.holds]
        claims += recorded
    try:
        require_unique(claims)
    except ValueError as error:
        found.append(str(error))
    return found


def build(jobs: int | None = None) -> Path:
    """Execute the chapters, check their claims and typeset the book.

    Returns
    -------
    Path
        The folder of HTML pages.

    Raises
    ------
    ChapterError
        A chapter failed, records no claim, or records a claim whose check failed.
    """
    outcomes = execute_chapters(chapters(), jobs)
    if found := problems(outcomes):
        raise ChapterError("\n\n".join(found))
    prune(outcomes)
    with locked(BUILD / "book.lock"):
        typeset(stage(outcomes))
    return HTML


def main() -> None:
    """Build the book from the command line."""
    parser = argparse.ArgumentParser(description="Execute the chapters and build the book.")
    parser.add_argument("--jobs", type=int, help="chapters executed at once (default: all cores)")
    parser.add_argument("--chapter", choices=chapters(), help="execute this chapter only")
    arguments = parser.parse_args()
    try:
        if arguments.chapter:
            outcomes = execute_chapters([arguments.chapter], 1)
            if found := problems(outcomes):
                raise ChapterError("\n\n".join(found))
            for claim in outcomes[arguments.chapter].claims():
                print(claim.to_text())
        else:
            print(build(arguments.jobs) / "index.html")
    except ChapterError as error:
        sys.exit(f"\n{error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"\njupyter-book failed (exit {error.returncode}): see the warnings above")


if __name__ == "__main__":
    main()
