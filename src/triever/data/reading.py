"""The source of the documents of a dataset, and counts of its files that were read and were not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

from triever.printable import count_of

if TYPE_CHECKING:
    from triever.data.formats.problems import Problems

TEXT = "text"
RECORDS = "records"
NAMED = 6
"""How many endings of unread files are named."""

_LONGEST = 12
_DOUBLE = ".warc.gz"  # an ending of two parts, of which the second alone would not say what the file is


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a dataset, read as text or as records; all empty for a dataset in memory.

    Ids of text files are paths below the root. Ignored files look like data, unread ones do not. `missing` has the
    packages that are not installed, by the endings of the files that they would read.
    """

    read_as: str = ""
    files: int = 0
    root: str = ""
    ignored: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)


IN_MEMORY = Source()


@dataclass(frozen=True, slots=True)
class Reading:
    """Counts of documents and files, of unread files by ending, and of bad files or records by reason.

    Records of web archives that hold no document are counted by what they are.

    >>> print(Reading(520, 520, {".odt": 2, ".png": 3}, {"too large": 1}))
    520 documents from 520 files; not read: 5 (.odt 2, .png 3); too large: 1
    >>> print(Reading(40, 2, unread_records={"image/png": 7, "request": 50}))
    40 documents from 2 files; records of archives not read: 57 (image/png 7, request 50)
    >>> print(Reading(1, 1))
    1 document from 1 file
    """

    documents: int
    files: int = 0
    unread: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    unread_records: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source, documents: int, problems: Problems) -> Reading:
        """The counts for a source from which `documents` documents were read, with these problems."""
        files = problems.files if source.read_as == TEXT else source.files
        unread = by_ending((*source.ignored, *source.unread))
        named = {_with_reason(ending, source.missing): count for ending, count in unread.items()}
        return cls(documents, files, named, dict(problems.reasons), most_common(problems.passed_over))

    def __str__(self) -> str:
        origin = f" from {count_of(self.files, 'file')}" if self.files else ""
        parts = [f"{count_of(self.documents, 'document')}{origin}"]
        if self.unread:
            parts.append(f"not read: {counted(self.unread)}")
        if self.unread_records:
            parts.append(f"records of archives not read: {counted(self.unread_records)}")
        parts += [f"{reason}: {count:,}" for reason, count in self.left_out.items()]
        return "; ".join(parts)


def counted(counts: Mapping[str, int]) -> str:
    """A sum and its parts.

    >>> counted({".pdf": 2, ".html": 3})
    '5 (.pdf 2, .html 3)'
    """
    return f"{sum(counts.values()):,} ({', '.join(f'{name} {count:,}' for name, count in counts.items())})"


def by_ending(names: Iterable[str]) -> dict[str, int]:
    """The number of files with each ending, the most common last; rare endings are counted together as "others".

    >>> by_ending(["a.html", "b.HTML", "c.pdf", "Makefile", "linked/"])
    {'.pdf': 1, 'folders': 1, 'no ending': 1, '.html': 2}
    """
    return most_common(Counter(map(_ending, names)))


def most_common(counts: Counter[str]) -> dict[str, int]:
    """The most common names with their counts, the most common last; the others are counted together."""
    common = sorted(counts, key=lambda ending: (-counts[ending], ending))
    named = common if len(common) <= NAMED else common[: NAMED - 1]
    unnamed = {"others": counts.total() - sum(counts[ending] for ending in named)} if len(named) < len(common) else {}
    return unnamed | {ending: counts[ending] for ending in sorted(named, key=lambda ending: (counts[ending], ending))}


def _with_reason(ending: str, missing: Mapping[str, str]) -> str:
    return f"{ending} without {missing[ending]}" if ending in missing else ending


def _ending(name: str) -> str:
    if name.endswith("/"):
        return "folders"
    if name.lower().endswith(_DOUBLE):
        return _DOUBLE
    ending = PurePath(name).suffix.lower()
    return ending if len(ending) <= _LONGEST and ending[1:].isalnum() else "no ending"
