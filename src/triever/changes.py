"""Items that were added to an index or deleted from it since it was built. Knows nothing about the items.

Slots number the stored items: first the main part, then an annex of added items. Rows number the items that are alive,
in the order of the slots, as if the index were built anew from them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

ANNEX = 1024
"""The annex may hold this many items, or a sixteenth of the main part, before both parts are merged."""


@dataclass(frozen=True, eq=False)
class Changes:
    """Sizes of both parts and a mask: `Changes(main=5).added(2).kept(mask).due`."""

    main: int
    annex: int = 0
    alive: np.ndarray | None = None  # (slots,) bool, or None while nothing is deleted

    def __len__(self) -> int:
        """How many rows there are."""
        return self.slots if self.alive is None else int(self.alive.sum())

    @property
    def slots(self) -> int:
        """How many items are stored, dead ones included."""
        return self.main + self.annex

    @property
    def none(self) -> bool:
        """Whether nothing was added or deleted."""
        return not self.annex and self.alive is None

    @property
    def due(self) -> bool:
        """Whether the index should be built anew: the annex is full, or at most half of the stored items are alive."""
        return self.annex > max(ANNEX, self.main // 16) or not self.main or 2 * len(self) <= self.slots

    @property
    def mask(self) -> np.ndarray:
        """(slots,) bool: which slots are alive."""
        return np.ones(self.slots, bool) if self.alive is None else self.alive

    @cached_property
    def masks(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Masks of the main part and of the annex; None for a part whose slots are all alive."""
        if self.alive is None:
            return None, None
        main, annex = (None if mask.all() else mask for mask in np.split(self.alive, [self.main]))
        return main, annex

    @cached_property
    def slot_of(self) -> np.ndarray:
        """(rows,) the slot of each row."""
        return np.flatnonzero(self.mask)

    def rows(self, slots: np.ndarray) -> np.ndarray:
        """The rows of slots that are alive, in the same shape; -1 stays -1."""
        return slots if self.alive is None else np.searchsorted(self.slot_of, slots) - (slots < 0)

    def living(self, stored: np.ndarray) -> np.ndarray:
        """(rows, …) the items that are alive, from an array (slots, …)."""
        return stored if self.alive is None else stored[self.alive]

    def added(self, count: int) -> Changes:
        """The changes after `count` more items were added."""
        alive = None if self.alive is None else np.concatenate([self.alive, np.ones(count, bool)])
        return Changes(self.main, self.annex + count, alive)

    def kept(self, keep: np.ndarray) -> Changes:
        """The changes after all rows but those in `keep`, (rows,) bool, were deleted."""
        alive = self.mask.copy()
        alive[alive] = keep
        return replace(self, alive=alive)

    def arrays(self) -> list[np.ndarray]:
        """The arrays that take memory."""
        return [] if self.alive is None else [self.alive]
