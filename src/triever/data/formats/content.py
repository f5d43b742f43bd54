"""What one file says: a text, a title, and facts about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from triever.errors import Flaw

if TYPE_CHECKING:
    from triever.validation import Json


@dataclass(frozen=True, slots=True)
class Content:
    """The text of a file, its title or "", and the facts that the file itself states."""

    text: str
    title: str = ""
    metadata: Mapping[str, Json] = field(default_factory=dict)


class TooLarge(Flaw):
    """A file or a text that is larger than any document."""

    def __init__(self, part: str, limit: int) -> None:
        super().__init__(f"the {part} is larger than {limit // 2**20} MiB", "split the document into passages")


class BadFile(Flaw):
    """A file that is damaged, locked, or not what its name says."""
