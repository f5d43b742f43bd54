"""A causal language model that writes docids in its own tokens, as it writes any text.

Symbols are tokens: they are read as the backbone reads words, and written with its own output layer. So an untrained
model scores a docid exactly as the language model scores that text behind the same prompt.
"""

from __future__ import annotations

from typing import Any

import torch

from triever.errors import UsageError
from triever.models import sampling
from triever.models.causal import CausalDecoder, CausalShape
from triever.models.encoder import Encoder
from triever.models.precision import computing_fast
from triever.models.seeds import seeded
from triever.models.tokens import Tokens, by_length

PROBED = 4
"""Tokens by which it is seen whether a backbone scores what follows as we do."""
AT_ONCE = 4096
"""Tokens of prompts that are read together where text is written freely."""
APART = 1e-3
"""How far scores may be from those of the backbone, as a share of the largest."""


class TokenDecoder(CausalDecoder):
    """A causal model whose symbols are its own first tokens; `shape.tied` says whether its output layer is, too."""

    def add_symbols(self) -> None:
        """Nothing is added: the backbone reads tokens."""

    @property
    def symbols(self) -> Any:  # a module with weights; torch types attributes of modules as anything
        """What tokens are read as."""
        return self.language_model.get_input_embeddings()

    @property
    def has_own_symbols(self) -> bool:
        """No symbol is anything but a token."""
        return False

    @torch.inference_mode()
    def continued_freely(self, prompts: list[list[int]], end: int, limit: int) -> list[list[int]]:
        """The likeliest token after the other behind prompts, up to `end` or to `limit` tokens."""
        tokens, pad = Tokens.from_lists(prompts, 2**31), self.encoder.tokenizer.pad
        written: dict[int, list[int]] = {}
        scored = _Scored(self.eval())
        for batch in by_length(tokens.lengths, tokens=AT_ONCE):
            ids, mask = (part.to(self.device) for part in sampling.left_padded(*tokens.padded(batch, pad)))
            with computing_fast(self.device):
                followed, _ = sampling.likeliest(sampling.step(scored, ids, mask), end, limit)
            written |= zip(batch.tolist(), followed, strict=True)
        return [written[number] for number in range(len(prompts))]


class _Scored:
    """A model as `sampling` asks it: tokens in, scores of the next ones out."""

    def __init__(self, model: TokenDecoder) -> None:
        self.model = model

    def forward(self, *, logits_to_keep: int = 0, **given: Any) -> Any:
        """What the backbone says of tokens, with the scores of what follows the last of them."""
        out = self.model.language_model(**given)
        out.logits = self.model.logits(out.last_hidden_state[:, -logits_to_keep:])
        return out

    __call__ = forward


@torch.no_grad()
def token_decoder(reader: Encoder, width: int) -> TokenDecoder:
    """A backbone as a model that writes its own first `width` tokens; one that scores in another way is refused."""
    backbone = reader.backbone
    if backbone.folder is None:  # one that starts from nothing writes with what it reads
        return TokenDecoder(CausalShape(width, 0, backbone.hidden, tied=True), reader).eval()
    whole: Any = backbone.causal_module()
    words, rows = whole.get_input_embeddings().weight, whole.get_output_embeddings().weight
    with seeded(0):  # of nothing that stays
        model = TokenDecoder(CausalShape(width, 0, backbone.hidden, tied=rows is words), reader).to(reader.device)
    if rows is not words:
        model.set_rows(rows[:width])
    _check_scores(model, whole)
    return model.eval()


def _check_scores(model: TokenDecoder, whole: Any) -> None:
    """Refuse a backbone whose scores are not products of states and rows, such as one that caps them."""
    ids = torch.arange(PROBED)[None]
    theirs = whole(input_ids=ids).logits[..., : model.shape.width].float()
    device = model.device
    ours = model.logits(model.continued(ids.to(device), torch.ones_like(ids).to(device)).last_hidden_state).float()
    if float((ours.cpu() - theirs).abs().max()) > APART * float(theirs.abs().max()):
        problem = f"{model.encoder.backbone.name} scores tokens by more than one matrix, which cannot be searched yet"
        raise UsageError(problem, "leave docids.tokenizer out, or choose another backbone")
