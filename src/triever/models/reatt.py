"""Retrieval as attention: one encoder-decoder that finds documents by its own attention, reads them, and answers.

The first layers of the encoder read questions and documents apart. The attention of the next layer, from the tokens of
a question to those of a document, says how relevant the document is: for each question token the best document token,
averaged over the question's tokens, as plain products, without scaling, position bias or softmax. Every token of a text
counts, those that begin or end it too, as in the paper. Learned weights choose one attention head. The other layers
read each pair of a question and a document together, and the decoder attends to all pairs of a question at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from triever.config import option, validate
from triever.errors import UsageError
from triever.models.backbones import Backbone
from triever.models.bert import BertDecoder, BertShape, copy_layers
from triever.models.bert_reader import BertSizes
from triever.models.cross_decoder import Read
from triever.models.decoders import brings_decoder, is_bert
from triever.models.late_interaction import late_scores
from triever.models.seeds import seeded
from triever.models.split_encoder import SplitBert, SplitEncoder, SplitT5
from triever.models.t5 import T5, T5Shape, renamed
from triever.models.tokens import TextTokenizer

PRODUCTS = 2**27
"""Products of question tokens and document tokens that are in memory at once."""
ONCE_MORE: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}  # nothing is random in products
ANSWER_TOKENS = 32
"""Tokens of an answer, at most."""
DecoderShape: TypeAlias = T5Shape | BertShape


@dataclass(frozen=True)
class ReAttShape:
    """How an encoder-decoder is split, and how its heads are weighed: `ReAttShape(apart=3)`."""

    apart: int | None = option(
        None, "encoder layers that read questions and documents apart; not set: half of the layers"
    )
    temperature: float = option(0.001, "divides the logits of heads; a low one ends in a single retrieval head")
    query_length: int = option(
        64, "tokens of a question at most; with absolute positions, those of documents begin behind so many"
    )
    dropout: float = option(0.1, "share of the states that is dropped in training")

    def __post_init__(self) -> None:
        validate(self)
        if self.temperature <= 0 or self.query_length < 1 or not 0 <= self.dropout < 1:
            problem = f"{self} has a value that is out of range"
            raise UsageError(problem, "set temperature above 0, query_length above 0, and dropout from 0 to below 1")


@dataclass(frozen=True)
class PairStates:
    """Questions, each read together with some documents."""

    states: Tensor  # (questions, documents, length, d_model)
    mask: Tensor  # (questions, documents, length); nothing for a document that is not there

    def apart(self) -> PairStates:
        """Every pair as a question with one document; one that is not there is read all the same, and means nothing."""
        states, mask = self.states.flatten(0, 1).unsqueeze(1), self.mask.flatten(0, 1).unsqueeze(1)
        return PairStates(states, torch.where(mask.any(2, keepdim=True), mask, torch.ones_like(mask)))


@dataclass(frozen=True)
class Answers:
    """What was written for each question."""

    tokens: list[list[int]]  # without the end
    logprobs: Tensor  # (questions,) of the tokens and of the end, where that was reached


class ReAttModel(nn.Module):
    """`model = new_reatt(load_backbone("minilm"))`; texts come as ids and mask, filled up on the right."""

    def __init__(self, backbone: Backbone, shape: ReAttShape, decoder_shape: DecoderShape) -> None:
        super().__init__()
        self.backbone, self.shape = backbone, shape
        self.encoder = _encoder(backbone, shape, decoder_shape)
        is_t5 = isinstance(decoder_shape, T5Shape)
        self.decoder = T5(decoder_shape, nn.Identity()) if is_t5 else BertDecoder(decoder_shape, nn.Identity())
        self.decoder.symbols = self.encoder.words  # one table of words for both
        self.head_logits = nn.Parameter(torch.zeros(self.encoder.heads))
        self.end = backbone.tokenizer.after[-1]

    @property
    def tokenizer(self) -> TextTokenizer:
        """What makes numbers of texts for it."""
        return self.backbone.tokenizer

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.head_logits.device

    # Retrieval

    def query_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Questions read apart: ids and mask (rows, length) to (rows, length, d_model)."""
        return self.encoder.query_states(ids, mask)

    def document_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Documents read apart."""
        return self.encoder.document_states(ids, mask)

    @property
    def head_weights(self) -> Tensor:
        """(heads,) how much each head counts; they sum to one."""
        return (self.head_logits / self.shape.temperature).softmax(0)

    @property
    def retrieval_head(self) -> int:
        """The head that counts most; an index holds its keys alone."""
        return int(self.head_logits.argmax())

    def query_vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(rows, length, head_size) what the retrieval head searches with, zero where the mask is."""
        vectors = self.encoder.queries(self.query_states(ids, mask))[:, self.retrieval_head]
        return vectors.masked_fill(mask[:, :, None] == 0, 0)

    def document_keys(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(rows, length, head_size) what the retrieval head finds documents by, zero where the mask is."""
        keys = self.encoder.keys(self.document_states(ids, mask))[:, self.retrieval_head]
        return keys.masked_fill(mask[:, :, None] == 0, 0)

    def relevance(self, queries: Tensor, query_mask: Tensor, documents: Tensor, document_mask: Tensor) -> Tensor:
        """(heads, questions, documents) the relevance by each head; -inf for a document without tokens.

        Both come as states that were read apart, (rows, length, d_model). Products of all tokens are computed in
        blocks, and once more for gradients, so that they need not be kept.
        """
        asking = self.encoder.queries(queries).to(self.head_logits.dtype).unbind(1)
        keys = self.encoder.keys(documents).to(self.head_logits.dtype).unbind(1)
        each = queries.shape[0] * queries.shape[1] * documents.shape[1]
        size = max(1, PRODUCTS // max(1, each))
        blocks = [
            torch.cat(
                [
                    checkpoint(_avg_max, asking[head], query_mask, block, block_mask, **ONCE_MORE)
                    for block, block_mask in zip(keys[head].split(size), document_mask.split(size), strict=True)
                ],
                1,
            )
            for head in range(self.encoder.heads)
        ]
        return torch.stack(blocks)

    def weighed(self, relevance: Tensor) -> Tensor:
        """(questions, documents) the relevance by all heads (heads, questions, documents), by their weights."""
        empty = relevance.isinf()
        total = torch.einsum("h,hqd->qd", self.head_weights, relevance.masked_fill(empty, 0))
        return total.masked_fill(empty.any(0), -torch.inf)

    # Reading

    def encode_pairs(self, queries: Tensor, query_mask: Tensor, documents: Tensor, document_mask: Tensor) -> PairStates:
        """Each question together with each of its documents; both were read apart.

        Questions (questions, length, d_model), documents (questions, documents, length, d_model), masks without the
        last dimension. A document without tokens is not there.
        """
        count = documents.shape[1]
        states, mask = self.encoder.pair_states(
            queries.repeat_interleave(count, 0),
            query_mask.repeat_interleave(count, 0),
            documents.flatten(0, 1),
            document_mask.flatten(0, 1),
        )
        shape = (len(queries), count)
        is_there = document_mask.any(2)[:, :, None]
        return PairStates(states.unflatten(0, shape), mask.unflatten(0, shape) * is_there)

    def read(self, pairs: PairStates) -> Read:
        """What the decoder looks up in all pairs of a question, as if they were one text."""
        return self.decoder.looked_up(pairs.states.flatten(1, 2), pairs.mask.flatten(1, 2))

    @torch.no_grad()
    def document_attention(self, read: Read, documents: int) -> Tensor:
        """(questions, documents) the share of attention that each document gets when an answer begins.

        It is that of the decoder's last layer for the first token: a softmax over all tokens of all documents of a
        question, added up for each document, averaged over heads. A document that is not there gets nothing.
        """
        scores = self.decoder.first_text_scores(read).to(self.head_logits.dtype)
        shares = scores.softmax(2).unflatten(2, (documents, -1)).sum(3).mean(1)
        is_there = (read.mask[:, 0, 0] == 0).unflatten(1, (documents, -1)).any(2)
        return shares * is_there

    # Answering

    def answer_logprobs(self, read: Read, answers: Tensor) -> Tensor:
        """(questions, length) the log-probability of each token of answers (questions, length).

        An answer ends with the token `end`; it is zero behind that, where answers are negative.
        """
        there = answers >= 0
        begin = torch.full_like(answers[:, :1], self.decoder.shape.start)
        before = torch.cat([begin, answers.clamp(min=0)[:, :-1]], 1)
        states, _ = self.decoder.decode(before, None, read)
        # Scores of all words are the most that is computed here: not for places behind the ends of answers.
        scores = self.decoder.logits(states[there]).to(self.head_logits.dtype)
        losses = functional.cross_entropy(scores, answers[there], reduction="none")
        return torch.zeros(answers.shape, dtype=losses.dtype, device=losses.device).masked_scatter(there, -losses)

    def answer_loss(self, read: Read, answers: Tensor) -> Tensor:
        """(questions,) minus the mean log-probability of the tokens of each answer (questions, length)."""
        return -self.answer_logprobs(read, answers).sum(1) / (answers >= 0).sum(1).clamp(min=1)

    @torch.no_grad()
    def generate(self, read: Read, limit: int = ANSWER_TOKENS) -> Answers:
        """Write the likeliest token after the other, up to the end or to `limit` tokens."""
        rows = len(read.mask)
        token = torch.full((rows, 1), self.decoder.shape.start, device=self.device)
        going = torch.ones(rows, dtype=torch.bool, device=self.device)
        total = torch.zeros(rows, dtype=self.head_logits.dtype, device=self.device)
        written, past = [], None
        for _ in range(limit):
            states, past = self.decoder.decode(token, past, read)
            scores = self.decoder.logits(states[:, -1]).to(total.dtype).log_softmax(1)
            best, chosen = scores.max(1)
            total = total + best * going
            going = going & (chosen != self.end)
            written.append(chosen.masked_fill(~going, self.end))
            if not going.any():
                break
            token = chosen[:, None]
        tokens = torch.stack(written, 1).tolist()
        return Answers([[token for token in row if token != self.end] for row in tokens], total)


def _avg_max(queries: Tensor, query_mask: Tensor, keys: Tensor, key_mask: Tensor) -> Tensor:
    # In full precision: products are large, and what counts is how they differ between documents.
    with torch.autocast(queries.device.type, enabled=False):
        return late_scores(queries, query_mask, keys, key_mask, mean=True)


# Making


def new_reatt(backbone: Backbone, shape: ReAttShape | None = None, seed: int = 0) -> ReAttModel:
    """A model with a backbone's weights, where it brings any; all else follows from the seed."""
    with seeded(seed):
        return (
            _from_t5(backbone, shape or ReAttShape())
            if brings_decoder(backbone)
            else _from_bert(backbone, shape or ReAttShape())
        )


def _from_t5(backbone: Backbone, shape: ReAttShape) -> ReAttModel:
    """T5's own encoder and decoder."""
    weights = renamed(backbone.seq2seq_module().state_dict())
    tied = torch.equal(weights["output.weight"], weights["reader.embedding.weight"])
    theirs = T5Shape.of(backbone.transformers_config, tied=tied)
    model = ReAttModel(backbone, shape, replace(theirs, dropout=shape.dropout))
    encoder = {f"encoder.text.{name[7:]}": weight for name, weight in weights.items() if name.startswith("reader.")}
    decoder = {f"decoder.{name}": weight for name, weight in weights.items() if not name.startswith("reader.")}
    if tied:
        del decoder["decoder.output.weight"]
    model.load_state_dict({**encoder, **decoder, "head_logits": model.head_logits})
    return model.eval()


def _from_bert(backbone: Backbone, shape: ReAttShape) -> ReAttModel:
    """BERT as the encoder, and its layers once more as the decoder, with new attention to the text."""
    if not is_bert(backbone):
        problem = f"{backbone.name} is a {backbone.config['model_type']} model, which is neither a T5 nor a BERT"
        raise UsageError(problem, "choose minilm, scratch, or a model of the T5 family")
    sizes, tokenizer = BertSizes.of(backbone.config), backbone.tokenizer
    decoder_shape = BertShape.of(sizes, sizes.vocab_size, tied=True, dropout=shape.dropout)
    model = ReAttModel(backbone, shape, replace(decoder_shape, start=tokenizer.before[0]))
    weights = backbone.encoder_module().state_dict()
    assert isinstance(model.encoder, SplitBert)
    assert isinstance(model.decoder, BertDecoder)
    model.encoder.reader.load_state_dict(weights)
    copy_layers(model.decoder, weights)
    return model.eval()


def _encoder(backbone: Backbone, shape: ReAttShape, decoder_shape: DecoderShape) -> SplitEncoder:
    if isinstance(decoder_shape, T5Shape):
        apart = decoder_shape.encoder_layers // 2 if shape.apart is None else shape.apart
        return SplitT5(decoder_shape, apart)
    sizes = BertSizes.of(backbone.config)
    sizes = replace(sizes, hidden_dropout_prob=shape.dropout, attention_probs_dropout_prob=shape.dropout)
    apart = sizes.num_hidden_layers // 2 if shape.apart is None else shape.apart
    return SplitBert(sizes, apart, shape.query_length)
