"""Texts that a causal language model continues: each prompt is read once, and then continued once or many times.

Tokens are drawn, or the likeliest is taken, behind whatever is a `Writing`. Chance comes in as numbers, one for each
token of each continuation, so that what is written follows from them and from the model, whatever else is in a batch.
Knows nothing about what the texts are for.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from triever.models.standing import Standing
from triever.models.tokens import TextTokenizer, Tokens

CARRIED = 0.75
"""Continuations that have ended are carried along until no more than this share is left, as dropping them is a copy."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn: each among the likeliest, until there is one of `ends` or there are `limit`."""

    ends: frozenset[int]
    limit: int
    temperature: float = 1.0
    top: int = 10
    batch: int = 64
    """Continuations that are written at once."""


def framed(tokenizer: TextTokenizer, before: str, after: str) -> TextTokenizer:
    """The tokenizer with the words of a prompt around every text; these, and no end of text, stand behind it."""
    head, tail = tokenizer.mark_ids([before, after])
    made = copy.copy(tokenizer)
    made.before, made.after = [*tokenizer.before, *head], tail
    return made


def containing(tokenizer: TextTokenizer, marks: Iterable[str]) -> frozenset[int]:
    """The numbers of all pieces in whose text one of the marks stands."""
    wanted = tuple(marks)
    texts = ((number, tokenizer.text([number])) for number in range(tokenizer.size))
    return frozenset(number for number, text in texts if any(mark in text for mark in wanted))


