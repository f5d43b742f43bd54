"""Texts that a causal language model continues: each prompt is read once, and then continued once or many times.

Tokens are drawn, or the likeliest is taken. Chance comes in as numbers, one for each token of each continuation, so
that what is written follows from them and from the model, whatever else is in a batch. Knows nothing about what the
texts are for.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

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
    head, tail = tokenizer.ids([before, after], special=False)
    made = copy.copy(tokenizer)
    made.before, made.after = [*tokenizer.before, *head], tail
    return made


def containing(tokenizer: TextTokenizer, marks: Iterable[str]) -> frozenset[int]:
    """The numbers of all pieces in whose text one of the marks stands."""
    wanted = tuple(marks)
    texts = ((number, tokenizer.text([number])) for number in range(tokenizer.size))
    return frozenset(number for number, text in texts if any(mark in text for mark in wanted))


def left_padded(tokens: Tokens, rows: Any, pad: int) -> tuple[Tensor, Tensor]:
    """Texts side by side that end together: numbers and mask, (rows, longest) each."""
    ids, mask = tokens.padded(rows, pad)
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


@dataclass
class State:
    """What was read so far, a row for each text."""

    past: Any  # a cache of transformers
    mask: Tensor  # (rows, length)
    scores: Tensor  # (rows, width) of the next token

    def take(self, rows: Tensor) -> State:
        """Some rows, one of them several times where it is to be continued several times; the cache is changed."""
        self.past.batch_select_indices(rows)
        return State(self.past, self.mask[rows], self.scores[rows])


def step(model: Any, ids: Tensor, mask: Tensor, past: Any = None) -> State:
    """More of texts read, (rows, length) and padded on the left; the mask covers what `past` holds too."""
    out = read(model, ids, mask, 1, past, use_cache=True)
    return State(out.past_key_values, mask, out.logits[:, -1])


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
        batch_state = state if number == len(parents) else copy.deepcopy(state)  # the last may use up what was read
        written += _written(model, batch_state.take(rows), row_draws, how)
    return [written[start : start + each] for start in range(0, len(written), each)]


def _begun(model: Any, prompts: Tokens, pad: int, device: torch.device) -> State:
    """All prompts read; what all of them begin with is read once, and may be most of them."""
    count, shared = len(prompts), beginning(prompts)
    rest = Tokens.from_lists([prompts[row][shared:].tolist() for row in range(count)], 2**31)
    ids, mask = (tensor.to(device) for tensor in left_padded(rest, np.arange(count), pad))
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
    ids, mask = (tensor.numpy() for tensor in tokens.padded(np.arange(len(tokens)), -1))
    same = (ids == ids[0]).all(0)
    limit = min(int(mask.sum(1).min()) - 1, len(same)) if len(tokens) > 1 else 0
    return max(0, int(np.argmin(same[:limit])) if not same[:limit].all() else limit)


def _written(model: Any, state: State, chance: Tensor, how: Sampling) -> list[list[int]]:
    """The tokens that follow each row."""
    ends = torch.tensor(sorted(how.ends), device=chance.device)
    out = torch.full(chance.shape, -1, device=chance.device)
    rows = torch.arange(len(chance), device=chance.device)  # of `out`, for each that is carried
    going = torch.ones_like(rows, dtype=torch.bool)
    for place in range(how.limit):
        tokens = drawn(state.scores, chance[rows, place], how)
        out[rows[going], place] = tokens[going]
        going = going & ~torch.isin(tokens, ends)
        left = int(going.sum())
        if not left or place + 1 == how.limit:
            break
        if left <= CARRIED * len(rows):
            kept = going.nonzero()[:, 0]
            state, rows, tokens, going = state.take(kept), rows[kept], tokens[kept], going[kept]
        mask = torch.cat([state.mask, torch.ones_like(tokens)[:, None]], 1)
        state = step(model, tokens[:, None], mask, state.past)
    return [[token for token in row if token >= 0] for row in out.tolist()]


def likeliest(
    model: Any, state: State, end: int, limit: int, standing: Standing | None = None
) -> tuple[list[list[int]], Tensor]:
    """The likeliest token after the other behind each text, up to `end` or to `limit` tokens; the state is used up.

    Returned are the tokens without the end, and (rows,) the log-probability of the tokens and of the end, where that
    was reached. With `standing`, only those are taken that may follow.
    """
    device = state.scores.device
    out = torch.full((len(state.scores), limit), end, device=device)
    total = torch.zeros(len(out), device=device)
    rows = torch.arange(len(out), device=device)  # of `out`, for each that is carried
    going = torch.ones_like(rows, dtype=torch.bool)
    for place in range(limit):
        scores = state.scores.float().log_softmax(1)
        best, tokens = (standing.left(scores) if standing else scores).max(1)
        out[rows[going], place] = tokens[going]
        total[rows[going]] += best[going]
        going = going & (tokens != end)
        left = int(going.sum())
        if not left or place + 1 == limit:
            break
        if left <= CARRIED * len(rows):
            kept = going.nonzero()[:, 0]
            state, rows, tokens, going = state.take(kept), rows[kept], tokens[kept], going[kept]
            standing = standing.take(kept) if standing else None
        standing = standing.behind(tokens) if standing else None
        mask = torch.cat([state.mask, torch.ones_like(tokens)[:, None]], 1)
        state = step(model, tokens[:, None], mask, state.past)
    return [[token for token in row if token != end] for row in out.tolist()], total


def drawn(scores: Tensor, chance: Tensor, how: Sampling) -> Tensor:
    """For each row of scores (rows, width) the token at which the likeliest add up to its number (rows,)."""
    best, tokens = scores.float().topk(min(how.top, scores.shape[1]))
    total = (best / how.temperature).softmax(1).cumsum(1)
    position = (total <= chance[:, None]).sum(1, keepdim=True).clamp(max=tokens.shape[1] - 1)
    return tokens.gather(1, position)[:, 0]
