"""Word pieces of titles: learned from them, or those of a tokenizer's file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triever.errors import UsageError

UNKNOWN = "[UNK]"


def learn_pieces(titles: Sequence[str], vocabulary: int) -> Any:
    """A WordPiece tokenizer of these titles, always the same; what it has never seen becomes a piece that says so."""
    from tokenizers import models

    # The trainer numbers letters within words as its hash table has them, which is by chance, and of equally frequent
    # pairs it joins those with the smallest numbers. Letters in an order of ours leave nothing to chance.
    letters = _trained([UNKNOWN], titles, 0).get_vocab().keys() - {UNKNOWN}
    pieces = _trained([UNKNOWN, *sorted(letters)], titles, vocabulary).get_vocab()
    # Made anew: to the trained one, every letter is a special token, which is a piece wherever it stands.
    tokenizer = _splitter()
    tokenizer.model = models.WordPiece(vocab=pieces, unk_token=UNKNOWN)
    return tokenizer


def _trained(first: Sequence[str], titles: Sequence[str], vocabulary: int) -> Any:
    """A tokenizer with these pieces, all letters, and then the most frequent pieces while there is room."""
    from tokenizers import trainers

    tokenizer = _splitter()
    trainer = trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=list(first), show_progress=False)
    tokenizer.train_from_iterator(titles, trainer)
    return tokenizer


def _splitter() -> Any:
    """A tokenizer that knows what words are, and no pieces yet."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def load_pieces(path: str) -> Any:
    """The tokenizer of a file, or of a folder's tokenizer.json, that gives all pieces of a title and no others."""
    from tokenizers import Tokenizer

    file = Path(path, "tokenizer.json") if os.path.isdir(path) else Path(path)
    hint = "name a tokenizer.json or a folder with one, as save_pretrained of a transformers tokenizer writes it"
    if not os.path.isfile(file):
        raise UsageError(f"tokenizer = {path!r}: there is no file {file}", hint)
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # what it raises has no other type
        raise UsageError(f"tokenizer = {path!r}: {file} is not a tokenizer: {error}", hint) from error
    tokenizer.no_padding()  # some files ask for both
    tokenizer.no_truncation()
    return tokenizer
