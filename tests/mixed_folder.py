"""A folder of mixed files, as people have them: `python -m tests.mixed_folder FOLDER`.

Nested folders, several formats and encodings, front matter, long files, copies, empty and broken files, and data that
is no document. Every file has a word of its own, by which a search should find it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.data.test_text_files import docx, pdf

FILES = 1040
TOPICS = ("garden", "kitchen", "harbour", "library", "station")
LONG = 400
"""Sentences of a long file; its own word stands in the last one."""


@dataclass(frozen=True)
class Written:
    """A file of the folder: its path, its bytes, and the word that only it has; no word if it is no document."""

    path: str
    raw: bytes
    word: str = ""
    year: int = 0


def word_of(number: int) -> str:
    """A word that only one file has."""
    letters = "bdfgklmnprstvz"
    syllables = (number % 14, number // 14 % 14, number // 196 % 14, (number * 5) % 14)
    return "".join(letters[at] + vowel for at, vowel in zip(syllables, "aeio", strict=True))


def mixed_files() -> Iterator[Written]:
    """All files of the folder, in the order of their numbers."""
    for number in range(FILES):
        yield _written(number)


def _written(number: int) -> Written:
    topic, word, year = TOPICS[number % 5], word_of(number), 2000 + number % 25
    text = f"Notes of the {topic}. The {word} was seen here in {year}."
    folder = f"{topic}/{year}"
    match number % 13:
        case 0:
            front = f"---\ntitle: The {word}\nyear: {year}\ntags: [{topic}]\n---\n"
            return Written(f"{folder}/{number}.md", (front + text).encode(), word, year)
        case 1:
            return Written(f"{folder}/{number}.txt", f"Grüße, schöne Höhe über für Öl. {text}".encode("latin-1"), word)
        case 2:
            return Written(f"{folder}/{number}.txt", text.encode("utf-16"), word)
        case 3:
            return Written(f"{folder}/{number}.rst", f"The {word}\n{'=' * 20}\n\n{text}\n".encode(), word)
        case 4:
            page = f"<html><head><title>{word}</title></head><body><nav>Home</nav><p>{text}</p></body></html>"
            return Written(f"{folder}/{number}.html", page.encode(), word)
        case 5:
            body = f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"
            return Written(f"{folder}/{number}.docx", docx(body), word)
        case 6:
            return Written(f"{folder}/{number}.pdf", pdf(text), word)
        case 7:
            long = f"Nothing was seen in the {topic} on this day. " * LONG
            return Written(f"{folder}/{number}.markdown", f"# Long\n{long}{text}".encode(), word)
        case 8:
            return Written(f"{folder}/copies/{number}/README", f"{text} A copy.".encode(), word)
        case 9:
            return Written(f"{folder}/{number}.md", b"")
        case 10:
            return Written(f"{folder}/{number}.pdf", b"%PDF-1.4 this is broken")
        case 11:
            return Written(f"{folder}/{number}.bin", bytes(range(256)))
        case _:
            return Written(f"{folder}/log-{number}.jsonl", b'{"level": "info", "event": 1}\n' * 3)


def write_mixed(folder: Path) -> list[Written]:
    """Write all files."""
    files = list(mixed_files())
    for file in files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.raw)
    return files


if __name__ == "__main__":
    print(f"wrote {len(write_mixed(Path(sys.argv[1]))):,} files")
