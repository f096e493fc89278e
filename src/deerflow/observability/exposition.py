"""Render the metrics in Prometheus text format; imported by the first request for them."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from typing_extensions import override

from deerflow.observability import meters
from deerflow.observability.meters import Meters, Metric

CONTENT_TYPE = CONTENT_TYPE_LATEST


def render(numbers: Meters) -> bytes:
    """Return all metrics, including the process metrics of `prometheus_client`, as text."""
    registry = CollectorRegistry()
    registry.register(_Numbers(numbers))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Numbers(Collector):
    def __init__(self, numbers: Meters) -> None:
        self._numbers = numbers

    @override
    def collect(self) -> Iterable[Family]:
        return (_family(metric, self._numbers) for metric in meters.ALL)


def _family(metric: Metric, numbers: Meters) -> Family:
    if metric.buckets:
        return _histogram(metric, numbers)
    cls = GaugeMetricFamily if metric.is_gauge else CounterMetricFamily
    family = cls(metric.name, metric.help, labels=metric.labels)
    for labels, value in list(numbers.values(metric).items()):
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, numbers: Meters) -> HistogramMetricFamily:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, found in list(numbers.histograms(metric).items()):
        family.add_metric(labels, list(_cumulative(metric.buckets, found.counts)), found.total)
    return family


def _cumulative(bounds: Iterable[float], counts: Iterable[int]) -> Iterator[tuple[str, float]]:
    seen = 0
    for bound, count in zip((*map(floatToGoString, bounds), "+Inf"), counts, strict=True):
        seen += count
        yield bound, seen
