"""The counters of a server, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

MEDIA_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """Counts of requests and batches, without texts and addresses."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "minitransformer_requests", "Requests answered.", ["path", "status"], registry=registry
        )
        self._seconds = Histogram(
            "minitransformer_request_seconds", "From a request's head to its answer.", ["path"], registry=registry
        )
        self._batch = Histogram(
            "minitransformer_batch_sentences",
            "Sentences translated together.",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=registry,
        )
        self._cut = Counter(
            "minitransformer_cut_translations", "Translations cut off at the greatest length.", registry=registry
        )
        self._waiting = Gauge("minitransformer_waiting", "Sentences that wait for translation.", registry=registry)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered with ``status``."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_batch(self, n_sentences: int) -> None:
        self._batch.observe(n_sentences)

    def count_cut(self, n_sentences: int) -> None:
        self._cut.inc(n_sentences)

    def watch_queue(self, length: Callable[[], int]) -> None:
        """Call ``length`` for the number of waiting sentences at every exposition."""
        self._waiting.set_function(length)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
