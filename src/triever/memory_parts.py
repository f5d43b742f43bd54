"""How much memory things take: counted from what is there, and computed from numbers alone.

What is there are arrays, tensors and Python's own lists and dicts. A `Product` is a step of arithmetic, so many things
of so many bytes each, made from settings and from how many there are of something, never from the size of an array: so
what is computed and what is counted can disagree, and tests see to it that they do not. Knows nothing about retrieval
but what the parts of a retriever are called.
"""

from __future__ import annotations

import mmap
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor, nn

T = TypeVar("T")
Thing: TypeAlias = "np.ndarray | Tensor | int"
"""Something that takes memory; a number is bytes that were counted elsewhere."""
Stored: TypeAlias = dict[str, list[Thing]]
"""What there is of each part."""


@dataclass(frozen=True)
class About:
    """What a part of a retriever is, how much of it one search reads, and where an opened model has it."""

    text: str
    read: Literal["all", "some", "none"]
    mapped: bool = False  # pages of its file, of which the system holds as many as it has room for
    is_index: bool = False


PARTS = {
    "weights": About("the models that a search runs", "all"),
    "docid rows": About("the rows of the symbols of docids: what is written with them, and read", "all"),
    "postings": About("what each word weighs in each document that has it", "some", mapped=True, is_index=True),
    "vectors": About("a vector for each document", "all", mapped=True, is_index=True),
    "cluster vectors": About("vectors, those of a cluster side by side", "some", mapped=True, is_index=True),
    "graph": About("links between near vectors, and a copy of the vectors", "some", is_index=True),
    "codes": About("vectors as short codes in lists", "some", is_index=True),
    "token vectors": About("a vector for each token of each document", "some", mapped=True, is_index=True),
    "tokens": About("the tokens of documents, for what reads them again", "some", mapped=True, is_index=True),
    "trie": About("which docids exist, and whose they are", "some", mapped=True, is_index=True),
    "changes": About("what was added and which were deleted since it was built", "all", is_index=True),
    "walk": About("the trie as a search walks it", "some"),
    "docids": About("docids end to end, to name those of hits", "some"),
    "numbers": About("under which number each document is in the trie", "some", mapped=True),
    "spellings": About("the ids of each token of a title", "some"),
    "places": About("how many tokens each document has, and where they are", "some"),
    "vocabulary": About("words and their numbers", "some"),
    "stored vectors": About("the vectors that the index was built from", "some", mapped=True),
    "placer": About("encoders that only new documents need", "none"),
    "placing": About("what gives docids to new documents", "none"),
    "terms": About("the words of each document, from which weights are made anew", "none", mapped=True),
    "questions": About("questions whose vectors or hits are known, with these", "some"),
    "spans": About("which document each passage is of, and where it stands in the text", "some"),
    "rows by id": About("the row of each id, by which documents are looked up", "some"),
    "copied texts": About("the texts of passages, which are cut out anew when a model is opened", "none"),
    "texts": About("the documents themselves, with their ids", "none", mapped=True),
}
"""Every part that a retriever may have, by its name."""


def about(part: str) -> About:
    """What a part is; the part of a part of a retriever, such as `first: postings`, is what its last word says."""
    return PARTS[part.rpartition(": ")[2]]


def inside(name: str, parts: Mapping[str, T]) -> dict[str, T]:
    """The parts of one retriever inside another, with its name in front of theirs."""
    return {f"{name}: {part}": value for part, value in parts.items()}


# --- counted --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """A number of bytes, and how many of them are mapped from a file, or lie on a GPU."""

    bytes: int
    mapped: int = 0
    gpu: int = 0

    @property
    def memory(self) -> int:
        """Bytes in main memory, which the system cannot drop as it can pages of files."""
        return self.bytes - self.mapped - self.gpu


def counted(things: Iterable[Thing]) -> Size:
    """The size of things together; a thing that occurs twice is counted once."""
    total, mapped, gpu, seen = 0, 0, 0, set()
    for thing in things:
        if isinstance(thing, int):
            total += thing
            continue
        address = thing.ctypes.data if isinstance(thing, np.ndarray) else thing.data_ptr()
        if not thing.nbytes or (address, thing.nbytes) in seen:
            continue
        seen.add((address, thing.nbytes))
        total += thing.nbytes
        mapped += thing.nbytes if isinstance(thing, np.ndarray) and _is_mapped(thing) else 0
        gpu += 0 if isinstance(thing, np.ndarray) or thing.device.type == "cpu" else thing.nbytes
    return Size(total, mapped, gpu)


def _is_mapped(array: object) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)


def python_bytes(*values: object) -> int:
    """The bytes of lists, tuples and dicts, and of the texts and numbers in them; each object is counted once.

    Small numbers exist in every Python process and are not counted.

    >>> python_bytes(["a", "a"]) == sys.getsizeof(["a", "a"]) + sys.getsizeof("a")
    True
    """
    total, seen = 0, set()
    left: list[object] = [*values]
    while left:
        value = left.pop()
        if id(value) in seen or (isinstance(value, int) and -5 <= value < OWN_NUMBERS):
            continue
        seen.add(id(value))
        total += _object_bytes(value)
        if isinstance(value, Mapping):
            left += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            left += value
    return total


