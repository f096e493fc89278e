"""Numbers: what is counted, how many series there may be, and how they look to Prometheus."""

import asyncio
import logging
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deerflow.observability import meters
from deerflow.observability.exposition import render
from deerflow.observability.loop_delay import EVERY_SECONDS, WARNED_SECONDS, measuring_loop_delay
from deerflow.observability.meters import LOOP_DELAY, MOST_SERIES, Meters


def samples(numbers: Meters) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(render(numbers).decode())
        for sample in family.samples
    }


def test_every_metric_has_words_and_a_name_of_ours() -> None:
    page = render(Meters()).decode()

    for metric in meters.ALL:
        assert f"# HELP {metric.name}" in page
        assert metric.help.endswith(".")
    assert all("\n" not in metric.help for metric in meters.ALL)


def test_values_fall_into_their_buckets_and_add_up() -> None:
    numbers = Meters()
    for seconds in (0.01, 0.05, 0.3, 1000):
        numbers.observe(meters.TOOL_SECONDS, seconds, "bash")

    found = samples(numbers)

    name = "deerflow_tool_call_seconds_bucket"
    bounds = ("0.05", "0.1", "0.5", "300.0", "+Inf")
    assert [found[name, bound, "bash"] for bound in bounds] == [2, 2, 3, 3, 4]
    assert found["deerflow_tool_call_seconds_count", "bash"] == 4
    assert found["deerflow_tool_call_seconds_sum", "bash"] == pytest.approx(1000.36)


def test_gauges_go_down_again_and_are_there_before_anything_happens() -> None:
    numbers = Meters()
    before = samples(numbers)["deerflow_runs_in_flight",]
    numbers.add(meters.RUNS_IN_FLIGHT)
    during = samples(numbers)["deerflow_runs_in_flight",]
    numbers.add(meters.RUNS_IN_FLIGHT, amount=-1)

    assert (before, during, samples(numbers)["deerflow_runs_in_flight",]) == (0, 1, 0)


def test_a_flood_of_names_ends_as_other() -> None:
    numbers = Meters()

    for number in range(MOST_SERIES * 3):
        numbers.add(meters.TOOL_CALLS, f"tool-{number}", "success")
        numbers.observe(meters.TOOL_SECONDS, 0.1, f"tool-{number}")
    numbers.add(meters.TOOL_CALLS, "tool-0", "success")

    counts = numbers.values(meters.TOOL_CALLS)
    assert len(counts) == MOST_SERIES + 1
    assert counts["other", "success"] == MOST_SERIES * 2
    assert counts["tool-0", "success"] == 2
    assert len(numbers.histograms(meters.TOOL_SECONDS)) == MOST_SERIES + 1


def test_strange_names_cannot_break_the_page() -> None:
    numbers = Meters()
    numbers.add(meters.TOOL_CALLS, 'a"\n} 1\nfake_metric 7', "success")

    found = samples(numbers)

    assert ("fake_metric",) not in found
    assert found["deerflow_tool_calls_total", "success", 'a"\n} 1\nfake_metric 7'] == 1


async def test_a_held_event_loop_is_measured_and_said(caplog: pytest.LogCaptureFixture) -> None:
    numbers = Meters()
    caplog.set_level(logging.WARNING, "deerflow.observability.loop_delay")  # other tests make it quiet

    with measuring_loop_delay(numbers):
        await asyncio.sleep(EVERY_SECONDS / 10)
        time.sleep(WARNED_SECONDS + EVERY_SECONDS)  # noqa: ASYNC251 - this is the fault that is measured
        await asyncio.sleep(EVERY_SECONDS)

    (seen,) = numbers.histograms(LOOP_DELAY).values()
    assert seen.total >= WARNED_SECONDS
    assert "event loop was" in caplog.text
