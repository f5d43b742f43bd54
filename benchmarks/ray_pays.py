"""From how many documents on several machines encode faster than one process.

`python benchmarks/ray_pays.py DATA benchmarks/ray_pays.json` needs triever[ray] and the weights `minilm`. Measured:
documents that this model encodes in a second of processor time, with one thread; how long Ray takes to start; and what
it costs to have documents encoded by two workers, with an encoder that computes nearly nothing: a fixed time, and the
processor time of this process for each document, which no further machine makes less. Computed from that: the number of
documents from which on 2, 4 and 8 machines with one worker each are faster, the start of Ray included. All of Ray is on
one machine: what a network adds is not in the numbers.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import triever
from triever import Dense, Document
from triever.models.encoder import encode

MODEL, SLOW = "minilm", 400
QUICK = "scratch:hidden=8,layers=1,heads=1,vocabulary=2000,positions=256"
SENT = 24_000
MACHINES = (2, 4, 8)


def main() -> None:
    name, out = sys.argv[1], Path(sys.argv[2])
    documents = [*islice(triever.load_dataset(name).documents(), SENT)]
    facts: dict[str, Any] = {"data": name, "processors": os.cpu_count(), "machine": platform.machine()}
    facts |= {"threads": os.environ.get("OMP_NUM_THREADS", ""), "load at the start": round(os.getloadavg()[0], 1)}
    slow = encoding(MODEL, documents[:SLOW])
    rate = SLOW / slow.processor
    facts |= {"model": MODEL, "documents": SLOW, "tokens a document": round(slow.tokens / SLOW)}
    facts["documents in a second of one processor"] = round(rate, 1)
    facts["start of Ray, s"] = round(timed(start)[0], 1)
    here, there = encoding(QUICK, documents), sent(documents)
    each = there.processor / SENT  # with Ray, this process only sends and collects
    fixed = there.seconds - here.processor / 2 - there.processor
    facts["sent to two workers"] = {"documents": SENT, "here, s": round(here.seconds, 1)}
    facts["sent to two workers"] |= {"with Ray, s": round(there.seconds, 1)}
    facts |= {"beside encoding, s": round(fixed, 1), "and for each document, ms": round(1000 * each, 2)}
    before = facts["start of Ray, s"] + fixed
    facts["computed: documents from which on it is faster"] = {
        f"{machines} machines, {factor} x as fast": breaks_even(factor * rate, machines, before, each)
        for factor in (1, 10, 100)
        for machines in MACHINES
    }
    out.write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))


def breaks_even(rate: float, machines: int, before: float, each: float) -> int | None:
    """The least n with n / rate > before + n / (rate * machines) + n * each; none where sending takes all the gain."""
    gain = 1 / rate - 1 / (rate * machines) - each
    return round(before / gain) if gain > 0 else None


class Spent(NamedTuple):
    """What encoding took: seconds, seconds that this process has computed, and tokens."""

    seconds: float
    processor: float
    tokens: int


def sent(documents: Sequence[Document]) -> Spent:
    """What it takes to have documents encoded by two workers, which have next to nothing to compute."""
    from triever.integrations.ray import RayWorkers
    from triever.models.elsewhere import elsewhere

    with tempfile.TemporaryDirectory() as place, elsewhere(RayWorkers(Path(place) / "encoding", workers=2)):
        return encoding(QUICK, documents)


def encoding(backbone: str, documents: Sequence[Document]) -> Spent:
    """What it takes to encode documents that are tokens already."""
    dense = Dense(backbone=backbone).fit(triever.Dataset.of("some", documents[:100]))
    encoder = dense.engine.encoder
    tokens = dense.reading.documents(encoder, documents)
    return Spent(*timed(lambda: encode(encoder, tokens)), len(tokens.flat))


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds, and seconds that this process has computed."""
    begun, computed = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begun, time.process_time() - computed


def start() -> None:
    from triever.integrations.ray import started

    started()


if __name__ == "__main__":
    main()
