"""Functions that several commands share: they open data, check arguments before the work, and give the command line."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from triever.arguments import as_path
from triever.errors import DataError, UsageError, nearest

if TYPE_CHECKING:
    from triever.data.datasets import Dataset
    from triever.data.formats.sniff import Format

_log = logging.getLogger("triever")
READ_AS = ("text", "records")
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
    from triever.evaluation.picture import check_picture, is_picture

    if measures:
        check(measures)
    if plot:
        check_picture(plot)
    if plot and out and os.path.realpath(as_path(plot)) == os.path.realpath(as_path(out)):
        raise UsageError(f"--plot and --out both name {out}", "give each a file of its own")
    if plot:
        check_file(plot)
        check_own(plot, is_picture, "picture")
    if out:
        check_result_file(out)


def check_result_file(path: Path) -> None:
    """Refuse a file for a result that cannot be made, or that holds anything but an earlier result."""
    from triever.lab.results import is_result

    check_file(path)
    check_own(path, is_result, "result of Triever")


def check_own(path: Path, is_own: Callable[[Path], bool], kind: str) -> None:
    """Refuse to replace a file of another kind: it was probably named by mistake."""
    if path.is_file() and path.stat().st_size and not is_own(path):
        raise UsageError(f"{path} is there already and is no {kind}", "name another file, or remove this one first")


def check_file(path: Path) -> None:
    """Refuse a file to write that is a folder, or that cannot be made."""
    if os.path.isdir(as_path(path)):
        raise UsageError(f"{path} is a folder", "name a file to write")
    check_parents(path)


def check_replaced(path: Path, kind: str, form: Format) -> None:
    """Refuse to replace a file that has another format."""
    from triever.data.formats.sniff import recognise

    def has_format(path: Path) -> bool:
        try:
            found = recognise(path)
        except DataError:  # it is damaged
            return False
        return found is not None and found.format is form

    check_own(path, has_format, kind)


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
