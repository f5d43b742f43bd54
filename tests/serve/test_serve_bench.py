"""The load generator asks as often as it says; the benchmark runs. How fast they are is not for a test to say."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.serve.running import bm25, gated, options, running
from tests.warm import run
from triever import UsageError
from triever.serve.bench import ServeBenchOptions
from triever.serve.load import generate


def test_the_load_generator_counts_every_answer() -> None:
    counted = gated()
    with running({"one": counted}, options(most=1)) as server:
        counted.calls.clear()
        load = asyncio.run(generate(server.port, "one", ["water", "dough"], 3, connections=3, seconds=0.2))
        assert load.statuses == {200: len(load.seconds)}
        assert len(counted.calls) == len(load.seconds) > 0
        assert 0 < load.percentile(50) <= load.percentile(99)
        unknown = asyncio.run(generate(server.port, "nobody", ["water"], 3, connections=1, seconds=0.05))
        assert set(unknown.statuses) == {404}
        assert not unknown.seconds


@pytest.mark.parametrize(("connections", "seconds"), [(0, 1.0), (100_000, 1.0), (1, 0.0), (1, 1e6)])
def test_the_load_is_bounded(connections: int, seconds: float) -> None:
    with pytest.raises(ValueError, match="at most"):
        asyncio.run(generate(1, "one", ["x"], 1, connections, seconds))
    with pytest.raises(UsageError):
        ServeBenchOptions(connections=(connections,), seconds=seconds)


@pytest.mark.long
def test_the_benchmark_runs(tmp_path: Path) -> None:
    bm25().save(tmp_path / "m")
    words = ["connections=1,4", "seconds=0.2", "queue=2", "memory_seconds=0.4"]
    sets = [part for word in words for part in ("--set", word)]
    done = run(["bench", "serve", "m", *sets, "--out", "b.json", "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["connections"], row["batching"]) for row in rows[:4]] == [
        *((1, "on"), (1, "off"), (4, "on"), (4, "off"))
    ]
    assert all(row["requests_per_second"] > 0 and row["refused"] == 0 for row in rows[:4])
    assert rows[4]["memory_after_mb"] > 0
    kept = json.loads((tmp_path / "b.json").read_text())
    assert kept["rows"] == rows
    assert kept["hardware"]
