"""How much the symbols of docids say: one that most documents have tells them apart as little as none would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from triever.docids.schemes.base import Coding, Scheme
from triever.docids.trie import Paths, Trie

WARNING = "warning about codes"
"""The name of what is bad, among other facts."""
CROWDED = 0.5
"""A position is as good as lost if its commonest symbol has more than this share of docids, and its fair share."""
SHARED = 0.05
"""The share of docids with the code of another one above which codes are too few."""
FEW = 100
"""Fewer docids than these, or fewer that the symbols before a position leave undecided, are no ground for a warning."""
TIED = 10
"""Fewer documents than these that share their whole docid are no ground for a warning."""


@dataclass(frozen=True)
class PositionUse:
    """The symbols that stand at one position of codes."""

    symbols: int  # different ones
    commonest: float  # the share of all docids that have the commonest one
    perplexity: float  # so many symbols that are equally common would say as much
    undecided: float  # the share of all docids that the symbols before do not tell from every other one

    @classmethod
    def of(cls, symbols: np.ndarray, undecided: np.ndarray) -> PositionUse:
        """The use of symbols (docids,), -1 where codes are shorter, given which docids are undecided (docids,)."""
        inside = symbols >= 0
        counts = np.unique(symbols[inside], return_counts=True)[1]
        share = counts / counts.sum()
        perplexity = float(np.exp(-(share * np.log(share)).sum()))
        common, left = float(counts.max()) / len(symbols), float((undecided & inside).mean())
        return cls(len(counts), round(common, 4), round(perplexity, 1), round(left, 4))


@dataclass(frozen=True)
class CodeUse:
    """How codes of vectors use their symbols, and how many docids share their code with another one."""

    coding: Coding
    docids: int
    positions: tuple[PositionUse, ...]
    shared: float

    def facts(self, *, ranked: bool = False) -> dict[str, object]:
        """All of it by name, for a card; see `warnings` for `ranked`."""
        facts: dict[str, object] = {f"code position {at}": asdict(use) for at, use in enumerate(self.positions, 1)}
        if self.coding.distinct:
            facts["share of docids with the code of another"] = self.shared
        warnings = self.warnings(ranked=ranked)
        return facts | ({WARNING: ". ".join(warnings)} if warnings else {})

    def warnings(self, *, ranked: bool = False) -> list[str]:
        """What is bad, and what to do about it.

        Where documents of one code are `ranked` by something else, such as their vectors, they may share codes.
        """
        if self.docids < FEW:
            return []
        warnings = []
        if crowded := self._crowded:
            where = ", ".join(map(str, crowded))
            shares = ", ".join(f"{self.positions[at - 1].commonest:.0%}" for at in crowded)
            one = len(crowded) == 1
            problem = (
                f"at {'position' if one else 'positions'} {where} of docids, one symbol stands for {shares} of "
                f"{self.docids:,} docids, so that {'it tells' if one else 'they tell'} little"
            )
            warnings.append(f"{problem}; {self.coding.if_crowded}")
        if self.coding.distinct and not ranked and self.shared > SHARED:
            problem = f"{self.shared:.0%} of {self.docids:,} docids share their code and differ in a number alone"
            warnings.append(f"{problem}; {self.coding.if_shared}")
        return warnings

    @property
    def _crowded(self) -> Sequence[int]:
        """The positions, from 1, whose commonest symbol has too large a share, also of so few choices.

        Where nearly every docid is decided already, nothing is left to tell, and equal symbols do no harm.
        """
        limit, least = CROWDED + (1 - CROWDED) / self.coding.choices, FEW / self.docids
        return [at for at, use in enumerate(self.positions, 1) if use.commonest > limit and use.undecided >= least]


def code_facts(trie: Trie, scheme: Scheme, *, ranked: bool = False) -> dict[str, object]:
    """How docids use their symbols, and what is bad about it, by name; see `CodeUse.warnings` for `ranked`."""
    if use := code_use(trie, scheme):
        return use.facts(ranked=ranked)
    tied = "" if ranked else ties(trie, scheme)
    return {WARNING: tied} if tied else {}


def code_warnings(trie: Trie, scheme: Scheme, *, ranked: bool = False) -> list[str]:
    """What is bad about docids, and what to do about it."""
    if use := code_use(trie, scheme):
        return use.warnings(ranked=ranked)
    return [tied for tied in [ties(trie, scheme)] if tied and not ranked]


def ties(trie: Trie, scheme: Scheme) -> str:
    """A warning where many documents share their whole docid, by a scheme that means to tell them apart; else ""."""
    if not scheme.if_tied or len(trie) < 2:
        return ""
    main = trie.compact().parts[0]
    entries = main.count[main.leaf]  # those at one leaf share their docid
    count, total = int(entries[entries > 1].sum(dtype=np.int64)), main.entries
    if count < TIED or count <= SHARED * total:
        return ""
    depth = np.searchsorted(main.levels, np.flatnonzero(main.leaf)[entries > 1], side="right") - 1
    length = int(np.bincount(depth, entries[entries > 1]).argmax())  # that most of them have
    problem = f"{count:,} of {total:,} documents or passages share their {scheme.kind} docid with another one"
    return f"{problem}, so that a search cannot tell these apart; {scheme.tied_hint(length)}"


def code_use(trie: Trie, scheme: Scheme) -> CodeUse | None:
    """How the docids of a trie use their symbols; None where they are not codes of vectors."""
    coding = scheme.coding
    if coding is None or not len(trie):
        return None
    codes = _codes(trie.paths(), numbered=coding.numbered)
    # A trie lists docids in their order, so that those with the same beginning lie side by side.
    positions, same = [], np.ones(len(codes) - 1, bool)
    for symbols in codes.T:
        positions.append(PositionUse.of(symbols, _beside(same)))
        same &= symbols[1:] == symbols[:-1]
    return CodeUse(coding, len(codes), tuple(positions), round(float(_beside(same).mean()), 4))


def _beside(same: np.ndarray) -> np.ndarray:
    """(n,) whether each of n is the same as one beside it, given whether the next one is (n - 1,)."""
    return np.append(same, False) | np.insert(same, 0, False)


def _codes(paths: Paths, *, numbered: bool) -> np.ndarray:
    """(docids, longest) the docids, without the numbers at their ends where they are numbered; -1 behind the end."""
    length = np.diff(paths.start) - numbered
    slot = np.arange(int(length.max(initial=0)))
    inside = slot < length[:, None]
    codes = np.full(inside.shape, -1, np.int64)
    codes[inside] = paths.flat[(paths.start[:-1, None] + slot)[inside]]
    return codes
