"""What a search for one query did with the prefixes that it looked at, for a person to see.

A search is given a recorder only where it is to be explained; it records nothing else, and nothing of it depends on
the recorder. A prefix was `kept` if others were written behind it, `ended` if its docid was among those that the search
returned, or if the search was to stop there, and else `pruned`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

PRUNED = 5
"""The best pruned prefixes of a step that are recorded, besides all that may be kept or ended."""


@dataclass(frozen=True)
class Step:
    """Prefixes of one length that a search looked at, one symbol longer than those that it extended."""

    prefixes: np.ndarray  # (n, length)
    state: np.ndarray  # (n, parts)
    logprob: np.ndarray  # (n,) float64
    final: np.ndarray  # (n,) bool: its probability is that of a docid
    candidates: int  # how many there were, of which n are recorded


@dataclass(frozen=True)
class Seen:
    """A prefix of a finished search."""

    prefix: tuple[int, ...]
    state: tuple[int, ...]
    logprob: float
    outcome: Literal["kept", "ended", "pruned"]


@dataclass(frozen=True)
class SeenLevel:
    """The recorded prefixes of one length, the most probable first, and how many there were with each outcome."""

    length: int
    kept: int
    ended: int
    pruned: int
    prefixes: tuple[Seen, ...]


@dataclass
class Recorder:
    """`recorder = Recorder()`, then `beam(..., recorder=recorder)` and `recorder.levels()`.

    `pruned` is how many pruned prefixes of a step are recorded; None is all.
    """

    pruned: int | None = PRUNED
    _steps: list[Step] = field(default_factory=list, init=False)
    _extended: set[tuple[int, ...]] = field(default_factory=set, init=False)
    _ended: Callable[[Seen, bool], bool] = field(default=lambda _prefix, _final: False, init=False)
    _shift: float = field(default=0.0, init=False)

    # What a search calls

    def begin(self) -> None:
        """Forget an earlier search: where a beam was too narrow, the wider one counts."""
        self._steps, self._extended, self._shift = [], set(), 0.0

    def add(
        self,
        parents: Sequence[tuple[int, ...]],
        token: Tensor,
        state: Tensor,
        logprob: Tensor,
        final: Tensor,
        limit: int,
    ) -> None:
        """Record the children of prefixes: symbols, log-probabilities and whether these are final (n, C), and states.

        The best `limit` of those that are final and of the others are recorded, and a few more. Where the
        log-probability is -inf, there is no child.
        """
        if not parents:
            return
        self._extended.update(parents)
        flat, over = logprob.flatten(), final.flatten()
        groups = (flat.masked_fill(over, -torch.inf), flat.masked_fill(~over, -torch.inf))
        at = torch.cat([self._best(group, limit) for group in groups])
        above = np.array(parents, np.int64).reshape(len(parents), -1)[(at // token.shape[1]).cpu().numpy()]
        symbols = token.flatten()[at].cpu().numpy()
        step = Step(
            np.concatenate([above, symbols[:, None]], 1),
            state.flatten(0, 1)[at].cpu().numpy(),
            flat[at].double().cpu().numpy(),
            over[at].cpu().numpy(),
            int(flat.isfinite().sum()),
        )
        self._steps.append(step)

    def _best(self, logprob: Tensor, limit: int) -> Tensor:
        """Where the highest finite ones are."""
        there = int(logprob.isfinite().sum())
        return logprob.topk(there if self.pruned is None else min(there, limit + self.pruned)).indices

    def end_beam(self, pool: tuple[Tensor, Tensor], stopped: Tensor | None, shift: float) -> None:
        """Note which docids a beam returns by states (n, parts) and log-probabilities (n,), and where it stopped.

        A prefix with one docid left may be finished beyond what is recorded, and is then known by its state alone. All
        log-probabilities are recorded less the `shift`.
        """
        states, logprobs = (column.cpu().tolist() for column in pool)
        docids = {(tuple(state), value) for state, value in zip(states, logprobs, strict=True) if value > -np.inf}
        places = {state for state, _ in docids} | {
            tuple(state) for state in ([] if stopped is None else stopped.tolist())
        }
        self._ended = lambda seen, final: (seen.state, seen.logprob) in docids if final else seen.state in places
        self._shift = shift

    def end_exact(self, returned: Iterable[int], documents: Callable[[list[int]], list[int]]) -> None:
        """Note the documents that an exact search returns, and what has the documents of a state."""
        known = set(returned)
        self._ended = lambda seen, final: final and not known.isdisjoint(documents(list(seen.state)))

    # What an explanation asks for

    def levels(self) -> list[SeenLevel]:
        """What became of the prefixes, by length; all outcomes are known once the search is over."""
        by_length: dict[int, list[Step]] = defaultdict(list)
        for step in self._steps:
            by_length[step.prefixes.shape[1]].append(step)
        return [self._level(length, by_length[length]) for length in sorted(by_length)]

    def _level(self, length: int, steps: Sequence[Step]) -> SeenLevel:
        seen = [prefix for step in steps for prefix in self._seen(step)]
        seen.sort(key=lambda prefix: (-prefix.logprob, prefix.prefix))
        kept, ended = (sum(prefix.outcome == outcome for prefix in seen) for outcome in ("kept", "ended"))
        return SeenLevel(length, kept, ended, sum(step.candidates for step in steps) - kept - ended, tuple(seen))

    def _seen(self, step: Step) -> Iterable[Seen]:
        columns = (step.prefixes.tolist(), step.state.tolist(), step.logprob.tolist(), step.final.tolist())
        for symbols, state, logprob, final in zip(*columns, strict=True):
            prefix = Seen(tuple(symbols), tuple(state), logprob, "pruned")
            ended = self._ended(prefix, final)
            outcome = "kept" if prefix.prefix in self._extended else "ended" if ended else "pruned"
            yield Seen(prefix.prefix, prefix.state, logprob - self._shift, outcome)
