"""Retrieval as attention: one encoder-decoder that finds documents by its own attention, reads them, and answers.

The first layers of the encoder read questions and documents apart. The attention of the next layer, from the tokens of
a question to those of a document, says how relevant the document is: for each question token the best document token,
averaged over the question's tokens, as plain products, without scaling, position bias or softmax. Every token of a text
counts, those that begin or end it too, as in the paper. Learned weights choose one attention head. The other layers
read each pair of a question and a document together, and the decoder attends to all pairs of a question at once.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from triever.models.layers import Memory
from triever.models.sampling import WordForWord, Writing, likeliest
from triever.models.seeds import seeded
from triever.models.split_encoder import SplitBert, SplitEncoder, SplitT5, joined
from triever.models.standing import Standing
from triever.models.t5 import T5, T5Shape, renamed
from triever.models.tokens import TextTokenizer

PRODUCTS = 2**27
"""Products of question tokens and document tokens that are in memory at once."""
ONCE_MORE: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}  # nothing is random in products
OWN = ("head_logits", "copying.")
"""The names of weights that no backbone brings begin with these."""
ANSWER_TOKENS = 32
"""Tokens of an answer, at most."""
UNSET = "one layer of a BERT, half of a T5"
"""What reads apart where `ReAttShape.apart` is not set."""
LEAST = 1e-9
"""What counts as the probability of copying what stands nowhere, so that it has a logarithm."""
DecoderShape: TypeAlias = T5Shape | BertShape


@dataclass(frozen=True)
class ReAttShape:
    """How an encoder-decoder is split, and how its heads are weighed: `ReAttShape(apart=3)`."""

    apart: int | None = option(
        None, "encoder layers that read questions and documents apart; not set: one of minilm's, half of a T5's"
    )
    temperature: float = option(0.001, "divides the logits of heads; a low one ends in a single retrieval head")
    query_length: int = option(
        64, "tokens of a question at most; with absolute positions, those of documents begin behind so many"
    )
    copy: bool | None = option(
        None,
        "whether tokens of documents are copied into answers, by the attention to them; not set: with a backbone that "
        "brings no decoder, whose decoder is new",
    )
    dropout: float = option(0.1, "share of the states that is dropped in training")

    def __post_init__(self) -> None:
        validate(self)
        wrong = {
            "temperature": ("above 0", self.temperature <= 0),
            "query_length": ("above 0", self.query_length < 1),
            "dropout": ("from 0 to below 1", not 0 <= self.dropout < 1),
        }
        for name, (allowed, is_wrong) in wrong.items():
            if is_wrong:
                raise UsageError(f"{name} = {getattr(self, name)} is out of range", f"set it {allowed}")


@dataclass(frozen=True)
class PairStates:
    """Questions, each read together with some documents."""

    states: Tensor  # (questions, documents, length, d_model)
    mask: Tensor  # (questions, documents, length); nothing for a document that is not there
    ids: Tensor | None = None  # (questions, documents, length) their tokens
    is_document: Tensor | None = None  # (questions, documents, length) whether a token is one of the document

    def apart(self) -> PairStates:
        """Every pair as a question with one document; one that is not there is read all the same, and means nothing."""
        states, mask = self.states.flatten(0, 1).unsqueeze(1), self.mask.flatten(0, 1).unsqueeze(1)
        tokens = (None if part is None else part.flatten(0, 1).unsqueeze(1) for part in (self.ids, self.is_document))
        return PairStates(states, torch.where(mask.any(2, keepdim=True), mask, torch.ones_like(mask)), *tokens)

    @staticmethod
    def joined(pieces: Sequence[PairStates]) -> PairStates:
        """The same questions, read together with the documents of all pieces."""
        if len(pieces) == 1:
            return pieces[0]
        states = _side_by_side([piece.states.transpose(2, 3) for piece in pieces]).transpose(2, 3)
        mask = _side_by_side([piece.mask for piece in pieces])
        ids = [piece.ids for piece in pieces if piece.ids is not None]
        places = [piece.is_document for piece in pieces if piece.is_document is not None]
        return PairStates(states, mask, *(_side_by_side(parts) if parts else None for parts in (ids, places)))


def _side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """Parts (questions, documents, ..., length) with the documents of all, filled up to the longest."""
    longest = max(part.shape[-1] for part in parts)
    return torch.cat([functional.pad(part, (0, longest - part.shape[-1])) for part in parts], 1)


@dataclass(frozen=True)
class ReadPairs(Read):
    """What the decoder looks up in all pairs of each question, and their tokens."""

    ids: Tensor | None = None  # (questions, length)
    is_document: Tensor | None = None  # (questions, length)

    def of(self, text: Tensor) -> ReadPairs:
        """A row for each of these questions."""
        read = super().of(text)
        tokens = (None if part is None else part[text] for part in (self.ids, self.is_document))
        return ReadPairs(read.layers, read.mask, read.pooled, *tokens)


@dataclass(frozen=True)
class Answers:
    """What was written for each question."""

    tokens: list[list[int]]  # without the end
    logprobs: Tensor  # (questions,) of the tokens and of the end, where that was reached


@dataclass(frozen=True)
class _Writing:
    """Answers that are being written, a row for each question."""

    model: ReAttModel
    read: ReadPairs
    past: list[Memory]
    logprobs: Tensor  # (rows, words) of the next token

    def take(self, rows: Tensor) -> _Writing:
        """Some of the rows."""
        past = [(keys[rows], values[rows]) for keys, values in self.past]
        return _Writing(self.model, self.read.of(rows), past, self.logprobs[rows])

    def behind(self, tokens: Tensor) -> _Writing:
        """The same with one more token (rows,) behind each answer."""
        return self.model.behind(self.read, self.past, tokens)


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
        self.copying = new_gate(decoder_shape.d_model) if shape.copy else None
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

    def encode_pairs(
        self,
        queries: Tensor,
        query_mask: Tensor,
        documents: Tensor,
        document_mask: Tensor,
        ids: tuple[Tensor, Tensor] | None = None,
    ) -> PairStates:
        """Each question together with each of its documents; both were read apart.

        Questions (questions, length, d_model), documents (questions, documents, length, d_model), masks without the
        last dimension, and so are the ids of both, which a model that copies needs. A document without tokens is not
        there.
        """
        count, shape = documents.shape[1], documents.shape[:2]
        query_mask, masks = query_mask.repeat_interleave(count, 0), document_mask.flatten(0, 1)
        states, mask = self.encoder.pair_states(
            queries.repeat_interleave(count, 0), query_mask, documents.flatten(0, 1), masks
        )
        is_there = document_mask.any(2)[:, :, None]
        pairs = PairStates(states.unflatten(0, shape), mask.unflatten(0, shape) * is_there)
        if ids is None:
            return pairs
        asked, held = ids[0].repeat_interleave(count, 0)[:, :, None], ids[1].flatten(0, 1)[:, :, None]
        tokens, there = joined(asked, query_mask, held, masks)
        places = torch.arange(there.shape[1], device=there.device)
        is_document = (places >= query_mask.sum(1, keepdim=True)) & there.bool()
        return replace(pairs, ids=tokens[:, :, 0].unflatten(0, shape), is_document=is_document.unflatten(0, shape))

    def read(self, pairs: PairStates) -> ReadPairs:
        """What the decoder looks up in all pairs of a question, as if they were one text."""
        read = self.decoder.looked_up(pairs.states.flatten(1, 2), pairs.mask.flatten(1, 2))
        tokens = (None if part is None else part.flatten(1, 2) for part in (pairs.ids, pairs.is_document))
        return ReadPairs(read.layers, read.mask, read.pooled, *tokens)

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

    def answer_logprobs(self, read: ReadPairs, answers: Tensor) -> Tensor:
        """(questions, length) the log-probability of each token of answers (questions, length).

        An answer ends with the token `end`; it is zero behind that, where answers are negative.
        """
        there = answers >= 0
        begin = torch.full_like(answers[:, :1], self.decoder.shape.start)
        before = torch.cat([begin, answers.clamp(min=0)[:, :-1]], 1)
        states, _, shares = self._decoded(before, None, read)
        # Scores of all words are the most that is computed here: not for places behind the ends of answers.
        states, expected = states[there], answers[there]
        scores = self.decoder.logits(states).to(self.head_logits.dtype)
        logprobs = -functional.cross_entropy(scores, expected, reduction="none")
        if shares is not None and read.ids is not None:
            is_it = read.ids[there.nonzero()[:, 0]] == expected[:, None]
            copied = (shares[there].to(logprobs.dtype) * is_it).sum(1)
            logprobs = self._mixed(states, logprobs[:, None], copied[:, None])[:, 0]
        return torch.zeros(answers.shape, dtype=logprobs.dtype, device=logprobs.device).masked_scatter(there, logprobs)

    def _decoded(
        self, tokens: Tensor, past: list[Memory] | None, read: ReadPairs
    ) -> tuple[Tensor, list[Memory], Tensor | None]:
        """States after tokens, the past of what comes next, and where attention goes, for a model that copies."""
        if self.copying is None:
            return *self.decoder.decode(tokens, past, read), None
        if read.ids is None:
            raise ValueError("a model that copies needs the ids of what was read: encode_pairs(..., ids=...)")
        return self.decoder.decode_attending(tokens, past, read)

    def _mixed(self, states: Tensor, written: Tensor, copied: Tensor) -> Tensor:
        """(rows, words) the log-probability of words that are written with one, or copied with a probability."""
        assert self.copying is not None
        gate = self.copying(states).to(written.dtype)
        by_copying = functional.logsigmoid(gate) + copied.clamp(min=LEAST).log()
        return torch.logaddexp(functional.logsigmoid(-gate) + written, by_copying)

    def answer_loss(self, read: ReadPairs, answers: Tensor) -> Tensor:
        """(questions,) minus the mean log-probability of the tokens of each answer (questions, length)."""
        return -self.answer_logprobs(read, answers).sum(1) / (answers >= 0).sum(1).clamp(min=1)

    @torch.no_grad()
    def generate(self, read: ReadPairs, limit: int = ANSWER_TOKENS, *, word_for_word: bool = False) -> Answers:
        """Write the likeliest token after the other, up to the end or to `limit` tokens.

        With `word_for_word`, an answer is what stands in a document that was read.
        """
        start = torch.full((len(read.mask),), self.decoder.shape.start, device=self.device)
        state: Writing = self.behind(read, None, start)
        if word_for_word:
            state = WordForWord(state, self._anywhere(read))
        return Answers(*likeliest(state, self.end, limit))

    def behind(self, read: ReadPairs, past: list[Memory] | None, tokens: Tensor) -> _Writing:
        """What is written once tokens (rows,) stand behind the past."""
        states, past, shares = self._decoded(tokens[:, None], past, read)
        logprobs = self.decoder.logits(states[:, -1]).to(self.head_logits.dtype).log_softmax(1)
        if shares is not None and read.ids is not None:
            copied = torch.zeros_like(logprobs).scatter_add(1, read.ids, shares[:, -1].to(logprobs.dtype))
            logprobs = self._mixed(states[:, -1], logprobs, copied)
        return _Writing(self, read, past, logprobs)

    def _anywhere(self, read: ReadPairs) -> Standing:
        """Nothing is written yet, so an answer may begin anywhere in a document."""
        if read.ids is None or read.is_document is None:
            raise ValueError("it is not known what was read: encode_pairs(..., ids=...)")
        return Standing.anywhere(read.ids, read.is_document & (read.mask[:, 0, 0] == 0), self.tokenizer, self.end)


def _avg_max(queries: Tensor, query_mask: Tensor, keys: Tensor, key_mask: Tensor) -> Tensor:
    # In full precision: products are large, and what counts is how they differ between documents.
    with torch.autocast(queries.device.type, enabled=False):
        return late_scores(queries, query_mask, keys, key_mask, mean=True)


def new_gate(width: int) -> nn.Linear:
    """What says how probably a word is copied; at first it mostly is, since a new decoder writes nothing of use."""
    gate = nn.Linear(width, 1)
    nn.init.zeros_(gate.weight)
    nn.init.constant_(gate.bias, 2.0)
    return gate


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
    shape = replace(shape, copy=bool(shape.copy))
    weights = renamed(backbone.seq2seq_module().state_dict())
    tied = torch.equal(weights["output.weight"], weights["reader.embedding.weight"])
    theirs = T5Shape.of(backbone.transformers_config, tied=tied)
    apart = theirs.encoder_layers // 2 if shape.apart is None else shape.apart
    model = ReAttModel(backbone, replace(shape, apart=apart), replace(theirs, dropout=shape.dropout))
    encoder = {f"encoder.text.{name[7:]}": weight for name, weight in weights.items() if name.startswith("reader.")}
    decoder = {f"decoder.{name}": weight for name, weight in weights.items() if not name.startswith("reader.")}
    if tied:
        del decoder["decoder.output.weight"]
    own = {name: weight for name, weight in model.state_dict().items() if name.startswith(OWN)}
    model.load_state_dict({**encoder, **decoder, **own})
    return model.eval()


def _from_bert(backbone: Backbone, shape: ReAttShape) -> ReAttModel:
    """BERT as the encoder, and its layers once more as the decoder, with new attention to the text."""
    if not is_bert(backbone):
        problem = f"{backbone.name} is a {backbone.config['model_type']} model, which is neither a T5 nor a BERT"
        raise UsageError(problem, "choose minilm, scratch, or a model of the T5 family")
    sizes, tokenizer = BertSizes.of(backbone.config), backbone.tokenizer
    # Its upper layers serve the one vector of a text that it was trained to give: after one layer attention finds best.
    apart = min(1, sizes.num_hidden_layers - 1) if shape.apart is None else shape.apart
    shape = replace(shape, apart=apart, copy=shape.copy is not False)
    decoder_shape = BertShape.of(sizes, sizes.vocab_size, tied=True, dropout=shape.dropout)
    model = ReAttModel(backbone, shape, replace(decoder_shape, start=tokenizer.before[0]))
    weights = backbone.encoder_module().state_dict()
    assert isinstance(model.encoder, SplitBert)
    assert isinstance(model.decoder, BertDecoder)
    model.encoder.reader.load_state_dict(weights)
    copy_layers(model.decoder, weights)
    return model.eval()


def _encoder(backbone: Backbone, shape: ReAttShape, decoder_shape: DecoderShape) -> SplitEncoder:
    # Models that were saved before the number was written down have half of their layers apart.
    if isinstance(decoder_shape, T5Shape):
        return SplitT5(decoder_shape, decoder_shape.encoder_layers // 2 if shape.apart is None else shape.apart)
    sizes = BertSizes.of(backbone.config)
    sizes = replace(sizes, hidden_dropout_prob=shape.dropout, attention_probs_dropout_prob=shape.dropout)
    apart = sizes.num_hidden_layers // 2 if shape.apart is None else shape.apart
    return SplitBert(sizes, apart, shape.query_length)
