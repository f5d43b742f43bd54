"""Blocks of padded texts that an encoder reads elsewhere, in the batches in which it would read them here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from triever.errors import ArtifactError
from triever.models.elsewhere import Place, Work, made_at
from triever.models.precision import computing_fast

BATCHES = 16
"""Batches of a block, which is what a worker is given and what is kept of an interrupted work."""
_NUMBERS = pa.list_(pa.int64())
_SCHEMA = pa.schema(
    [*((name, _NUMBERS) for name in ("shape", "ids", "mask")), ("chosen", pa.list_(pa.bool_()))],
)


class Padded(NamedTuple):
    """Texts that are read together."""

    ids: np.ndarray  # (texts, length)
    mask: np.ndarray  # (texts, length) which of them are tokens
    chosen: np.ndarray | None  # (texts, length) bool: of which tokens vectors are wanted; None for vectors of texts


@dataclass(frozen=True)
class Encoding:
    """A method of an encoder that makes vectors of texts."""

    encoder: nn.Module
    call: str
    about: str
    """What decides the vectors besides weights, such as the pooling."""
    kind = "encoding"

    @cached_property
    def mark(self) -> str:
        """A hash of all weights, and of what is called."""
        digest = hashlib.sha256(f"{self.call} {self.about}".encode())
        for name, tensor in self.encoder.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()[:32]

    def begin(self, device: str) -> Work:
        """The vectors of a block, end to end, and how many each batch has."""
        encoder = self.encoder.to(device).eval()
        call = getattr(encoder, self.call)

        def work(block: pa.Table, file: BinaryIO) -> None:
            vectors = [_vectors(call, batch, torch.device(device)) for batch in _batches(block)]
            np.savez(file, vectors=np.concatenate(vectors), sizes=np.array([len(own) for own in vectors]))

        return work


def encoded_at(
    place: Place, task: Encoding, batches: Sequence[np.ndarray], padded: Callable[[np.ndarray], Padded], label: str
) -> Iterator[np.ndarray]:
    """For each batch of rows in its order, what a method of the encoder makes of its texts at a place."""
    blocks = [batches[low : low + BATCHES] for low in range(0, len(batches), BATCHES)]
    made = made_at(place, task, (_table([padded(rows) for rows in block]) for block in blocks), label)
    for block, arrays in zip(blocks, made, strict=True):
        vectors, sizes = arrays.get("vectors"), arrays.get("sizes")
        if vectors is None or sizes is None or len(sizes) != len(block) or sizes.sum() != len(vectors):
            raise ArtifactError(f"{place.folder} holds damaged vectors", "remove it, and run the same command again")
        yield from np.split(vectors, np.cumsum(sizes)[:-1])


def _table(texts: Sequence[Padded]) -> pa.Table:
    """A block, with a row for each batch."""
    rows = [
        {
            "shape": batch.ids.shape,
            "ids": batch.ids.ravel(),
            "mask": batch.mask.ravel(),
            "chosen": None if batch.chosen is None else batch.chosen.ravel(),
        }
        for batch in texts
    ]
    return pa.Table.from_pylist(rows, _SCHEMA)


def _batches(block: pa.Table) -> Iterator[Padded]:
    """The batches of a block."""
    for row in block.to_pylist():
        shape, chosen = row["shape"], row["chosen"]
        ids, mask = (np.array(row[name], np.int64).reshape(shape) for name in ("ids", "mask"))
        yield Padded(ids, mask, None if chosen is None else np.array(chosen, bool).reshape(shape))


def _vectors(call: Callable[..., Tensor], batch: Padded, device: torch.device) -> np.ndarray:
    with reading_on(device):
        vectors = call(*(torch.from_numpy(values).to(device) for values in (batch.ids, batch.mask)))
        return (vectors if batch.chosen is None else of_chosen(vectors, batch.chosen)).cpu().numpy()


def of_chosen(vectors: Tensor, chosen: np.ndarray) -> Tensor:
    """(n, d) float16 the vectors of the tokens that are chosen (texts, length), out of (texts, length, d).

    On the device already: of a title and its text, say, a few tokens in a hundred are wanted.
    """
    return vectors.flatten(0, 1)[torch.from_numpy(np.flatnonzero(chosen)).to(vectors.device)].half()


@contextmanager
def reading_on(device: torch.device) -> Generator[None]:
    """Read texts on a device, in the precision that is fast there."""
    with torch.inference_mode(), computing_fast(device):
        yield
