"""The default corpus: the documentation of a Python interpreter, and questions that people ask about it.

One document per documented module, class, function, method and property, under its public name. The interpreter
runs in a process of its own, so that its imports do not affect the caller.
"""

from __future__ import annotations

import contextlib
import difflib
import gzip
import hashlib
import importlib.resources
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, cast

from triever.data.cache import cache_folder
from triever.data.records import Document, Query
from triever.errors import DataError, UsageError
from triever.files import atomic

Judgements: TypeAlias = dict[str, dict[str, dict[str, int]]]
"""Split -> query id -> document id -> grade."""

_WORKER = Path(__file__).with_name("_python_walk.py")
_TIMEOUT = 300.0  # seconds; the standard library takes two, the largest packages a minute
_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "SYSTEMROOT")
_log = logging.getLogger("triever")


class _Probe(TypedDict):
    """The line that the worker writes about an interpreter and a package."""

    identity: list[str | int]
    standard: bool
    installed: bool
    known: list[str]


def documents(package: str = "", *, python: str = sys.executable) -> list[Document]:
    """The documentation of the standard library, of a part of it, or of an installed package.

    It is sorted by name and the same each time. It is kept in the cache folder until the interpreter or the
    package's version changes.
    """
    about = _probe(package, python)
    scope = "" if about["standard"] else package  # json is a part of the whole, under the same names
    rows = _kept(scope, python, about["identity"])
    return [_document(row) for row in rows if not package or f"{row['id']}.".startswith(f"{package}.")]


def questions() -> tuple[list[Query], Judgements]:
    """The shipped questions on the standard library, and which documents answer them, by split."""
    folder = importlib.resources.files("triever.data").joinpath("questions")
    files = [folder.joinpath(name).read_text(encoding="utf-8") for name in ("python.jsonl", "python-train.jsonl")]
    rows = [{"split": "train"} | json.loads(line) for file in files for line in file.splitlines()]
    judgements: Judgements = {"train": {}, "dev": {}, "test": {}}
    for row in rows:
        judgements[row["split"]][row["_id"]] = dict.fromkeys(row["answers"], 1)
    return [Query(row["_id"], row["text"]) for row in rows], judgements


def written_questions() -> dict[str, list[str]]:
    """Generated questions on the standard library, by document id; docs/query-writer.md has the command."""
    source = importlib.resources.files("triever.data").joinpath("questions", "written.jsonl.gz")
    rows = map(json.loads, gzip.decompress(source.read_bytes()).decode("utf-8").splitlines())
    return {row["_id"]: row["texts"] for row in rows}


def _document(row: dict[str, str]) -> Document:
    text = f"{row['signature']}\n\n{row['doc']}" if row["signature"] else row["doc"]
    return Document(row["id"], text, title=row["id"], metadata={"kind": row["kind"]})


# The other process ----------------------------------------------------------------------------------------


def _probe(package: str, python: str) -> _Probe:
    """The identity of the interpreter and the package, for the cache; an error if there is no such package."""
    about = cast(_Probe, _ask(python, ["-P"], "probe", package)[0])  # the worker is ours
    if not about["installed"]:
        raise UsageError(f"there is no installed package named {package!r}", _suggestion(package, about["known"]))
    return about


def _suggestion(package: str, known: list[str]) -> str:
    public = sorted(name for name in known if not name.startswith("_"))
    close = difflib.get_close_matches(package, public, n=3)
    return f"install it, or name one of: {', '.join(close or public[:8]) or 'the standard library'}"


def _walk(package: str, python: str) -> list[dict[str, str]]:
    # The standard library is read without site-packages (-S): packages there can replace parts of it.
    about, *rows = _ask(python, ["-P"] if package else ["-P", "-S"], "walk", package)
    if about["error"]:
        raise UsageError(
            f"the package {package!r} cannot be imported ({about['error']})", "repair it, or name another one"
        )
    _log.debug("%d documents of %s; %d modules failed", len(rows), package or "Python", about["failed"])
    return rows


def _ask(python: str, flags: list[str], command: str, package: str) -> list[dict[str, Any]]:
    """Run the worker in a temporary folder and read the lines that it writes."""
    interpreter = os.path.abspath(shutil.which(python) or python)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        output = Path(folder, "output.jsonl")
        _run([interpreter, *flags, str(_WORKER), command, package, str(output)], folder)
        try:
            return [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError) as error:
            raise DataError(
                f"{python} ended before its documentation was read", "name a single package, or another Python"
            ) from error


def _environment() -> dict[str, str]:
    """The environment without display and secrets, which an imported module could use.

    With -P this is as isolated as -I, which would also ignore the seed that fixes the order of sets.
    """
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return {**kept, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}


def _run(command: list[str], folder: str) -> None:
    try:
        subprocess.run(
            command,
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT,
            check=False,  # only the output file counts
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(
            f"{command[0]} did not read its documentation within {_TIMEOUT:.0f} s", "name a single package"
        ) from error
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run", "name a Python interpreter") from error


# The cache ------------------------------------------------------------------------------------------------


def _kept(package: str, python: str, identity: list[str | int]) -> list[dict[str, str]]:
    """The rows from the cache, or else from a walk."""
    path = _cache_file(package, identity)
    rows = _read_cache(path) if path else None
    if rows is None:
        rows = _walk(package, python)
        if path:
            _write_cache(path, rows)
    return rows


def _cache_file(package: str, identity: list[str | int]) -> Path | None:
    """The cache file for this interpreter and package, or None if there can be no cache folder."""
    worker = hashlib.sha256(_WORKER.read_bytes()).hexdigest()
    key = hashlib.sha256(json.dumps([package, worker, *identity]).encode()).hexdigest()[:16]
    try:
        return cache_folder() / f"python-{package or 'library'}-{key}.jsonl"
    except OSError:
        return None


def _read_cache(path: Path) -> list[dict[str, str]] | None:
    """The rows, or None if there is no file or it is damaged: its first line has the hash of the rest."""
    try:
        head, _, body = path.read_text(encoding="utf-8").partition("\n")
        return [json.loads(line) for line in body.splitlines()] if head == _sum(body) else None
    except (OSError, ValueError):
        return None


def _write_cache(path: Path, rows: list[dict[str, str]]) -> None:
    """Write the rows if that is possible; an error does not matter, as they can be made again."""
    body = "".join(f"{json.dumps(row)}\n" for row in rows)
    with contextlib.suppress(DataError), atomic(path) as file:
        file.write(f"{_sum(body)}\n{body}".encode())


def _sum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
