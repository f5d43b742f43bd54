"""Web pages: their main text, without menus, scripts and styles, their title, and what they say about themselves.

Python's own html.parser takes the square of the length of some broken pages, and more: 30 kB of "<a " take half a
minute. Pages are therefore split into tags here, in one pass that never goes back.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from triever.data.formats.content import Content
from triever.data.formats.encodings import decode

if TYPE_CHECKING:
    from triever.validation import Json

Tag: TypeAlias = tuple[str, str, str]
"""A slash for an end tag or "", the name, and the attributes as they are written."""

_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?\s*([\w-]+)""", re.IGNORECASE)
_HEAD = 2048  # bytes in which the encoding is declared
_OPENS_TAG = re.compile("</?[a-zA-Z]")
_TAG = re.compile(r"""<(/?)([a-zA-Z][^\s/>]*+)((?:[^>"'=]++|=\s*+(?:"[^"]*+"|'[^']*+'|)|["'])*+)>""")
_ATTRIBUTE = re.compile(r"""([^\s/>="']++)(?:\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s>"']++))?""")
_LONG_NUMBER = re.compile(r"&#(?:[0-9]{9,}|[xX][0-9a-fA-F]{9,});?")
_SPACE = re.compile(r"[^\S\n]+")
_MANY_BREAKS = re.compile(r" *\n(?: *\n)+ *")
_BREAK = re.compile(r" *\n *")

