"""Free decoding: a beam over all symbols, without the constraint that docids must exist.

A prefix that has left the trie can no longer become a docid. It still stays in the beam until it ends, with a stop
symbol or at the length of the longest docid; that is the cost of free decoding. Probabilities are over all symbols, as
in a plain `generate`: over the symbols of the trie alone, no prefix could leave the trie.

What was written and does not exist can be mapped: it stands for all documents whose docids begin with its longest
prefix that exists, and these have equal shares of its probability. It stands for none if no docid begins with its
first symbol.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from triever.docids.walk import Walk
from triever.models.generator import Cache, Generator, Hidden
from triever.search.beam import BeamOptions
from triever.search.hits import summed


@dataclass(frozen=True)
class Written:
    """The sequences that a free beam wrote, best first: (queries, width) each; -inf behind the last.

    A state of -1 in all parts means that the docid does not exist.
    """

    walk: Walk
    state: Tensor  # (queries, width, parts)
    reached: Tensor  # (queries, width, parts) the state of the longest prefix that exists
    logprob: Tensor

    @property
    def valid(self) -> Tensor:
        """(queries, width) whether the sequence is a docid with a document that was not removed."""
        return _inside(self.state) & self.walk.ended(self.state) & (self.walk.living(self.state) > 0)

    def documents(self, k: int, *, ties: bool = False) -> list[tuple[list[tuple[int, float]], int, int]]:
        """For each query: the documents of valid docids, the number of invalid sequences, and the number of sequences.

        With `ties`, all documents that tie with the k-th are there too, so that the caller can order them.
        """
        return self._documents(self.state, self.valid, k, ties)

    def mapped(self, k: int, *, ties: bool = False) -> list[tuple[list[tuple[int, float]], int, int]]:
        """The same, where a sequence that is no docid stands for the documents below its longest prefix that exists."""
        return self._documents(self.reached, self.valid | (self.reached > 0).any(-1), k, ties)  # 0 is the root

    def _documents(
        self, state: Tensor, counts: Tensor, k: int, ties: bool
    ) -> list[tuple[list[tuple[int, float]], int, int]]:
        """The same, for the documents below states (queries, width, parts), of which some count (queries, width)."""
        written = self.logprob.isfinite()
        logprob = self.logprob.masked_fill(~counts, -torch.inf)
        hits = summed(self.walk, state, logprob, logprob, k, ties=ties)
        invalid = (written & ~self.valid).sum(1).tolist()
        return list(zip(hits, invalid, written.sum(1).tolist(), strict=True))


def free(
    generator: Generator,
    cache: Cache,
    hidden: Hidden,
    walk: Walk,
    options: BeamOptions | None = None,
    *,
    stop: int | None = None,
) -> Written:
    """The likeliest sequences of symbols, whether they are docids or not.

    A sequence ends where a docid ends in the trie, with the `stop` symbol if one is given, and at the latest at the
    length of the longest docid. Of the options, only width and temperature matter here.
    """
    options = options or BeamOptions()
    queries = len(hidden)
    state = reached = walk.root(queries)[:, None]
    logprob = torch.zeros(queries, 1, device=walk.device)
    done_state, done_reached, done = state[:, :0], reached[:, :0], logprob[:, :0]
    deepest = _deepest(walk)
    for depth in range(deepest):
        width = logprob.shape[1]
        logits = generator.logits(hidden).float() / options.temperature
        total = logprob.flatten()[:, None] + logits.log_softmax(1)
        top, at = total.view(queries, -1).topk(min(options.width, width * generator.width), dim=1)
        parent, token = at // generator.width, at % generator.width
        state = _followed(walk, state, parent, token, depth)
        reached = torch.where(_inside(state)[..., None], state, _of(reached, parent))
        over = _inside(state) & walk.ended(state)
        if stop is not None:
            over |= token == stop
        done_state, done_reached = torch.cat([done_state, state], 1), torch.cat([done_reached, reached], 1)
        done = torch.cat([done, top.masked_fill(~over, -torch.inf)], 1)
        logprob = top.masked_fill(over, -torch.inf)
        if depth + 1 == deepest or not logprob.isfinite().any():
            break
        first = torch.arange(queries, device=walk.device)[:, None] * width
        cache, states = generator.extend(cache, (first + parent).flatten(), token.flatten()[:, None])
        hidden = states[:, -1]
    # The sequences that have not ended are as long as the longest docid.
    scores = torch.cat([done, logprob], 1)
    top, at = scores.topk(min(options.width, scores.shape[1]), dim=1)
    states = _of(torch.cat([done_state, state], 1), at), _of(torch.cat([done_reached, reached], 1), at)
    return Written(walk, *states, top)


def _deepest(walk: Walk) -> int:
    """The length of the longest docid."""
    paths = walk.trie.paths()
    return int((paths.start[1:] - paths.start[:-1]).max(initial=0))


def _inside(state: Tensor) -> Tensor:
    return (state >= 0).any(-1)


def _of(state: Tensor, places: Tensor) -> Tensor:
    """(queries, n, parts) the states at these places (queries, n)."""
    return state.gather(1, places[..., None].expand(-1, -1, state.shape[2]))


def _followed(walk: Walk, state: Tensor, parent: Tensor, token: Tensor, depth: int) -> Tensor:
    """(queries, width, parts) the states of prefixes after one more symbol, -1 in all parts outside the trie."""
    parts = state.shape[2]
    before = _of(state, parent).reshape(-1, parts)
    # A prefix that is already outside looks up the root instead, and stays outside.
    outside = ~_inside(before)
    children = walk.children(before.masked_fill(outside[:, None], 0), depth)
    hit = (children.token == token.reshape(-1, 1)) & children.exists & ~outside[:, None]
    at = hit.int().argmax(1)
    after = children.state[torch.arange(len(before), device=before.device), at]
    return after.masked_fill(~hit.any(1)[:, None], -1).view(*token.shape, parts)
