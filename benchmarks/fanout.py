"""Fan-out of sub-agents: three tasks, and a hundred at fifty a time, against raw agents under `gather`.

Times are those of the tasks as the client sees them: from the first `task_started` to the last
`task_completed`; the whole run over HTTP, with the lead agent's two calls, is reported as well.
The ideal is the time of the model calls alone.
"""

import statistics
import sys

from benchmarks.support.arena import LIGHT, open_arena
from benchmarks.support.fan import RawFan, gateway_fan
from benchmarks.support.report import promise

FEW_AT_MOST_OF_RAW = 1.1
MANY_AT_MOST_OF_RAW = 0.6
ROUNDS = 5
MODEL_SECONDS = 0.2
FEW = 3
MANY = 100
RUNNING = 50
SETTINGS = {**LIGHT, "subagents": {"max_running": RUNNING, "concurrency_range": [1, MANY]}}


def main() -> int:
    few_ours, few_raw, few_whole, many_ours, many_raw, many_whole = ([] for _ in range(6))
    with open_arena(**SETTINGS) as arena, RawFan.open(arena.model_url) as raw:
        for warm in (FEW, MANY, MANY):
            gateway_fan(arena, warm, MODEL_SECONDS)
            raw.gather(warm, MODEL_SECONDS, RUNNING)
        for _ in range(ROUNDS):
            few_raw.append(raw.gather(FEW, MODEL_SECONDS, RUNNING))
            fan = gateway_fan(arena, FEW, MODEL_SECONDS)
            few_ours.append(fan.tasks)
            few_whole.append(fan.whole)
            many_raw.append(raw.gather(MANY, MODEL_SECONDS, RUNNING))
            fan = gateway_fan(arena, MANY, MODEL_SECONDS)
            many_ours.append(fan.tasks)
            many_whole.append(fan.whole)
    median = statistics.median
    missed = promise(
        "fanout_few",
        ratio=median(mine / base for mine, base in zip(few_ours, few_raw, strict=True)),
        at_most=FEW_AT_MOST_OF_RAW,
        tasks_ms=round(median(few_ours) * 1000, 1),
        whole_run_ms=round(median(few_whole) * 1000, 1),
        raw_gather_ms=round(median(few_raw) * 1000, 1),
        rounds=ROUNDS,
    )
    ideal = MODEL_SECONDS * MANY / RUNNING
    return missed | promise(
        "fanout_many",
        ratio=median(mine / base for mine, base in zip(many_ours, many_raw, strict=True)),
        at_most=MANY_AT_MOST_OF_RAW,
        tasks_ms=round(median(many_ours) * 1000, 1),
        whole_run_ms=round(median(many_whole) * 1000, 1),
        ideal_ms=round(ideal * 1000, 1),
        raw_gather_ms=round(median(many_raw) * 1000, 1),
        ratio_to_ideal=round(median(many_ours) / ideal, 3),
        raw_to_ideal=round(median(many_raw) / ideal, 3),
        rounds=ROUNDS,
    )


if __name__ == "__main__":
    sys.exit(main())
