"""Which examples each batch has: pass after pass over all examples, each pass in a new random order.

The draws depend only on the seed, the round and the step, so that a resumed training goes on as it would have.
"""

from __future__ import annotations

import numpy as np


def epoch_batches(count: int, size: int, steps: int, round_: int, *seed: int, anew: bool = False) -> np.ndarray:
    """(steps, size) the numbers of the examples in each batch of a round, out of `count` examples.

    All rounds are one series: a round may begin in the middle of a pass, and a batch may end one pass and begin the
    next. With `anew`, each round begins with a new pass, and a pass leaves out the examples that do not fill a batch.
    """
    if anew:
        chance, whole = np.random.default_rng((*seed, round_)), count // size
        orders = [chance.permutation(count)[: whole * size] for _ in range(-(-steps // whole))]
        return np.concatenate(orders).reshape(-1, size)[:steps]
    begin, end = round_ * steps * size, (round_ + 1) * steps * size
    numbers = range(begin // count, -(-end // count))
    orders = [np.random.default_rng((*seed, number)).permutation(count) for number in numbers]
    order = np.concatenate([np.empty(0, np.int64), *orders])
    return order[begin - numbers.start * count :][: end - begin].reshape(steps, size)


def chance_of(step: int, steps: int, *seed: int) -> np.random.Generator:
    """The random generator of one batch of `steps`; an IndexError if there is no such step."""
    if not 0 <= step < steps:
        raise IndexError(step)
    return np.random.default_rng((*seed, step))
