"""Word pieces of titles: learned from the titles, or read from a tokenizer's file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from triever.errors import UsageError, meant

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNKNOWN = "[UNK]"


def learn_pieces(titles: Iterable[str], vocabulary: int) -> Tokenizer:
    """A WordPiece tokenizer of these titles, always the same; unseen words become UNKNOWN.

    The titles are read twice.
    """
    from tokenizers import models

    # The trainer numbers letters within words in the random order of its hash table, and of equally frequent pairs it
    # joins those with the smallest numbers. A fixed order of letters makes the result deterministic.
    letters = _trained([UNKNOWN], titles, 0).get_vocab().keys() - {UNKNOWN}
    pieces = _trained([UNKNOWN, *sorted(letters)], titles, vocabulary).get_vocab()
    # A new tokenizer: in the trained one, every letter is a special token, which is split off anywhere in a word.
    tokenizer = _splitter()
    tokenizer.model = models.WordPiece(vocab=pieces, unk_token=UNKNOWN)
    return tokenizer


def _trained(first: Sequence[str], titles: Iterable[str], vocabulary: int) -> Tokenizer:
    """A tokenizer with these pieces first, all letters, and the most frequent pieces up to the size `vocabulary`."""
    from tokenizers import trainers

    tokenizer = _splitter()
    trainer = trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=list(first), show_progress=False)
    tokenizer.train_from_iterator(titles, trainer)
    return tokenizer


def _splitter() -> Tokenizer:
    """A tokenizer that splits words and has no pieces yet."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def load_pieces(path: str, words: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer of a file, or of a folder's tokenizer.json, without padding and truncation.

    `words` are what may stand there instead of a path, in case one of them was meant.
    """
    from tokenizers import Tokenizer

    file = Path(path, "tokenizer.json") if os.path.isdir(path) else Path(path)
    hint = "name a tokenizer.json or a folder with one, as save_pretrained of a transformers tokenizer writes it"
    if not os.path.isfile(file):
        raise UsageError(f"tokenizer = {path!r}: there is no file {file}", meant(path, words) or hint)
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # what it raises has no other type
        raise UsageError(f"tokenizer = {path!r}: {file} is not a tokenizer: {error}", hint) from error
    tokenizer.no_padding()  # some files ask for both
    tokenizer.no_truncation()
    return tokenizer
