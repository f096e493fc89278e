"""A short trial on each database; `make chaos` holds the long ones."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from chaos.cluster import Cluster, sqlite_cluster
from chaos.many import postgres_cluster
from chaos.report import details, table
from chaos.trial import ended_at_last, hold_trial
from support.model_server import ScriptedModel

SEED = 18
"""Early in its plans are two kills, stops (of a worker for longer than its lease) and an orderly end."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("make_cluster", "faults"), [(sqlite_cluster, 5), (postgres_cluster, 6)])
async def test_nothing_is_lost_when_processes_are_killed_and_stopped_under_load(
    tmp_path: Path, model: ScriptedModel, make_cluster: Callable[[Path, str, str], Cluster], faults: int
) -> None:
    # A path that no trial had before: where root's home is closed to sandboxes, their files are kept by it.
    home = tmp_path / uuid.uuid4().hex
    with ended_at_last(make_cluster(home, model.base_url, "isolated")) as cluster:
        trial = await hold_trial(cluster, seed=SEED, faults=faults, clients=4)

    print(f"{details(trial)}\n{table([trial])}")
    assert list(trial.verdict.violations) == []
    assert len(trial.history.runs) >= 4
