"""What was added to a built part and deleted from it since, until all is built anew. Knows nothing about what is kept.

Slots number what is stored: first the main part, then an annex of what was added. Rows number what is alive, in the
order of the slots, just as if all were built anew from what is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

ANNEX = 1024
"""So many added items, or a sixteenth of the main part, are kept in the annex before both parts are merged."""


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
        """Whether all is in the main part, and alive."""
        return not self.annex and self.alive is None

    @property
    def due(self) -> bool:
        """Whether all should be built anew: the annex has grown, or at most half of what is stored is alive."""
        return self.annex > max(ANNEX, self.main // 16) or not self.main or 2 * len(self) <= self.slots

    @property
    def mask(self) -> np.ndarray:
        """(slots,) bool, which are alive."""
        return np.ones(self.slots, bool) if self.alive is None else self.alive

    @cached_property
    def masks(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Which slots of the main part and of the annex are alive; None where all of a part's are."""
        if self.alive is None:
            return None, None
        main, annex = (None if mask.all() else mask for mask in np.split(self.alive, [self.main]))
        return main, annex

    @cached_property
    def slot_of(self) -> np.ndarray:
        """(rows,) where each row is stored."""
        return np.flatnonzero(self.mask)

    def rows(self, slots: np.ndarray) -> np.ndarray:
        """The rows of slots that are alive, in the same shape; -1 stays -1."""
        return slots if self.alive is None else np.searchsorted(self.slot_of, slots) - (slots < 0)

    def living(self, stored: np.ndarray) -> np.ndarray:
        """(rows, …) what is alive of an array with one item for each slot (slots, …)."""
        return stored if self.alive is None else stored[self.alive]

    def added(self, count: int) -> Changes:
        """With so many more items in the annex."""
        alive = None if self.alive is None else np.concatenate([self.alive, np.ones(count, bool)])
        return Changes(self.main, self.annex + count, alive)

    def kept(self, keep: np.ndarray) -> Changes:
        """With only some of the rows alive (rows,) bool."""
        alive = self.mask.copy()
        alive[alive] = keep
        return replace(self, alive=alive)

    def arrays(self) -> list[np.ndarray]:
        """What takes memory."""
        return [] if self.alive is None else [self.alive]
