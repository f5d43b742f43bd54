"""What every model is that reads a text and writes a docid: symbols, output rows, a loss, and a generator.

A kind of model brings how it reads and how symbols follow each other; what symbols are, and how states are scored
against them, is the same for all kinds and stands here.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from triever.docids.branches import Branches
from triever.models.encoder import Encoder
from triever.models.generator import Generator, of_candidates
from triever.models.rows import ShardedRows
from triever.models.tokens import Tokens

Tokenise = Callable[[list[str]], tuple[Tensor, Tensor]]
"""Texts to ids and mask, (rows, length) each."""

FEW = 32
"""A candidate's row is fetched from memory, where a whole layer is one product: so many times dearer, roughly."""
SHARP = 20.0
"""The highest score, about, of a state that is as long as the rows that it meets."""


@dataclass(frozen=True)
class SymbolShape:
    """The symbols of a model, and how its states meet their rows."""

    width: int  # symbols that are written
    start: int  # the symbol that every docid starts from
    d_model: int = 512
    tied: bool = False  # the rows that symbols are read as are those of the output layer
    fixed: bool = False  # the rows of symbols are given and not learned; they are those of the output layer too
    inputs: int = 0  # symbols that are read; 0 is all of them, 1 is enough where docids have one symbol
    shards: int = 1  # blocks of the output layer
    scaled: bool = False  # states are divided by the root of their width before they meet output rows, as T5 does
    scale: float = 0.0  # what they are multiplied by instead, where that is not 0
    entering: float = 1.0  # what the rows of symbols are multiplied by where they are read
    dropout: float = 0.0


S = TypeVar("S", bound=SymbolShape)
Model = TypeVar("Model", bound="DocidModel")


class FixedRows(nn.Module):
    """A table of vectors that no training changes."""

    weight: Tensor

    def __init__(self, count: int, size: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(count, size))

    def forward(self, numbers: Tensor) -> Tensor:
        return functional.embedding(numbers, self.weight)


