"""Numbers about a server, for Prometheus. Queries and ids are never among them."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess
from prometheus_client.exposition import CONTENT_TYPE_LATEST

TOGETHER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable with the folder in which several processes add up their numbers."""
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """All counters of one server; each server has its own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter(
            "triever_requests", "Requests by route and status.", ("method", "route", "status"), registry=own
        )
        self.seconds = Histogram(
            "triever_request_seconds", "Seconds until an answer.", ("route",), buckets=SECONDS, registry=own
        )
        self.batch = Histogram(
            "triever_batch_queries", "Queries that were searched together.", ("retriever",), buckets=TEXTS, registry=own
        )
        self.search = Histogram(
            "triever_search_seconds", "Seconds of one search, for all queries that it was for.", ("retriever",),
            buckets=SECONDS, registry=own,
        )  # fmt: skip
        self.waiting = Gauge(
            "triever_waiting_queries", "Queries in the queue.", ("retriever",), registry=own, multiprocess_mode="livesum"
        )
        self.documents = Gauge(
            "triever_documents", "Documents of a retriever.", ("retriever",), registry=own, multiprocess_mode="max"
        )
        self.ready = Gauge(
            "triever_ready", "1 if a retriever can be searched.", ("retriever",), registry=own, multiprocess_mode="min"
        )
        self.loads = Counter(
            "triever_loads", "How often a retriever was loaded, or could not be.", ("retriever", "outcome"), registry=own
        )

    def text(self) -> bytes:
        """All numbers in Prometheus' own format; of several processes, their sums."""
        if TOGETHER not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together)
        return generate_latest(together)
