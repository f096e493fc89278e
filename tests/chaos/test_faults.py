"""A short trial on each database; `make chaos` holds the long ones."""

from pathlib import Path

import pytest
from chaos.cluster import sqlite_cluster
from chaos.report import details, table
from chaos.trial import ended_at_last, hold_trial
from support.model_server import ScriptedModel


@pytest.mark.timeout(240)
async def test_nothing_is_lost_when_the_server_is_killed_again_and_again(
    tmp_path: Path, model: ScriptedModel
) -> None:
    with ended_at_last(sqlite_cluster(tmp_path, model.base_url, "isolated")) as cluster:
        trial = await hold_trial(cluster, seed=1, faults=6, clients=4)

    print(f"{details(trial)}\n{table([trial])}")
    assert list(trial.verdict.violations) == []
    assert len(trial.history.runs) >= 4