class DocidModel(nn.Module, ABC, Generic[S]):
    """A model that reads a text and writes a docid, one symbol after the other."""

    shape: S

    def __init__(self, shape: S, reader: nn.Module) -> None:
        super().__init__()
        self.shape = shape
        self.reader = reader
        self.add_symbols()
        self.add_layers()
        self.add_output()
        self.reset()

    def add_symbols(self) -> None:
        """Add the rows that symbols are read as."""
        shape, table = self.shape, FixedRows if self.shape.fixed else nn.Embedding
        self.symbols = table(shape.inputs or max(shape.width, shape.start + 1), shape.d_model)

    def add_output(self) -> None:
        """Add the rows that symbols are written with, where they are not those that they are read as."""
        shape = self.shape
        if not shape.tied:
            whole = shape.shards <= 1
            self.output = (
                nn.Linear(shape.d_model, shape.width, bias=False)
                if whole
                else ShardedRows(shape.d_model, shape.width, shape.shards)
            )

    # What a kind of model has to bring.

    @abstractmethod
    def add_layers(self) -> None:
        """Add what stands between the reader and the output layer."""

    @abstractmethod
    def reset(self) -> None:
        """Set initial weights, in all but a reader that came with its own."""

    @abstractmethod
    def states_before(self, ids: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
        """The states (rows, length, d_model) from which each symbol of the targets (rows, length) is written.

        Texts are ids and mask (rows, tokens), filled up on the right.
        """

    @abstractmethod
    def first_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The states (rows, d_model) from which the first symbol after each text is written."""

    @abstractmethod
    def generator(self, length: int, prefix: str = "") -> Generator:
        """What a search asks; it reads at most `length` tokens of a text, with the prefix before each."""

    # What is the same for all.

    def forward(self, ids: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
        """Scores of every symbol at every place of the targets (rows, length): (rows, length, width)."""
        return self.logits(self.states_before(ids, mask, targets))

    def loss(
        self, ids: Tensor, mask: Tensor, targets: Tensor, ignored: int, branches: Branches | None = None
    ) -> Tensor:
        """Minus the mean log-probability of targets (rows, length), each the sum of its symbols but for those ignored.

        A mean over rows, not over symbols: so the mean over several batches is that of all their rows as one.
        Probabilities are over all symbols, or over those that may follow a prefix where branches are given.
        """
        known = targets.masked_fill(targets == ignored, 0)
        return self.loss_of(self.states_before(ids, mask, known), targets, ignored, branches)

    def loss_of(self, states: Tensor, targets: Tensor, ignored: int, branches: Branches | None = None) -> Tensor:
        """The same of states (rows, length, d_model) that are there already."""
        there = targets != ignored
        if branches is not None:
            nodes = branches.nodes(targets)
            there &= nodes >= 0
            scores = self.logits(states[there]).float()
            return branches.cross_entropy(scores, targets[there], nodes[there]) / len(targets)
        # Scores of all symbols are the most that is computed here: not for places behind the ends of docids.
        return self._cross_entropy(states[there], targets[there]) / len(targets)

    def _cross_entropy(self, states: Tensor, targets: Tensor) -> Tensor:
        """Minus the log-probabilities of targets (n,) after states (n, d_model), added up."""
        if blocks := self._blocks:
            return blocks.cross_entropy(self._scaled(states), targets)
        return functional.cross_entropy(self.logits(states).float(), targets, reduction="sum")

    def logits(self, states: Tensor) -> Tensor:
        """Scores of every symbol."""
        scaled = self._scaled(states)
        return functional.linear(scaled, self._output_rows()) if self.shape.tied else self.output(scaled)

    def scores(self, states: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Scores of all symbols, or of candidates (n, C) after states (n, ..., d_model): (n, ..., C).

        Few candidates are scored by themselves, many among all symbols.
        """
        if candidates is None:
            return self.logits(states)
        if self.scores_all(candidates.shape[1], states[0, ..., 0].numel()):
            return of_candidates(self.logits(states), candidates)
        return self.logits_of(states, candidates)

    def scores_all(self, candidates: int, states: int = 1) -> bool:
        """Whether so many candidates for each `states` are scored among all symbols."""
        return FEW * candidates >= self.shape.width * states

    def logits_of(self, states: Tensor, candidates: Tensor) -> Tensor:
        """Scores of some symbols (n, C) after states (n, ..., d_model): (n, ..., C)."""
        if self._blocks:  # whose rows lie on several devices
            return of_candidates(self.logits(states), candidates)
        return torch.einsum("n...d,ncd->n...c", self._scaled(states), self._output_rows()[candidates])

    def _scaled(self, states: Tensor) -> Tensor:
        scale = self.shape.scale or (self.shape.d_model**-0.5 if self.shape.scaled else 1.0)
        return states * scale if scale != 1 else states

    def _output_rows(self) -> Tensor:
        # The symbol that starts a docid may be behind the others; it is never written.
        return self.symbols.weight[: self.shape.width] if self.shape.tied else self.output.weight

    @property
    def _blocks(self) -> ShardedRows | None:
        """The output layer, where it lies in blocks."""
        return self.output if not self.shape.tied and isinstance(self.output, ShardedRows) else None

    @property
    def dtype(self) -> torch.dtype:
        """The type it computes in."""
        return self.symbols.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.symbols.weight.device

    @property
    def encoder(self) -> Encoder:
        """The encoder that reads texts, where the reader is one."""
        if not isinstance(self.reader, Encoder):
            raise TypeError(f"this model reads with a {type(self.reader).__name__}, which has no tokenizer")
        return self.reader

    def at_most(self, wanted: int) -> int:
        """How many tokens of a text can be read, up to as many as are wanted."""
        return self.encoder.at_most(wanted)

    def tokenise(self, texts: Sequence[str], length: int) -> tuple[Tensor, Tensor]:
        """The first tokens of texts: ids and mask, (rows, longest) each."""
        tokenizer = self.encoder.tokenizer
        return Tokens.of(texts, tokenizer, length).all_padded(tokenizer.pad)

    def tokeniser(self, length: int, prefix: str = "") -> Tokenise:
        """A function that gives at most `length` tokens of each text, with the prefix before the text."""
        return lambda texts: self.tokenise([prefix + text for text in texts], length)

    # Symbols and their rows

    @torch.no_grad()
    def set_rows(self, rows: Tensor) -> None:
        """Let the rows with which the first symbols are written be these, (up to width, d_model)."""
        if self.shape.tied:
            self.symbols.weight[: len(rows)] = rows.to(self.symbols.weight)
        elif isinstance(self.output, ShardedRows):
            self.output.load(rows)
        else:
            self.output.weight[: len(rows)] = rows.to(self.output.weight)

    @property
    def rows(self) -> Tensor:
        """(width, d_model) the rows with which symbols are written; output layers in blocks give a copy."""
        return self._output_rows().detach()

    @property
    def start_row(self) -> Tensor:
        """(d_model,) what every docid starts from."""
        return self.symbols.weight[self.shape.start].detach()

    @property
    def has_own_symbols(self) -> bool:
        """Whether symbols are read as rows of their own, and not as the tokens of the backbone that they are."""
        return True

    def split_rows(self) -> tuple[list[Tensor], list[Tensor]]:
        """The rows of docid symbols, those that are written with and those that are read, and all other weights."""
        rows: list[Tensor] = []
        other_weights: list[Tensor] = []
        for name, tensor in (*self.named_parameters(), *self.named_buffers()):
            (rows if name.startswith(("symbols.", "output.")) else other_weights).append(tensor)
        return rows, other_weights

    def with_symbols(self, rows: Tensor, start: Tensor) -> Self:
        """The same model over other fixed symbols (symbols, d_model), and what starts every docid (d_model,).

        All layers are shared between the two. The first rows decide how states are scaled before they meet rows: of a
        state that is as long as they are, the highest score is about SHARP, whatever the backbone's states are like.
        """
        table = FixedRows(len(rows) + 1, rows.shape[1]).to(self.device)
        table.weight.copy_(torch.cat([rows, start[None].to(rows)]))
        made = copy.copy(self)
        made._modules = {**self._modules, "symbols": table}
        made.shape = replace(self.shape, width=len(rows), start=len(rows))
        if not self.shape.scale:
            scale, entering = SHARP / length_of(rows) ** 2, self.entering_for(rows)
            made.shape = replace(made.shape, scale=scale, entering=entering)
        return made

    def entering_for(self, rows: Tensor) -> float:
        """What rows are multiplied by where they are read, so that the layers can read them."""
        return 1.0

    def narrowed(self, tokens: Tensor) -> Self:
        """The same model over fewer docid symbols: symbol i is token tokens[i] of the old vocabulary.

        Scores are the old ones, so under `trie` normalisation nothing changes but the work.
        """
        shape = replace(self.shape, width=len(tokens), start=len(tokens), tied=False, shards=1)
        ours = self._like(shape)
        weights = self._whole()
        output = weights["symbols.weight"] if self.shape.tied else weights["output.weight"]
        begin = torch.tensor([self.shape.start], device=tokens.device)
        weights["output.weight"] = output[tokens]
        weights["symbols.weight"] = weights["symbols.weight"][torch.cat([tokens, begin])]
        ours.load_state_dict(weights)
        return ours.to(tokens.device).eval()

    def widened(self, rows: Sequence[Sequence[int]], apart: Tensor | None = None) -> Self:
        """The same model with one more docid symbol for each of these, behind the last one, not yet trained.

        The rows of a new symbol are the mean of those of the symbols named for it, or of all where none are named;
        where output rows began as vectors, `apart` (new, d_model) says how far the new ones were from that mean, and
        they are as far from it now. Old symbols keep theirs to the last bit, and so their scores. For symbols that
        atomic docids have added since:
        `model.widened([scheme.untrained[symbol] for symbol in range(model.shape.width, scheme.width)])`.
        """
        old, more = self.shape, len(rows)
        shape = replace(old, width=old.width + more, start=old.start + more if old.start >= old.width else old.start)
        ours = self._like(shape)
        weights = self._whole()
        if not old.inputs:
            weights["symbols.weight"] = _with_means(weights["symbols.weight"], old.width, rows)
        if not old.tied:
            weights["output.weight"] = _with_means(weights["output.weight"], old.width, rows, apart)
        ours._load(weights)
        return ours.to(self.device).eval()

    def _whole(self) -> dict[str, Tensor]:
        """The weights, with an output layer in one piece."""
        weights = {name: weight for name, weight in self.state_dict().items() if not name.startswith("output.")}
        return weights if self.shape.tied else {**weights, "output.weight": self.output.weight.detach()}

    def _load(self, weights: dict[str, Tensor]) -> None:
        """Take weights with an output layer in one piece, whatever the model's is."""
        if self._blocks is None:
            self.load_state_dict(weights)
            return
        self.set_rows(weights["output.weight"])
        rest = {name: weight for name, weight in weights.items() if name != "output.weight"}
        self.load_state_dict({**self.state_dict(), **rest})

    def _like(self, shape: S) -> Self:
        """A model of another width with a reader of its own, whose weights are still to be loaded."""
        with torch.random.fork_rng(devices=[]):  # what is drawn here is thrown away, and must not change what comes
            return type(self)(shape, copy.deepcopy(self.reader)).to(self.dtype)


def laid_out(model: Model) -> Model:
    """The model, on a processor with the weights of its layers lying column by column.

    Nothing changes but the speed: products of few rows are some 15% faster so, where the processor has
    no library that packs weights by itself.
    """
    if model.dtype == torch.float32 and model.device.type == "cpu":
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Linear) and name != "output":
                layer.weight.data = layer.weight.data.t().contiguous().t()
    return model


