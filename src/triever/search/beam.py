"""Beam search: it keeps the best few prefixes at each length, for many queries at once.

It returns only docids that exist, each once, whatever the width. A docid that has ended moves from the beam to the
pool of finished docids. So does a prefix with only one docid left: the rest of that docid is scored in one pass, or
costs nothing under `trie` normalisation, where nothing else can follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from triever.config import option
from triever.docids.walk import Children, Walk
from triever.errors import UsageError
from triever.models.generator import Cache, Generator, Hidden
from triever.models.tokens import in_pieces
from triever.search.recorder import Recorder
from triever.search.scores import Normalisation, child_scores, tail_scores

PIECES = {"cpu": 4}
"""Pieces in which the rests of docids are read at most, each of like lengths: a few titles are far longer than most. A
GPU that is given more and smaller work has to wait for it."""
PIECE = 128
"""Symbols of a piece: for few, to read the weights once more takes longer than what is saved."""


@dataclass(frozen=True)
class BeamOptions:
    """How to search: `BeamOptions(width=40)`."""

    width: int = option(10, "number of prefixes that are kept at each length")
    normalisation: Normalisation = option(
        "trie",
        "sum probabilities to one over the symbols that exist (trie), over all (vocabulary), or over documents",
    )
    temperature: float = option(1.0, "above 1 flattens the model's probabilities, below 1 sharpens them")
    length_penalty: float = option(0.0, "rank docids by log-probability / length ** length_penalty; 0 is off")
    backoff: int = option(0, "number of the best dropped prefixes at each length to search again afterwards")
    finish: bool = option(True, "score the rest of a prefix with only one docid left in one pass")

    def __post_init__(self) -> None:
        if self.width < 1:
            raise UsageError(f"width = {self.width} should be above zero", "for example: width=10")
        if self.temperature <= 0:
            raise UsageError(f"temperature = {self.temperature} should be above zero", "1 changes nothing")
        if self.backoff < 0:
            raise UsageError(f"backoff = {self.backoff} should not be negative", "0 is off")


@dataclass(frozen=True)
class Frontier:
    """Prefixes and their log-probabilities, best first; -inf where there is nothing."""

    state: Tensor  # (queries, width, parts)
    logprob: Tensor  # (queries, width)
    length: Tensor  # (queries, width) in symbols
    rank: Tensor  # (queries, width) the key of their order: the log-probability, or that divided by length
    document: Tensor | None = None  # (queries, width) the number of each docid's document, if known already
    weighed: Tensor | None = None
    """(queries,) under `documents`: the log of what all docids that the search has come to weigh, less that of the
    root; -inf where it has come to none."""
    stopped: Tensor | None = None
    """(queries, n, parts) under `documents` and with a depth: the prefixes of that length whose docids are not weighed
    yet, -1 where there is none; all others stand above."""

    def first(self, queries: int) -> Frontier:
        """Those of the first queries, of a search to the ends of docids."""
        columns = (column[:queries] for column in (self.state, self.logprob, self.length, self.rank))
        return Frontier(*columns, None if self.document is None else self.document[:queries])


@dataclass(frozen=True)
class Dropped:
    """The best prefixes of one length that a beam did not keep, for a search that backs off to them."""

    tokens: Tensor  # (queries, dropped, length)
    logprob: Tensor  # (queries, dropped)


@dataclass(frozen=True)
class _Beams:
    """The current prefixes, (queries, width, ...): the trie state, the log-probability and the symbols of each."""

    state: Tensor
    logprob: Tensor
    tokens: Tensor

    @property
    def rows(self) -> int:
        return self.logprob.numel()


def beam(
    generator: Generator,
    cache: Cache,
    hidden: Hidden,
    walk: Walk,
    options: BeamOptions | None = None,
    *,
    depth: int | None = None,
    keep: int | None = None,
    recorder: Recorder | None = None,
) -> Frontier:
    """The best docids for each query of a prefilled cache; with `depth`, the best prefixes of that length.

    Under `documents` prefixes and docids are kept apart, see `Frontier.stopped`: a prefix weighs what is estimated.
    A recorder takes down what the search for a single query does.
    """
    search = _Search(generator, walk, options or BeamOptions(), keep, recorder)
    queries = len(hidden)
    start = _Beams(
        walk.root(queries)[:, None],
        torch.zeros(queries, 1, device=walk.device),
        torch.zeros(queries, 1, 0, dtype=torch.long, device=walk.device),
    )
    search.run(start, cache, hidden, depth)
    search.back_off(cache, depth)
    return search.result()


class _Search:
    """One search: the pool of finished docids, and the loop that fills it."""

    def __init__(
        self, generator: Generator, walk: Walk, options: BeamOptions, keep: int | None, recorder: Recorder | None
    ) -> None:
        self.generator = generator
        self.walk = walk
        self.options = options
        self.keep = max(options.width, keep or 0)
        self.recorder = recorder
        if recorder is not None:
            recorder.begin()
        self.dropped: list[Dropped] = []  # one for each length, where the search backs off
        self.pool: Frontier | None = None
        self.weighed: Tensor | None = None
        """(queries,) under `documents`: the log of what all docids weigh together that the search has come to."""
        self.stopped: Tensor | None = None

    def run(self, beams: _Beams, cache: Cache, hidden: Hidden, depth: int | None) -> None:
        """Extend the beams to their ends, or to a depth."""
        while (length := beams.tokens.shape[2]) != depth:
            beams, parent = self._step(beams, hidden, length, last=length + 1 == depth)
            if length + 1 == depth:
                break
            beams, parent = self._hopeful(self._finish_lone(beams, parent, cache), parent)
            if not beams.rows:
                return
            cache, states = self.generator.extend(cache, parent, beams.tokens[..., -1].reshape(-1, 1))
            hidden = states[:, -1]
        if self._by_documents:
            self._stop(beams)
        else:
            self._add(beams.state, beams.logprob, beams.tokens.shape[2])

    @property
    def _by_documents(self) -> bool:
        return self.options.normalisation == "documents"

    def _stop(self, beams: _Beams) -> None:
        """Keep prefixes at which the search ends although docids below them are not weighed yet."""
        nothing = ~beams.logprob.isfinite()
        state = beams.state.masked_fill(nothing[..., None], -1)
        self.stopped = state if self.stopped is None else torch.cat([self.stopped, state], 1)
        self._add(state, torch.full_like(beams.logprob, -torch.inf), beams.tokens.shape[2])  # so that there is a pool

    def _step(self, beams: _Beams, hidden: Hidden, length: int, last: bool) -> tuple[_Beams, Tensor]:
        """The best children of all beams, and the row of the parent of each."""
        queries, _, parts = beams.state.shape
        above, options = beams.state.reshape(-1, parts), self.options
        children = self.walk.children(above, length)
        scores = child_scores(self.generator, hidden, children, options.normalisation, options.temperature, above=above)
        total = (beams.logprob.reshape(-1, 1) + scores).reshape(queries, -1)
        state = children.state.reshape(queries, -1, parts)
        goes_on = last and not self._by_documents  # where prefixes and docids are kept, and not told apart
        over = torch.zeros_like(total, dtype=torch.bool) if goes_on else self._is_final(children).view_as(total)
        self._add(state, total.masked_fill(~over, -torch.inf), length + 1)
        self._weigh(total.masked_fill(~over, -torch.inf))
        if self.recorder is not None:
            self._record(self.recorder, beams, children, total, over)
        return self._choose(beams, state, children.token.reshape(queries, -1), total.masked_fill(over, -torch.inf))

    def _record(self, recorder: Recorder, beams: _Beams, children: Children, total: Tensor, over: Tensor) -> None:
        """Take down the children of the prefixes that the search goes on with; others have only empty slots."""
        lives = beams.logprob[0].isfinite()
        parents = [tuple(prefix) for prefix in beams.tokens[0][lives].tolist()]
        logprob, final = (column.view(len(lives), -1)[lives] for column in (total, over))
        limit = self.keep + self.options.backoff
        recorder.add(parents, children.token[lives], children.state[lives], logprob, final, limit)

    def _is_final(self, children: Children) -> Tensor:
        """Whether the probability of a prefix is final: no later symbol can change it."""
        free = self.options.finish and self.options.normalisation != "vocabulary"
        return children.ended | children.alone if free else children.ended

    def _choose(self, beams: _Beams, state: Tensor, token: Tensor, total: Tensor) -> tuple[_Beams, Tensor]:
        queries, width, parts = beams.state.shape
        slots = total.shape[1] // width
        count = min(self.options.width, total.shape[1])
        looked_at = min(count + self.options.backoff, total.shape[1])
        best, at = total.topk(looked_at, dim=1)
        parent = at // slots
        prefix = beams.tokens.gather(1, parent[..., None].expand(-1, -1, beams.tokens.shape[2]))
        tokens = torch.cat([prefix, token.gather(1, at)[..., None]], 2)
        if self.options.backoff:
            self.dropped.append(Dropped(tokens[:, count:], best[:, count:]))
        kept = _Beams(state.gather(1, at[:, :count, None].expand(-1, -1, parts)), best[:, :count], tokens[:, :count])
        first = torch.arange(queries, device=total.device)[:, None] * width
        return kept, (first + parent[:, :count]).reshape(-1)

    def _finish_lone(self, beams: _Beams, parent: Tensor, cache: Cache) -> _Beams:
        """Score the rest of beams that have one docid left, in one pass, and move them to the pool."""
        if not self.options.finish or self.options.normalisation != "vocabulary":
            return beams
        flat = beams.state.reshape(beams.rows, -1)
        # Those that cannot enter the pool any more are dropped later on.
        hopeful = beams.logprob > self._reachable()[:, None]
        lone = (self.walk.alone(flat) & hopeful.reshape(-1)).nonzero()[:, 0]
        if not len(lone):
            return beams
        scored, length = self._score_tails(beams, parent, cache, flat[lone], lone)
        logprob = torch.full((beams.rows,), -torch.inf, device=self.walk.device)
        logprob[lone] = beams.logprob.reshape(-1)[lone] + scored
        lengths = torch.zeros(beams.rows, dtype=torch.long, device=self.walk.device)
        lengths[lone] = beams.tokens.shape[2] + length
        self._add(beams.state, logprob.view_as(beams.logprob), lengths.view_as(beams.logprob))
        rest = beams.logprob.reshape(-1).index_fill(0, lone, -torch.inf)
        return _Beams(beams.state, rest.view_as(beams.logprob), beams.tokens)

    def _score_tails(
        self, beams: _Beams, parent: Tensor, cache: Cache, state: Tensor, lone: Tensor
    ) -> tuple[Tensor, Tensor]:
        symbols, length = self.walk.tails(state)
        last = beams.tokens.reshape(beams.rows, -1)[lone, -1:]
        written, scored = torch.cat([last, symbols[:, :-1]], 1), torch.zeros(len(lone), device=self.walk.device)
        for piece, longest in self._pieces(length, written.shape[1]):
            rows = torch.from_numpy(piece).to(self.walk.device)
            _, hidden = self.generator.extend(cache, parent[lone[rows]], written[rows, :longest])
            each = tail_scores(self.generator, hidden, symbols[rows, :longest], length[rows], self.options.temperature)
            scored[rows] = each.sum(1)
        return scored, length

    def _pieces(self, lengths: Tensor, longest: int) -> list[tuple[np.ndarray, int]]:
        """Which tails of these lengths (n,) are read together, and how many symbols of each."""
        most = min(PIECES.get(self.walk.device.type, 1), len(lengths) * longest // PIECE)
        if most < 2:  # the host need not wait for the lengths
            return [(np.arange(len(lengths)), longest)]
        known = lengths.tolist()
        # Prefixes of one query have to lie together, as they do in their order.
        return [(np.sort(piece), max(1, known[piece[0]])) for piece in in_pieces(known, most)]

    def _add(self, state: Tensor, logprob: Tensor, length: int | Tensor) -> None:
        """Add prefixes to the pool, which keeps the best."""
        lengths = torch.as_tensor(length, device=logprob.device).expand_as(logprob)
        if self.pool is not None:
            state = torch.cat([self.pool.state, state], 1)
            logprob = torch.cat([self.pool.logprob, logprob], 1)
            lengths = torch.cat([self.pool.length, lengths], 1)
        rank, at = self._rank(logprob, lengths).topk(min(self.keep, logprob.shape[1]), dim=1)
        state = state.gather(1, at[..., None].expand(-1, -1, state.shape[2]))
        self.pool = Frontier(state, logprob.gather(1, at), lengths.gather(1, at), rank)

    def _rank(self, logprob: Tensor, length: Tensor) -> Tensor:
        penalty = self.options.length_penalty
        return logprob / length.clamp(min=1).float() ** penalty if penalty else logprob

    def _hopeful(self, beams: _Beams, parent: Tensor) -> tuple[_Beams, Tensor]:
        """The beams that can still enter the pool, because probabilities only shrink; each query gets equally many."""
        hopeful = beams.logprob.masked_fill(beams.logprob <= self._reachable()[:, None], -torch.inf)
        count = int(hopeful.isfinite().sum(1).max())
        best, at = hopeful.topk(count, dim=1)
        state = beams.state.gather(1, at[..., None].expand(-1, -1, beams.state.shape[2]))
        tokens = beams.tokens.gather(1, at[..., None].expand(-1, -1, beams.tokens.shape[2]))
        return _Beams(state, best, tokens), parent.view_as(beams.logprob).gather(1, at).reshape(-1)

    def _reachable(self) -> Tensor:
        """(queries,) the log-probability that a prefix must exceed, so that something below it can enter the pool."""
        threshold = self._threshold()
        # What a prefix weighs is an estimate under `documents`, and no bound for what lies below it.
        shrinks = not self.options.length_penalty and not self._by_documents
        return threshold if shrinks else torch.full_like(threshold, -torch.inf)

    def back_off(self, cache: Cache, depth: int | None) -> None:
        """Search again from the best dropped prefixes, to make up for a wrong turn early on."""
        for dropped in self.dropped[:]:  # what is dropped on the way is not taken up again
            if dropped.tokens.shape[1] and bool((dropped.logprob > self._threshold()[:, None]).any()):
                self._resume(dropped, cache, depth)

    def _threshold(self) -> Tensor:
        """(queries,) the log-probability that a prefix must exceed to enter the pool; -inf while it is not full."""
        assert self.pool is not None  # every run begins with an addition
        full = self.pool.logprob.shape[1] >= self.keep
        return self.pool.logprob[:, -1] if full else torch.full_like(self.pool.logprob[:, -1], -torch.inf)

    def _resume(self, dropped: Dropped, cache: Cache, depth: int | None) -> None:
        tokens, logprob = dropped.tokens, dropped.logprob
        queries, width, length = tokens.shape
        state = self._states(tokens.reshape(-1, length)).reshape(queries, width, -1)
        parent = torch.arange(queries, device=tokens.device).repeat_interleave(width)
        extended, hidden = self.generator.extend(cache, parent, tokens.reshape(-1, length))
        beams = _Beams(state, logprob.masked_fill(logprob <= self._threshold()[:, None], -torch.inf), tokens)
        self.run(beams, extended, hidden[:, -1], depth)

    def _states(self, tokens: Tensor) -> Tensor:
        """The trie states of prefixes, walked from the root."""
        state = self.walk.root(len(tokens))
        for length in range(tokens.shape[1]):
            children = self.walk.children(state, length)
            hit = (children.token == tokens[:, length, None]) & children.exists
            at = hit.int().argmax(1)
            state = children.state[torch.arange(len(tokens), device=tokens.device), at]
        return state

    def _weigh(self, total: Tensor) -> None:
        """Under `documents`, add the weights of docids (queries, n); -inf is none."""
        if self._by_documents:
            weight = total.logsumexp(1)
            self.weighed = weight if self.weighed is None else torch.logaddexp(self.weighed, weight)

    def result(self) -> Frontier:
        """The pool; under `documents`, a probability is the share among all docids that the search has come to."""
        assert self.pool is not None  # every run begins with an addition
        pool = self.pool
        self._end_record(pool)
        if not self._by_documents:
            return pool
        # Where all docids lie below prefixes that it stopped at, it has come to none.
        weighed = torch.full_like(pool.logprob[:, 0], -torch.inf) if self.weighed is None else self.weighed
        logprob = pool.logprob - torch.where(weighed.isfinite(), weighed, 0.0)[:, None]
        rank = self._rank(logprob, pool.length)
        return replace(pool, logprob=logprob, rank=rank, weighed=weighed, stopped=self.stopped)

    def _end_record(self, pool: Frontier) -> None:
        """Tell the recorder which docids are returned; where all were weighed, what they are shares of too."""
        if self.recorder is not None:
            stopped = None if self.stopped is None else self.stopped[0]
            weighed = float(self.weighed[0]) if self.weighed is not None and stopped is None else 0.0
            self.recorder.end_beam((pool.state[0], pool.logprob[0]), stopped, weighed)
