"""Web pages: their main text, without menus, scripts and styles, their title, and what they say about themselves.

Python's own html.parser takes the square of the length of some broken pages, and more: 30 kB of "<a " take half a
minute. Pages are therefore split into tags here, in one pass that never goes back.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from triever.data.formats.content import Content
from triever.data.formats.encodings import decode

if TYPE_CHECKING:
    from triever.validation import Json

Tag: TypeAlias = tuple[str, Mapping[str, str]]
"""The name of a tag, with a slash before that of an end tag, and its attributes."""

_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?\s*([\w-]+)""", re.IGNORECASE)
_HEAD = 2048  # bytes in which the encoding is declared
_NAME = re.compile(r"</?([a-zA-Z][^\s/>]{0,60})")
_ATTRIBUTE = re.compile(r"""[\s/]*(?:([^\s/>=][^\s/>=]*)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>"'][^\s>]*))?|["'=]|(>))""")
_LONG_NUMBER = re.compile(r"&#(?:[0-9]{9,}|[xX][0-9a-fA-F]{9,});?")
_SPACE = re.compile(r"[^\S\n]+")
_MANY_BREAKS = re.compile(r" *\n(?: *\n)+ *")
_BREAK = re.compile(r" *\n *")

_RAW = frozenset(("script", "style", "textarea", "xmp", "iframe", "noembed", "noframes"))
_UNSEEN = frozenset((*_RAW, "template", "noscript", "svg", "math", "object", "canvas", "select", "datalist", "title"))
_BESIDE = frozenset(("nav", "aside", "footer", "menu", "dialog", "button"))
_BESIDE_ROLES = frozenset(("navigation", "banner", "contentinfo", "complementary", "search", "menu", "dialog"))
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
_TEXTS = ("main", "article", "body", "all")  # parts of a page; the later ones hold what the earlier ones hold
_END = "\x1f"  # of a title; no text has this sign, as HTML does not allow it
_FACTS = ("author", "date", "keywords", "description")


def html_content(raw: bytes) -> Content:
    """The content of a page; a Flaw if its encoding is not certain."""
    declared = _CHARSET.search(raw[:_HEAD])
    page = _Page()
    for token in _tokens(decode(raw, declared[1].decode("ascii", "replace") if declared else "")):
        page.take_text(token) if isinstance(token, str) else page.take_tag(*token)
    return page.content()


class _Element:
    """An element that is known by its role, and how deep in it the page is: its name alone would not tell its end."""

    def __init__(self) -> None:
        self.name, self.depth = "", 0

    def follow(self, name: str, leaves: bool, begins: bool) -> None:
        """Take in a tag; if it begins such an element, its end tag will end it."""
        if self.depth and name == self.name:
            self.depth += -1 if leaves else 1
        elif begins and not self.depth and not leaves:
            self.name, self.depth = name, 1


class _Page:
    """The text of a page so far, by the parts that it may belong to."""

    def __init__(self) -> None:
        self._open = dict.fromkeys(_KNOWN, 0)  # pages forget to close elements, so each name is counted by itself
        self._beside, self._main = _Element(), _Element()
        self._parts: dict[str, list[str]] = {part: [] for part in (*_TEXTS, "title", "h1")}
        self._facts: dict[str, Json] = {}

    def take_tag(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Enter or leave an element."""
        name, leaves = tag.removeprefix("/"), tag.startswith("/")
        if name == "meta":
            self._take_fact(attributes)
        if name not in _VOID:
            role = attributes.get("role", "")
            self._beside.follow(name, leaves, role in _BESIDE_ROLES or "hidden" in attributes)
            self._main.follow(name, leaves, role == "main")
        if name in self._open:
            self._open[name] = max(0, self._open[name] + (-1 if leaves else 1))
        if name in _BREAKS:
            for part in _TEXTS:
                self._parts[part].append(_BREAKS[name])
        if leaves and name in ("title", "h1"):
            self._parts[name].append(_END)

    def take_text(self, text: str) -> None:
        """Add text to every part that it belongs to."""
        if self._is_in(_UNSEEN):
            if self._open["title"] and not self._open["svg"]:
                self._parts["title"].append(text)
            return
        text = text if self._open["pre"] else text.replace("\n", " ")
        self._parts["all"].append(text)
        if self._open["h1"]:
            self._parts["h1"].append(text)
        is_main = bool(self._main.depth or self._open["main"])
        is_article = self._open["article"] > 0
        if self._beside.depth or self._is_in(_BESIDE) or (self._open["header"] and not (is_main or is_article)):
            return
        self._parts["body"].append(text)
        if is_main:
            self._parts["main"].append(text)
        if is_article:
            self._parts["article"].append(text)

    def content(self) -> Content:
        """The main text of the page, its title, and its facts."""
        texts = {part: "".join(self._parts[part]) for part in _TEXTS}
        sizes = {part: sum(map(len, text.split())) for part, text in texts.items()}
        is_article = sizes["article"] and 2 * sizes["article"] >= sizes["body"]  # and not one of many small ones
        part = "main" if sizes["main"] else "article" if is_article else "body" if sizes["body"] else "all"
        return Content(_tidy(texts[part]), self._first("title") or self._first("h1"), self._facts)

    def _is_in(self, names: Iterable[str]) -> bool:
        return any(self._open[name] for name in names)

    def _first(self, part: str) -> str:
        """The text of the first element of this name that has one."""
        texts = "".join(self._parts[part]).split(_END)
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
        if name := _NAME.match(text, at):
            at, attributes = _attributes(text, name.end())
            tag = name[1].lower()
            if text[start + 1] == "/":
                yield f"/{tag}", {}
                continue
            yield tag, attributes
            if tag in _RAW:
                at = _end_of_raw(text, at, tag)
            elif text.startswith("/>", at - 2):
                yield f"/{tag}", {}
        elif text.startswith("<!--", at):
            at = _behind(text, "-->", at + 2)
        elif text.startswith(("<!", "<?", "</"), at):
            at = _behind(text, ">", at)
        elif at < len(text):
            yield "<"
            at += 1


def _attributes(text: str, at: int) -> tuple[int, dict[str, str]]:
    """The position behind a tag, and its attributes."""
    attributes: dict[str, str] = {}
    while (match := _ATTRIBUTE.match(text, at)) and match.end() > at:
        at = match.end()
        if match[3]:
            return at, attributes
        if match[1]:
            value = match[2] or ""
            value = value[1:-1] if value.startswith(('"', "'")) else value
            attributes.setdefault(match[1].lower(), _unescaped(value))
    return len(text), attributes


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
