"""Bad records: strict reading stops at the first, lenient reading counts them and goes on.

Knows nothing of formats: the reader reports where the record is, what is wrong and what to do.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from triever.errors import BadRecord

KEPT_EXAMPLES = 10
KNOWN = 10**5
"""How many bad records are remembered, to be counted once; beyond these, each counts as often as it is read."""
BAD_RECORDS = "bad records"
"""The usual reason why a record is left out."""
OR_SKIP = ", or leave it out with --skip-bad"
"""The end of a hint about a record without which the others can be read; strict reading shows it."""
OR_KEEP = ", or keep what comes before with --skip-bad"
"""The end of a hint about a file that breaks off; strict reading shows it."""
KINDS = 1000
"""How many kinds of records are counted by themselves; all others are counted together."""


class Problems:
    """The bad records of one reading; also counts text files, and records of archives that hold no document.

    >>> lenient = Problems(skip_bad=True)
    >>> lenient.report("corpus.jsonl", 7, "the id is empty")
    >>> lenient.count, lenient.examples
    (1, ['corpus.jsonl:7: the id is empty'])
    """

    def __init__(self, skip_bad: bool = False) -> None:
        self.skip_bad = skip_bad
        self.count = 0  # of distinct bad records: some files are read more than once
        self.reports = 0
        self.examples: list[str] = []
        self.reasons: Counter[str] = Counter()
        self.files = 0  # text files that were read
        self.passed_over: Counter[str] = Counter()  # records of archives that hold no document, by what they are
        self._known: set[int] = set()

    def report(self, path: str | Path, line: int, problem: str, hint: str = "", reason: str = BAD_RECORDS) -> None:
        """Raise BadRecord; or count the record in total and by its reason, and keep the first few as examples."""
        if self.skip_bad and len(self._known) >= KNOWN:
            self.reports += 1
            self.count += 1
            self.reasons[reason] += 1
            return
        shown = hint.removesuffix(OR_SKIP).removesuffix(OR_KEEP) if self.skip_bad else hint
        error = BadRecord(path, line, problem, shown)
        if not self.skip_bad:
            raise error
        self.reports += 1
        if (key := hash(str(error))) in self._known:
            return
        self._known.add(key)
        self.count += 1
        self.reasons[reason] += 1
        if len(self.examples) < KEPT_EXAMPLES:
            self.examples.append(str(error))

    def report_end(self, path: str | Path, line: int, problem: str, hint: str = "", reason: str = BAD_RECORDS) -> None:
        """Report a problem that ends the reading: it counts as one bad record, but the rest of the file is missing."""
        lost = ", and the rest of the file is missing" if self.skip_bad else ""
        self.report(path, line, f"{problem}{lost}", hint.removesuffix(OR_SKIP), reason)

    def pass_over(self, kind: str) -> None:
        """Count a record of an archive that is in order, and holds no document."""
        self.passed_over[kind if kind in self.passed_over or len(self.passed_over) < KINDS else "others"] += 1

    def __repr__(self) -> str:
        return f"Problems(skip_bad={self.skip_bad}, count={self.count})"
