"""Thrift's compact protocol, as far as Parquet's footers and page headers need it.

No memory is allocated for declared but missing data, which is a ValueError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

Struct: TypeAlias = dict[tuple[int, int], Any]
"""Values by the number and the type of their field; a field of another type than expected is another field."""

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_DEEPEST = 32  # Parquet's own structures go down to eight
_BITS = {I16: 16, I32: 32, I64: 64}
_FIXED = {BYTE: 1, DOUBLE: 8}


class Truncated(ValueError):
    """The data ends inside a value."""


class Compact:
    """Reads values from bytes, one after the other; at most `max_structs` structs in all."""

    def __init__(self, data: bytes, max_structs: int, at: int = 0) -> None:
        self.at = at
        self._data = data
        self._left = max_structs

    def struct(self) -> Struct:
        """The next struct with its numbers and structs; lists, maps and texts are skipped.

        Of two values of one field the later counts, and two structs of one field are merged, as in Arrow.
        """
        values: Struct = {}
        for field in self.fields():
            value = self._value(field[1])
            values[field] = {**values.get(field, {}), **value} if field[1] == STRUCT else value
        return values

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of the struct that begins here; the caller takes or skips each value."""
        self._left -= 1
        if self._left < 0:
            raise OverflowError("too many structs")
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else _signed(self.varint(), 16)
            yield number, head & 15

    def skip(self, kind: int, depth: int = 0) -> None:
        """Skip the next value, which has this type."""
        if depth > _DEEPEST:
            raise OverflowError("nested too deeply")
        if kind in _BITS:
            self.varint()
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind in (LIST, SET):
            count, inner = self.list_header()
            for _ in range(count):
                self.skip(BYTE if inner in (TRUE, FALSE) else inner, depth + 1)
        elif kind == MAP:
            self._skip_map(depth)
        elif kind not in (TRUE, FALSE):
            self.forward(self._length(kind))

    def list_header(self) -> tuple[int, int]:
        """The number and the type of the elements of the list that begins here."""
        head = self._byte()
        count = self.varint() if head >> 4 == 15 else head >> 4
        if count > len(self._data) - self.at:  # each takes a byte at least
            raise Truncated
        return count, head & 15

    def _value(self, kind: int) -> Any:
        if kind in _BITS:
            return _signed(self.varint(), _BITS[kind])
        if kind == STRUCT:
            return self.struct()
        return self.skip(kind)

    def _skip_map(self, depth: int) -> None:
        count = self.varint()
        kinds = self._byte() if count else 0
        for _ in range(count):
            self.skip(kinds >> 4, depth + 1)
            self.skip(kinds & 15, depth + 1)
            if not kinds:
                raise ValueError("a map without types")

    def _length(self, kind: int) -> int:
        if kind == BINARY:
            return self.varint()
        if kind not in _FIXED:
            raise ValueError(f"no type has the number {kind}")
        return _FIXED[kind]

    def _byte(self) -> int:
        try:
            value = self._data[self.at]
        except IndexError:
            raise Truncated from None
        self.at += 1
        return value

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        self.forward(count)
        return self._data[self.at - count : self.at]

    def forward(self, count: int) -> None:
        """Skip `count` bytes."""
        if count > len(self._data) - self.at:
            raise Truncated
        self.at += count

    def varint(self) -> int:
        """The next number, unsigned, of seven bits in each byte."""
        value = self._byte()
        if value < 128:  # most of them
            return value
        value &= 127
        for shift in range(7, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number has more than ten bytes")


def _signed(value: int, bits: int) -> int:
    """The number of a zigzag code: 0, -1, 1, -2, …; higher bits are dropped, as in Arrow."""
    value &= (1 << bits) - 1
    return (value >> 1) ^ -(value & 1)
