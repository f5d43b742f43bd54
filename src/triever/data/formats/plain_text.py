"""Plain text, Markdown and reStructuredText: the text without its front matter, its title, and its facts."""

from __future__ import annotations

from triever.data.formats.content import Content
from triever.data.formats.encodings import decode
from triever.data.formats.front_matter import split_front_matter
from triever.data.formats.headings import first_heading


def plain_content(raw: bytes, ending: str, charset: str = "") -> Content:
    """The content of a text; `charset` is the encoding that its sender names. A Flaw if the encoding is not certain."""
    fields, text = split_front_matter(decode(raw, charset))
    titles = [" ".join(str(fields.pop(name)).split()) for name in [*fields] if name.lower() == "title"]
    return Content(text, titles[0] if titles else first_heading(text, ending), fields)
