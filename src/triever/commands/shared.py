"""Functions that several commands share: they open data, check arguments before the work, and give the command line."""

from __future__ import annotations

import gzip
import json
import logging
import math
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from triever.arguments import as_path
from triever.errors import UsageError, nearest

if TYPE_CHECKING:
    from triever.data.datasets import Dataset

_log = logging.getLogger("triever")
READ_AS = ("text", "records")
GZIP = b"\x1f\x8b"
"""The beginning of every file that gzip has packed."""
LONGEST_LINE = 2**20
"""Bytes of a first line that are looked at."""
LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")
"""The variables that torchrun and accelerate launch set for their processes; batch systems set some of them too."""


def open_data(
    name: str | Path, skip_bad: bool = False, read_as: str = "", root: Path | None = None, kept_root: str = ""
) -> Dataset:
    """The dataset of this name; ids of text files begin at `root`, or else at the kept one."""
    from triever.data.datasets import load_dataset

    if read_as not in ("", *READ_AS):
        raise UsageError(f"--as {read_as} is unknown", nearest(read_as, READ_AS))
    if root and not root.is_dir():
        raise UsageError(f"--root {root} is not a folder", "name the folder at which the ids of text files begin")
    dataset = load_dataset(name, skip_bad=skip_bad, read_as=read_as, root=root or kept_root)
    if root and not dataset.root:
        _log.warning("%s: --root is not used, because records have their own ids", dataset.name)
    return dataset


def check_before_work(measures: Sequence[str], plot: Path | None, out: Path | None = None) -> None:
    """Refuse measures and files that cannot be used, before hours of work and not after."""
    from triever.evaluation.measures import check
    from triever.evaluation.picture import check_picture

    if measures:
        check(measures)
    if plot:
        check_picture(plot)
    for path in filter(None, (plot, out)):
        check_file(path)


def check_file(path: Path) -> None:
    """Refuse a file to write that is a folder, or that cannot be made."""
    if os.path.isdir(as_path(path)):
        raise UsageError(f"{path} is a folder", "name a file to write")
    check_parents(path)


def check_replaced(path: Path, kind: str, is_one: Callable[[bytes], bool]) -> None:
    """Refuse to replace a file that is none of this kind, by its first line: it was probably named by mistake."""
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
        with gzip.open(path) if packed else path.open("rb") as file:
            known = is_one(file.readline(LONGEST_LINE))
    except (EOFError, zlib.error, gzip.BadGzipFile):
        known = False
    if not known:
        raise UsageError(f"{path} is there already and is no {kind}", "name another file, or remove this one first")


def is_run_line(line: bytes) -> bool:
    """Whether a line is one of a TREC run.

    >>> is_run_line(b"q1 Q0 d1 1 0.5 bm25"), is_run_line(b"how to write a file at once")
    (True, False)
    """
    try:
        _, _, _, rank, score, _ = line.split()
        return int(rank) >= 0 and not math.isnan(float(score))
    except ValueError:
        return False


def is_questions_line(line: bytes) -> bool:
    """Whether a line is one of a file of questions that were written for documents.

    >>> is_questions_line(b'{"_id": "d1", "texts": []}'), is_questions_line(b'{"_id": "d1", "text": "a"}')
    (True, False)
    """
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and {"_id", "texts"} <= found.keys()


def check_parents(path: Path) -> None:
    """Refuse a path to write to that lies below a file, or in a folder that this user may not write to."""
    whole = Path(os.path.abspath(as_path(path)))
    there = next(parent for parent in (whole, *whole.parents) if os.path.exists(parent))
    if there != whole and not there.is_dir():
        raise UsageError(f"{path} cannot be created, because {there} is a file", "choose another path")
    if there.is_dir() and not os.access(there, os.W_OK):
        raise UsageError(f"{path} cannot be written, because {there} is read-only for you", "choose another path")


def command_words() -> list[str]:
    """The words of the command line without --out and its value."""
    words = [word for word in sys.argv[1:] if not word.startswith("--out=")]
    at = words.index("--out") if "--out" in words else len(words)
    return words[:at] + words[at + 2 :]


def is_launched() -> bool:
    """Whether this process is one of several that were started together, to train together."""
    return all(name in os.environ for name in LAUNCHED) and os.environ["WORLD_SIZE"] != "1"


def is_first_process() -> bool:
    """Whether this process saves the model and says how far it is: of several that train together, the first does."""
    return not is_launched() or os.environ["RANK"] == "0"