def _object_bytes(value: object) -> int:
    """The bytes of an object without those that it refers to, and of a text without a cached UTF-8 copy."""
    if isinstance(value, str) and not value.isascii():  # ASCII has no copy: it is its own UTF-8
        longer, still_longer = sys.getsizeof(value + "a"), sys.getsizeof(value + "aa")
        return longer - (still_longer - longer)
    return sys.getsizeof(value)


def weights_in(*modules: nn.Module | None) -> list[Tensor]:
    """The parameters and buffers of all models that are not None."""
    return [tensor for module in modules if module is not None for tensor in (*module.parameters(), *module.buffers())]


# --- computed -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Product:
    """A number of things of the same size: `Product(10**7, "documents", 4 * 384, "384 numbers of 4")`."""

    count: int
    noun: str
    size: int
    of: str = ""

    @property
    def bytes(self) -> int:
        return self.count * self.size

    def __str__(self) -> str:
        bytes_ = "1 byte" if self.size == 1 else f"{self.size:,} bytes"
        return f"{self.count:,} {self.noun} × {bytes_}" + (f" ({self.of})" if self.of else "")


Products: TypeAlias = list[Product]


def computed(products: Iterable[Product]) -> int:
    """The bytes of all products together."""
    return sum(product.bytes for product in products)


def scaled(count: int, now: int, then: int) -> int:
    """A count for `now` documents, scaled to `then` documents.

    >>> scaled(25, 10, 10), scaled(25, 10, 1000)
    (25, 2500)
    """
    return count if now in (0, then) else round(count * then / now)


def width_of(largest: int) -> int:
    """The bytes of a whole number up to `largest`: four if that is enough, or else eight."""
    return 4 if largest < 2**31 else 8


def weight_products(tensors: Iterable[Tensor]) -> Products:
    """The numbers in the weights of models, by their types."""
    counts: Counter[tuple[str, int]] = Counter()
    for tensor in tensors:
        noun = "parameters" if tensor.is_floating_point() else "other numbers"
        counts[noun, tensor.element_size()] += tensor.numel()
    return [Product(count, noun, size) for (noun, size), count in counts.items()]


TEXT, NUMBER, TUPLE, LIST, PLACE, DICT = 49, 28, 40, 56, 8, 96
"""The bytes of a Python text, a number, a tuple, a list, an entry of one, and a dict, without what is in them."""
OWN_NUMBERS = 257
"""Python keeps the numbers from 0 to below this one itself, so they take no memory."""
TEXT_ENTRY, ENTRY = 16, 24
"""The bytes of an entry of a dict: if all keys are texts, and otherwise."""


def dict_size(entries: int, entry: int = TEXT_ENTRY) -> int:
    """The bytes of a dict without its keys and values: its slots are a power of two, and a third of them is free."""
    power = 3
    while (2 << power) // 3 < entries:
        power += 1
    slot = 1 if power < 8 else 2 if power < 16 else 4 if power < 32 else 8
    return DICT + (slot << power) + entry * ((2 << power) // 3)


def text_products(count: int, noun: str, letters: int) -> Products:
    """The bytes of a list of `count` Python texts with `letters` letters in all."""
    return [
        Product(count, noun, TEXT + PLACE, "texts of Python"),
        Product(letters, "letters", 1),
        Product(1, "list of them", LIST),
    ]


def number_products(count: int) -> Products:
    """The bytes of a dict from `count` texts to their numbers, without the texts."""
    return [
        Product(max(0, count - OWN_NUMBERS), "numbers", NUMBER, "of Python"),
        Product(1, "table of them", dict_size(count)),
    ]


# --- growth ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """Bytes that are fixed, and bytes for each document."""

    fixed: float
    each: float

    def at(self, documents: int) -> float:
        """The bytes for this number of documents."""
        return self.fixed + self.each * documents


def fitted(sizes: Mapping[int, int]) -> Line:
    """The least-squares line through the bytes of two or more numbers of documents.

    >>> fitted({10: 205, 20: 305})
    Line(fixed=105.0, each=10.0)
    """
    documents, counted_bytes = np.array([*sizes], float), np.array([*sizes.values()], float)
    middle, mean = documents.mean(), counted_bytes.mean()
    each = float(((documents - middle) * (counted_bytes - mean)).sum() / ((documents - middle) ** 2).sum())
    return Line(float(mean - each * middle), each)


UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def readable(size: float) -> str:
    """Bytes for a person, in thousands as disks and GPUs are sold.

    >>> readable(999), readable(15_360_000_000), readable(2e12)
    ('999 bytes', '15.4 GB', '2.00 TB')
    """
    power = 0
    while round(size) >= 1000 and power < len(UNITS) - 1:
        size, power = size / 1000, power + 1
    digits = 0 if not power or size >= 100 else 1 if size >= 10 else 2
    return f"{size:,.{digits}f} {UNITS[power]}"


def index_size(memory: Mapping[str, int]) -> int:
    """The bytes of the parts that belong to the index."""
    return sum(size for part, size in memory.items() if about(part).is_index)


def part_sizes(stored: Mapping[str, Sequence[Thing]]) -> dict[str, Size]:
    """The size of each part that is not empty."""
    sizes = {part: counted(things) for part, things in stored.items()}
    return {part: size for part, size in sizes.items() if size.bytes}
