"""`python -m chaos`: the long trials, on each database over several seeds; exit 1 on a violation."""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from chaos.cluster import Cluster, sqlite_cluster
from chaos.many import postgres_cluster
from chaos.report import details, summary, table
from chaos.trial import Trial, ended_at_last, hold_trial
from support.model_server import ScriptedModel

CLUSTERS = {"sqlite": sqlite_cluster, "postgres": postgres_cluster}


def main() -> int:
    """Hold all trials and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=[*CLUSTERS, "all"], default="all")
    parser.add_argument("--seeds", type=int, default=4, help="how many seeds, on each database")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=100, help="how many faults in all, on each database")
    parser.add_argument("--sandbox", default="isolated", help="the tier in which commands run")
    parser.add_argument("--keep", type=Path, help="folder for the homes and logs of seeds with violations")
    chosen = parser.parse_args()
    is_fine = True
    for database in CLUSTERS if chosen.database == "all" else [chosen.database]:
        trials: list[Trial] = []
        for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds):
            faults = -(-chosen.faults // chosen.seeds)
            trials.append(_hold(database, seed, faults, chosen.sandbox, chosen.keep))
            print(details(trials[-1]), flush=True)
        print(f"\n{database}\n{table(trials)}\n{summary(trials)}\n", flush=True)
        is_fine = is_fine and not any(trial.verdict.violations for trial in trials)
    return 0 if is_fine else 1


def _hold(database: str, seed: int, faults: int, sandbox: str, keep: Path | None) -> Trial:
    async def hold(cluster: Cluster) -> Trial:
        with ended_at_last(cluster):
            return await hold_trial(cluster, seed=seed, faults=faults)

    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, ScriptedModel() as model:
        cluster = CLUSTERS[database](Path(folder), model.base_url, sandbox)
        trial = asyncio.run(hold(cluster))
        if keep is not None and trial.verdict.violations:
            shutil.copytree(folder, keep / f"{database}-{seed}", symlinks=True, dirs_exist_ok=True)
        return trial


if __name__ == "__main__":
    sys.exit(main())
