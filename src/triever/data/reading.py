"""Where the documents of a dataset come from, and what became of all files that lie there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

TEXT = "text"
RECORDS = "records"
NAMED = 6
"""How many endings of files that were not read are told."""

_LONGEST = 12


@dataclass(frozen=True, slots=True)
class Source:
    """Files that were read as text, one document each, or as records; of what is in memory, nothing.

    Ids of text files are paths below the root. Ignored files look like data, unread ones do not.
    """

    read_as: str = ""
    files: int = 0
    root: str = ""
    ignored: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


IN_MEMORY = Source()


@dataclass(frozen=True, slots=True)
class Reading:
    """How many documents came from how many files; files that were not read by ending, bad ones by reason.

    >>> print(Reading(520, 520, {".pdf": 2, ".html": 3}, {"too large": 1}))
    520 documents from 520 files; not read: 5 (.pdf 2, .html 3); too large: 1
    """

    documents: int
    files: int = 0
    unread: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source, documents: int, left_out: Mapping[str, int]) -> Reading:
        """What became of the files of a source, of which so many documents were read."""
        files = documents if source.read_as == TEXT else source.files
        return cls(documents, files, by_ending((*source.ignored, *source.unread)), dict(left_out))

    def __str__(self) -> str:
        origin = f" from {self.files:,} files" if self.files else ""
        said = [f"{self.documents:,} documents{origin}"]
        if self.unread:
            said.append(f"not read: {counted(self.unread)}")
        said += [f"{reason}: {count:,}" for reason, count in self.left_out.items()]
        return "; ".join(said)


def counted(counts: Mapping[str, int]) -> str:
    """A sum and its parts.

    >>> counted({".pdf": 2, ".html": 3})
    '5 (.pdf 2, .html 3)'
    """
    return f"{sum(counts.values()):,} ({', '.join(f'{name} {count:,}' for name, count in counts.items())})"


def by_ending(names: Iterable[str]) -> dict[str, int]:
    """How many files have each ending, the most common last; of many endings only the most common have a name.

    >>> by_ending(["a.html", "b.HTML", "c.pdf", "Makefile", "linked/"])
    {'.pdf': 1, 'folders': 1, 'no ending': 1, '.html': 2}
    """
    counts = Counter(map(_ending, names))
    common = sorted(counts, key=lambda ending: (-counts[ending], ending))
    told = common if len(common) <= NAMED else common[: NAMED - 1]
    others = {"others": counts.total() - sum(counts[one] for one in told)} if len(told) < len(common) else {}
    return others | {ending: counts[ending] for ending in sorted(told, key=lambda one: (counts[one], one))}


def _ending(name: str) -> str:
    if name.endswith("/"):
        return "folders"
    ending = PurePath(name).suffix.lower()
    return ending if len(ending) <= _LONGEST and ending[1:].isalnum() else "no ending"