def left_padded(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Texts side by side that end together, of those that begin together: numbers and mask, (rows, longest) each."""
    order = mask.argsort(dim=1, stable=True)  # the padding first
    return ids.gather(1, order), mask.gather(1, order)


def read(model: Any, ids: Tensor, mask: Tensor, keep: int, past: Any = None, *, use_cache: bool = False) -> Any:
    """What a causal model says of texts (rows, length) that are padded on the left.

    Only the last `keep` places are scored, as a vocabulary is wide; the mask covers what `past` holds too.
    """
    positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
    few = {"logits_to_keep": keep} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    more = {"past_key_values": past, "use_cache": use_cache, **few}
    out = model(input_ids=ids, attention_mask=mask, position_ids=positions, **more)
    out.logits = out.logits[:, -keep:]
    return out


class Writing(Protocol):
    """Texts that are being written, a row for each."""

    @property
    def logprobs(self) -> Tensor:
        """(rows, width) the log-probabilities of the next token."""
        ...

    def take(self, rows: Tensor) -> Self:
        """Some of the rows."""
        ...

    def behind(self, tokens: Tensor) -> Self:
        """The same with one more token (rows,) behind each text."""
        ...


W = TypeVar("W", bound=Writing)


@dataclass
class State:
    """What a causal model has read so far, a row for each text."""

    model: Any
    past: Any  # a cache of transformers
    mask: Tensor  # (rows, length)
    scores: Tensor  # (rows, width) of the next token

    @cached_property
    def logprobs(self) -> Tensor:
        """(rows, width) the log-probabilities of the next token."""
        return self.scores.float().log_softmax(1)

    def take(self, rows: Tensor) -> State:
        """Some rows, one of them several times where it is to be continued several times; the cache is changed."""
        self.past.batch_select_indices(rows)
        return State(self.model, self.past, self.mask[rows], self.scores[rows])

    def behind(self, tokens: Tensor) -> State:
        """The same with one more token (rows,) behind each text; the cache is changed."""
        mask = torch.cat([self.mask, torch.ones_like(tokens)[:, None]], 1)
        return step(self.model, tokens[:, None], mask, self.past)


@dataclass(frozen=True)
class WordForWord:
    """Texts that are being written, and where they stand in documents: nothing else is written."""

    state: Writing
    standing: Standing

    @cached_property
    def logprobs(self) -> Tensor:
        """(rows, width) the log-probabilities of the next token; -inf for what may not follow."""
        return self.standing.left(self.state.logprobs)

    def take(self, rows: Tensor) -> WordForWord:
        """Some of the rows."""
        return WordForWord(self.state.take(rows), self.standing.take(rows))

    def behind(self, tokens: Tensor) -> WordForWord:
        """The same with one more token (rows,) behind each text."""
        return WordForWord(self.state.behind(tokens), self.standing.behind(tokens))


def step(model: Any, ids: Tensor, mask: Tensor, past: Any = None) -> State:
    """More of texts read, (rows, length) and padded on the left; the mask covers what `past` holds too."""
    out = read(model, ids, mask, 1, past, use_cache=True)
    return State(model, out.past_key_values, mask, out.logits[:, -1])


@torch.inference_mode()
def continued(model: Any, prompts: Tokens, chance: np.ndarray, how: Sampling, pad: int) -> list[list[list[int]]]:
    """The continuations of each prompt, with the token that ended each.

    chance (prompts, continuations, limit) holds numbers from 0 to below 1. Prompts of nearly equal length are best.
    """
    device = next(model.parameters()).device
    state = _begun(model, prompts, pad, device)
    each = chance.shape[1]
    parents = torch.arange(len(prompts), device=device).repeat_interleave(each).split(how.batch)
    draws = torch.from_numpy(chance.reshape(-1, how.limit)).to(device).split(how.batch)
    written: list[list[int]] = []
    for number, (rows, row_draws) in enumerate(zip(parents, draws, strict=True), 1):
        past = state.past if number == len(parents) else copy.deepcopy(state.past)  # the last may use up what was read
        written += _drawn(replace(state, past=past).take(rows), row_draws, how)
    return [written[start : start + each] for start in range(0, len(written), each)]


def _begun(model: Any, prompts: Tokens, pad: int, device: torch.device) -> State:
    """All prompts read; what all of them begin with is read once, and may be most of them."""
    count, shared = len(prompts), beginning(prompts)
    rest = Tokens.from_lists([prompts[row][shared:].tolist() for row in range(count)], 2**31)
    ids, mask = (tensor.to(device) for tensor in left_padded(*rest.all_padded(pad)))
    if not shared:
        return step(model, ids, mask)
    first = torch.from_numpy(prompts[0][None, :shared].astype(np.int64)).to(device)
    begun = step(model, first, torch.ones_like(first)).take(torch.zeros_like(ids[:, 0]))
    return step(model, ids, torch.cat([begun.mask, mask], 1), begun.past)


def beginning(tokens: Tokens) -> int:
    """How many tokens all texts have in common at their beginning, the last one of a text not counted.

    >>> beginning(Tokens.from_lists([[1, 2, 3, 4], [1, 2, 4]])), beginning(Tokens.from_lists([[1, 2], [1, 2, 3]]))
    (2, 1)
    """
    ids, mask = (tensor.numpy() for tensor in tokens.all_padded(-1))
    same = (ids == ids[0]).all(0)
    limit = min(int(mask.sum(1).min()) - 1, len(same)) if len(tokens) > 1 else 0
    return max(0, int(np.argmin(same[:limit])) if not same[:limit].all() else limit)


def _drawn(state: State, chance: Tensor, how: Sampling) -> list[list[int]]:
    """The tokens that are drawn behind each text, by numbers (rows, limit)."""
    ends = torch.tensor(sorted(how.ends), device=chance.device)
    out = _written(state, chance.shape, ends, lambda now, rows, place: drawn(now.scores, chance[rows, place], how))
    return [[token for token in row if token >= 0] for row in out.tolist()]


def likeliest(state: Writing, end: int, limit: int) -> tuple[list[list[int]], Tensor]:
    """The likeliest token after the other behind each text, up to `end` or to `limit` tokens; the state is used up.

    Returned are the tokens without the end, and (rows,) the log-probability of the tokens and of the end, where that
    was reached.
    """
    device = state.logprobs.device
    gains = torch.zeros(len(state.logprobs), limit, dtype=torch.double, device=device)

    def choose(state: Writing, rows: Tensor, place: int) -> Tensor:
        best, tokens = state.logprobs.max(1)
        gains[rows, place] = best.double()
        return tokens

    out = _written(state, gains.shape, torch.tensor([end], device=device), choose)
    tokens = [[token for token in row if token not in (-1, end)] for row in out.tolist()]
    return tokens, gains.masked_fill(out < 0, 0).sum(1)


def _written(state: W, shape: Sequence[int], ends: Tensor, choose: Callable[[W, Tensor, int], Tensor]) -> Tensor:
    """The tokens that follow each text, in a shape (rows, limit); -1 behind one of `ends`, with which a text ends.

    `choose` gives the next token (n,) of rows (n,) that have so many tokens.
    """
    out = torch.full(tuple(shape), -1, device=ends.device)
    rows = torch.arange(len(out), device=ends.device)  # of `out`, for each that is carried
    going = torch.ones_like(rows, dtype=torch.bool)
    for place in range(shape[1]):
        tokens = choose(state, rows, place)
        out[rows[going], place] = tokens[going]
        going = going & ~torch.isin(tokens, ends)
        left = int(going.sum())
        if not left or place + 1 == shape[1]:
            break
        if left <= CARRIED * len(rows):
            kept = going.nonzero()[:, 0]
            state, rows, tokens, going = state.take(kept), rows[kept], tokens[kept], going[kept]
        state = state.behind(tokens)
    return out


def drawn(scores: Tensor, chance: Tensor, how: Sampling) -> Tensor:
    """For each row of scores (rows, width) the token at which the likeliest add up to its number (rows,)."""
    best, tokens = scores.float().topk(min(how.top, scores.shape[1]))
    total = (best / how.temperature).softmax(1).cumsum(1)
    position = (total <= chance[:, None]).sum(1, keepdim=True).clamp(max=tokens.shape[1] - 1)
    return tokens.gather(1, position)[:, 0]