_RAW = frozenset(("script", "style", "textarea", "xmp", "iframe", "noembed", "noframes"))
_UNSEEN = frozenset((*_RAW, "template", "noscript", "svg", "math", "object", "canvas", "select", "datalist", "title"))
_BESIDE = frozenset(("nav", "aside", "footer", "menu", "dialog", "button"))
_BESIDE_ROLES = frozenset(("navigation", "banner", "contentinfo", "complementary", "search", "menu", "dialog"))
_HAS_ROLE = re.compile("role|hidden", re.IGNORECASE)
_KNOWN = (*_UNSEEN, *_BESIDE, "header", "main", "article", "pre", "h1")
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)
_PARAGRAPHS = (
    *("p", "div", "section", "article", "main", "header", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre"),
    *("ul", "ol", "dl", "table", "figure", "hr", "body", "details", "summary", "address", "fieldset", "form"),
)
_BREAKS = {
    **dict.fromkeys(_PARAGRAPHS, "\n\n"),
    **dict.fromkeys(("br", "li", "dt", "dd", "tr", "caption", "figcaption", "legend"), "\n"),
    **dict.fromkeys(("td", "th"), " "),
}
_MAIN, _ARTICLE, _BODY, _ALL = 1, 2, 4, 8  # parts of a page to which a piece of text may belong
_END = "\x1f"  # of a title; no text has this sign, as HTML does not allow it
_FACTS = ("author", "date", "keywords", "description")


def html_content(raw: bytes, charset: str = "") -> Content:
    """The content of a page; a Flaw if its encoding is not certain.

    `charset` is the encoding that its sender names; it comes before the one that the page names itself.
    """
    declared = _CHARSET.search(raw[:_HEAD])
    page = _Page()
    for token in _tokens(decode(raw, charset or (declared[1].decode("ascii", "replace") if declared else ""))):
        page.take_text(token) if isinstance(token, str) else page.take_tag(*token)
    return page.content()


class _Element:
    """An element that is known by its role, and how deep in it the page is: its name alone would not tell its end."""

    def __init__(self) -> None:
        self.name, self.depth = "", 0

    def follow(self, name: str, step: int, begins: bool) -> None:
        """Take in a tag; if it begins such an element, its end tag will end it."""
        if self.depth and name == self.name:
            self.depth += step
        elif begins and not self.depth:
            self.name, self.depth = name, 1


class _Page:
    """The pieces of text of a page so far, each with the parts that it belongs to."""

    def __init__(self) -> None:
        self._open = dict.fromkeys(_KNOWN, 0)  # pages forget to close elements, so each name is counted by itself
        self._beside, self._main = _Element(), _Element()
        self._pieces: list[str] = []
        self._parts = bytearray()  # for each piece, the sum of its parts
        self._part = _ALL | _BODY
        self._titles: dict[str, list[str]] = {"title": [], "h1": []}
        self._facts: dict[str, Json] = {}

    def take_tag(self, slash: str, name: str, attributes: str) -> None:
        """Enter or leave an element."""
        lines = _BREAKS.get(name)
        if lines and (not self._pieces or self._pieces[-1] != lines):
            self._add(lines, _ALL | _BODY | _ARTICLE | _MAIN)
        if name == "meta":
            self._take_fact(_attributes(attributes))
        step = -1 if slash else 1
        has_role = not slash and name not in _VOID and _HAS_ROLE.search(attributes) is not None
        if has_role or name in (self._beside.name, self._main.name):
            named = _attributes(attributes)
            role = named.get("role", "") if has_role else ""
            self._beside.follow(name, step, has_role and (role in _BESIDE_ROLES or "hidden" in named))
            self._main.follow(name, step, role == "main")
            self._part = self._parts_here()
        if name in self._open:
            self._open[name] = max(0, self._open[name] + step)
            self._part = self._parts_here()
            if slash and name in self._titles:
                self._titles[name].append(_END)

    def take_text(self, text: str) -> None:
        """Add text to the parts that the page is in."""
        if not self._part:
            if self._open["title"] and not self._open["svg"]:
                self._titles["title"].append(text)
            return
        if self._open["h1"]:
            self._titles["h1"].append(text)
        self._add(text if self._open["pre"] else text.replace("\n", " "), self._part)

    def content(self) -> Content:
        """The main text of the page, its title, and its facts."""
        texts = {part: self._text(part) for part in (_MAIN, _ARTICLE, _BODY, _ALL)}
        sizes = {part: sum(map(len, text.split())) for part, text in texts.items()}
        if 2 * sizes[_ARTICLE] < sizes[_BODY]:  # a page of many small articles, or with some beside its text
            sizes[_ARTICLE] = 0
        part = next((part for part, size in sizes.items() if size), _ALL)
        return Content(_tidy(texts[part]), self._first("title") or self._first("h1"), self._facts)

    def _add(self, text: str, part: int) -> None:
        self._pieces.append(text)
        self._parts.append(part)

    def _text(self, part: int) -> str:
        return "".join(piece for piece, parts in zip(self._pieces, self._parts, strict=True) if parts & part)

    def _parts_here(self) -> int:
        """The parts to which text belongs that comes next."""
        if any(self._open[name] for name in _UNSEEN):
            return 0
        main = _MAIN if self._main.depth or self._open["main"] else 0
        article = _ARTICLE if self._open["article"] else 0
        is_beside = self._beside.depth or any(self._open[name] for name in _BESIDE)
        if is_beside or (self._open["header"] and not main and not article):
            return _ALL
        return _ALL | _BODY | article | main

    def _first(self, name: str) -> str:
        """The text of the first element of this name that has one."""
        texts = "".join(self._titles[name]).split(_END)
        return next(filter(None, (" ".join(text.split()).removesuffix("¶").rstrip() for text in texts)), "")

    def _take_fact(self, attributes: Mapping[str, str]) -> None:
        name, value = attributes.get("name", "").strip().lower(), " ".join(attributes.get("content", "").split())
        if name in _FACTS and value and name not in self._facts:
            words: list[Json] = [word.strip() for word in value.split(",") if word.strip()]
            self._facts[name] = words if name == "keywords" else value


def _tokens(text: str) -> Iterator[str | Tag]:
    """Pieces of text and tags, one after the other; what is never closed ends the page, as in browsers."""
    at = 0
    while at < len(text):
        start = text.find("<", at)
        if start < 0:
            start = len(text)
        if start > at:
            yield _unescaped(text[at:start])
        at = start
        if _OPENS_TAG.match(text, at):
            tag = _TAG.match(text, at)
            if not tag:
                return
            slash, name, attributes = tag[1], tag[2].lower(), tag[3]
            at = tag.end()
            yield slash, name, attributes
            if name in _RAW and not slash:
                at = _end_of_raw(text, at, name)
            elif attributes.endswith("/"):
                yield "/", name, ""
        elif text.startswith("<!--", at):
            at = _behind(text, "-->", at + 2)
        elif text.startswith(("<!", "<?", "</"), at):
            at = _behind(text, ">", at)
        elif at < len(text):
            yield "<"
            at += 1


def _attributes(written: str) -> dict[str, str]:
    """The attributes of a tag; of two with the same name, the first."""
    attributes: dict[str, str] = {}
    for name, value in _ATTRIBUTE.findall(written):
        attributes.setdefault(name.lower(), _unescaped(value[1:-1] if value.startswith(('"', "'")) else value))
    return attributes


def _end_of_raw(text: str, at: int, tag: str) -> int:
    """The position of the end tag of an element that holds no other tags."""
    end = re.compile(f"</{tag}(?=[\\s/>])", re.IGNORECASE).search(text, at)
    return end.start() if end else len(text)


def _behind(text: str, mark: str, at: int) -> int:
    end = text.find(mark, at)
    return len(text) if end < 0 else end + len(mark)


def _unescaped(text: str) -> str:
    """A text with its entities replaced; Python refuses numbers of very many digits."""
    return html.unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


def _tidy(text: str) -> str:
    """Paragraphs with one empty line between them."""
    text = _SPACE.sub(" ", text)
    parts = _MANY_BREAKS.sub("\0", text).split("\0")
    return "\n\n".join(_BREAK.sub("\n", part).strip() for part in parts if part.strip())
