"""Numbers about a server, for Prometheus. Queries and ids are never among them."""

from __future__ import annotations

import os
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess
from prometheus_client.exposition import CONTENT_TYPE_LATEST

M = TypeVar("M", Counter, Gauge, Histogram)
TOGETHER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable with the folder in which several processes add up their numbers."""
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """All counters of one server; each server has its own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        routed, named = ("method", "route", "status"), ("retriever",)
        self.requests = self._made(Counter, "requests", "Requests by route and status.", routed)
        self.seconds = self._made(Histogram, "request_seconds", "Seconds until an answer.", ("route",), buckets=SECONDS)
        self.batch = self._made(Histogram, "batch_queries", "Queries searched together.", named, buckets=TEXTS)
        self.search = self._made(Histogram, "search_seconds", "Seconds of one search.", named, buckets=SECONDS)
        self.waiting = self._made(Gauge, "waiting_queries", "Queries in the queue.", named, multiprocess_mode="livesum")
        self.documents = self._made(Gauge, "documents", "Documents held.", named, multiprocess_mode="max")
        self.ready = self._made(Gauge, "ready", "1 where searches work.", named, multiprocess_mode="min")
        self.loads = self._made(Counter, "loads", "Times that it was loaded.", (*named, "outcome"))

    def _made(self, kind: type[M], name: str, text: str, labels: tuple[str, ...], **options: Any) -> M:
        return kind(f"triever_{name}", text, labels, registry=self.registry, **options)

    def text(self) -> bytes:
        """All numbers in Prometheus' own format; of several processes, their sums."""
        if TOGETHER not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together)
        return generate_latest(together)
