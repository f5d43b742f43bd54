"""The word pieces of titles: the same in every process, and those of a slow and obvious way."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.docids.schemes import UNKNOWN, learn_pieces

LETTERS = "abcdefghijklmnopqrstuvwxyzßøя東京"
FIT = """
import hashlib
from tests.docids.test_pieces import varied_titles
from triever import Document
from triever.docids.schemes import Title
documents = [Document(str(number), "", title) for number, title in enumerate(varied_titles())]
docids = [[*Title(vocabulary=size).fit(documents)] for size in (100, 400, 8000)]
print(hashlib.sha256(repr(docids).encode()).hexdigest())
"""


def varied_titles() -> list[str]:
    """Titles in which many pairs of pieces are equally frequent, so that an order has to choose among them."""
    chance = random.Random(0)
    return [
        " ".join("".join(chance.choices(LETTERS, k=chance.randrange(1, 9))) for _ in range(chance.randrange(1, 4)))
        for _ in range(500)
    ]


def slow_pieces(titles: list[str], size: int) -> dict[str, int]:
    """The letters in order, then again and again the most frequent pair as one; of equal ones that of least numbers."""
    words = Counter(word for title in titles for word in title.split())
    split = {word: [word[0], *(f"##{letter}" for letter in word[1:])] for word in words}
    letters = {piece for pieces in split.values() for piece in pieces} | set("".join(words))
    number = {piece: at for at, piece in enumerate([UNKNOWN, *sorted(letters)])}
    while len(number) < size:
        pairs = Counter({pair: 0 for pieces in split.values() for pair in pairwise(pieces)})
        for word, pieces in split.items():
            for pair in pairwise(pieces):
                pairs[pair] += words[word]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], number[pair[0]], number[pair[1]]))
        number.setdefault(joined(*best), len(number))
        split = {word: with_joined(pieces, best) for word, pieces in split.items()}
    return number


def joined(first: str, second: str) -> str:
    return first + second.removeprefix("##")


def with_joined(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    found: list[str] = []
    while pieces:
        here = tuple(pieces[:2]) == pair
        found.append(joined(*pair) if here else pieces[0])
        pieces = pieces[2 if here else 1 :]
    return found


@given(st.lists(st.text("abc ", max_size=12), max_size=15), st.integers(1, 40))
def test_pieces_are_those_of_a_slow_and_obvious_way(titles: list[str], size: int) -> None:
    assert learn_pieces(titles, size).get_vocab() == slow_pieces(titles, size)


@pytest.mark.long
def test_every_process_gives_the_same_docids_to_titles() -> None:
    seen = set()
    for seed in range(3):
        hashes = {**os.environ, "PYTHONHASHSEED": str(seed)}
        done = subprocess.run([sys.executable, "-c", FIT], env=hashes, capture_output=True, text=True, check=True)
        seen.add(done.stdout)
    assert len(seen) == 1


def test_a_letter_is_a_piece_only_where_a_word_has_no_longer_one() -> None:
    tokenizer = learn_pieces(["water"] * 3, 100)
    assert tokenizer.encode("water").tokens == ["water"]
    assert tokenizer.encode("w").tokens == ["w"]