def versions(model: nn.Module) -> list[tuple[int, int]]:
    """What changes with the weights of a model: where each lies, and how often it was written to."""
    weights = (*model.parameters(), *model.buffers())
    return [(weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in weights]


@torch.no_grad()
def length_of(rows: Tensor) -> float:
    """How long rows are: the root of their mean square."""
    return float(rows.float().square().sum(1).mean().sqrt())


def as_long_as(rows: Tensor, vector: Tensor) -> Tensor:
    """A vector in its own direction, as long as rows are."""
    return vector * (length_of(rows) / float(vector.norm())) if len(rows) else vector


def words_of(encoder: Encoder) -> Tensor:
    """(tokens, hidden) what the backbone reads tokens as."""
    return encoder.module.get_input_embeddings().weight.detach()  # ty: ignore[call-non-callable]


def _with_means(table: Tensor, width: int, rows: Sequence[Sequence[int]], apart: Tensor | None = None) -> Tensor:
    """A table with a mean for each of these, and what is apart from it, behind its first rows.

    The row of the symbol that starts docids, where there is one, stays the last.
    """
    known = table[:width]
    whole = known.mean(0, dtype=torch.float32)  # a sum in half precision loses digits
    means = [known[list(named)].mean(0, dtype=torch.float32) if named else whole for named in rows]
    new = torch.stack(means) if means else known[:0].float()
    if apart is not None:
        new = new + apart.to(new)
    return torch.cat([known, new.to(table.dtype), table[width:]])
