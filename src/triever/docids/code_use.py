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
"""Fewer docids than these are no ground for a warning."""


@dataclass(frozen=True)
class PositionUse:
    """The symbols that stand at one position of codes."""

    symbols: int  # different ones
    commonest: float  # the share of all docids that have the commonest one
    perplexity: float  # so many symbols that are equally common would say as much

    @classmethod
    def of(cls, symbols: np.ndarray, docids: int) -> PositionUse:
        """The use of these symbols, of the codes that are so long; there are so many docids in all."""
        counts = np.unique(symbols, return_counts=True)[1]
        share = counts / counts.sum()
        perplexity = float(np.exp(-(share * np.log(share)).sum()))
        return cls(len(counts), round(float(counts.max()) / docids, 4), round(perplexity, 1))


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
        """The positions, from 1, whose commonest symbol has too large a share, also of so few choices."""
        limit = CROWDED + (1 - CROWDED) / self.coding.choices
        return [at for at, use in enumerate(self.positions, 1) if use.commonest > limit]


def code_use(trie: Trie, scheme: Scheme) -> CodeUse | None:
    """How the docids of a trie use their symbols; None where they are not codes of vectors."""
    coding = scheme.coding
    if coding is None or not len(trie):
        return None
    codes = _codes(trie.paths(), numbered=coding.numbered)
    positions = tuple(PositionUse.of(column[column >= 0], len(codes)) for column in codes.T)
    # A trie lists docids in their order, so that equal codes lie side by side.
    same = (codes[1:] == codes[:-1]).all(1)
    shared = np.append(same, False) | np.insert(same, 0, False)
    return CodeUse(coding, len(codes), positions, round(float(shared.mean()), 4))


def _codes(paths: Paths, *, numbered: bool) -> np.ndarray:
    """(docids, longest) the docids, without the numbers at their ends where they are numbered; -1 behind the end."""
    length = np.diff(paths.start) - numbered
    slot = np.arange(int(length.max(initial=0)))
    inside = slot < length[:, None]
    codes = np.full(inside.shape, -1, np.int64)
    codes[inside] = paths.flat[(paths.start[:-1, None] + slot)[inside]]
    return codes
