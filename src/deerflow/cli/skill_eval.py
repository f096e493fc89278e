"""`deerflow skills eval`: runs a skill's cases with and without it, or with its draft, and prints scores."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from deerflow.app import DeerFlow
from deerflow.app.skill_evals import CaseRunner
from deerflow.app.skill_gate import SkillComparison
from deerflow.config import SettingsSource
from deerflow.domain import DEFAULT_USER
from deerflow.domain.visible_text import printable
from deerflow.errors import InvalidInputError, NotFoundError
from deerflow.skills.evals import EVALS_FILE, CaseResult, EvalSet, Triggers, read_evals
from deerflow.skills.versions import read_package


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """What to run.

    Args:
        case: Only the case with this id; None: all.
        model_name: The model that works and judges; None: the default one.
        is_draft: Compare the draft with the version in use, and promote it if it is better.
        has_triggers: Also run the requests for which the skill should and should not be read.
    """

    case: str | None = None
    model_name: str | None = None
    is_draft: bool = False
    has_triggers: bool = True


def execute(*, name: str, config: Path | None, as_json: bool = False, **options: Any) -> int:
    """Run the cases of a skill; exit code 1 if the skill makes it worse, or its draft is not better."""
    return asyncio.run(_evaluate(name, config, as_json, EvalOptions(**options)))


async def _evaluate(name: str, config: Path | None, as_json: bool, options: EvalOptions) -> int:
    async with DeerFlow.open(SettingsSource(config)) as deerflow:
        report = await evaluation_of(deerflow, name, options)
    if as_json:
        print(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
    else:
        _print(report)
    return 0 if report["is_better"] else 1


async def evaluation_of(deerflow: DeerFlow, name: str, options: EvalOptions) -> dict[str, Any]:
    """Return the results of a skill's cases as JSON values."""
    comparison = SkillComparison(deerflow.skill_editors, DEFAULT_USER, name, options.model_name)
    if options.is_draft:
        compared = await comparison.draft()
        if compared is None:
            raise NotFoundError("draft with cases of the skill", name)
        return {"skill_name": name, **compared.to_dict()}
    skill = await deerflow.skill_editor(DEFAULT_USER).find(name)
    if skill is None:
        raise NotFoundError("skill", name)
    evals = await asyncio.to_thread(_chosen, skill.folder, options)
    package = await asyncio.to_thread(read_package, skill.folder)
    with_skill = await comparison.run(evals.evals, skill.folder, package)
    without = await comparison.run(evals.evals, skill.folder, None)
    triggers: list[dict[str, Any]] = []
    if options.has_triggers and (evals.triggers.should or evals.triggers.should_not):
        async with comparison.variants.open(package) as opened:
            triggers = await _triggers(
                CaseRunner(opened, model_name=options.model_name), name, evals.triggers
            )
    return {
        "skill_name": name,
        "cases": [_case(a, b) for a, b in zip(with_skill, without, strict=True)],
        "with_skill": _mean(with_skill),
        "without_skill": _mean(without),
        "triggers": triggers,
        "triggers_right": sum(each["is_read"] is each["should"] for each in triggers),
        "is_better": _mean(with_skill) >= _mean(without),
    }


def _chosen(folder: Path, options: EvalOptions) -> EvalSet:
    evals = read_evals(folder)
    if evals is None:
        raise InvalidInputError(f"{folder} has no {EVALS_FILE}; write its cases there")
    if options.case is None:
        return evals
    cases = tuple(case for case in evals.evals if str(case.id) == options.case)
    if not cases:
        raise NotFoundError("case", options.case, known=(str(case.id) for case in evals.evals))
    return evals.model_copy(update={"evals": cases, "triggers": Triggers()})


async def _triggers(runner: CaseRunner, name: str, triggers: Triggers) -> list[dict[str, Any]]:
    wanted = [(query, True) for query in triggers.should] + [(query, False) for query in triggers.should_not]
    return [
        {"query": query, "should": should, "is_read": await runner.run_trigger(query, name)}
        for query, should in wanted
    ]


def _case(with_skill: CaseResult, without: CaseResult) -> dict[str, Any]:
    return {"id": with_skill.id, "with_skill": with_skill.to_dict(), "without_skill": without.to_dict()}


def _mean(results: list[CaseResult]) -> float:
    return round(sum(result.score for result in results) / len(results), 3) if results else 0.0


def _print(report: dict[str, Any]) -> None:
    console = Console(highlight=False, markup=False)
    if "cases" not in report:
        table = Table("case", "in use", "draft", box=None, pad_edge=False)
        for case, score in report["old"].items():
            table.add_row(printable(case), f"{score:.2f}", f"{report['new'][case]:.2f}")
        console.print(table)
        console.print(
            "Promoted." if report["is_better"] else f"Kept as a draft: {printable(report['reason'])}."
        )
        return
    table = Table("case", "with", "without", "what does not hold", box=None, pad_edge=False)
    for case in report["cases"]:
        given, bare = case["with_skill"], case["without_skill"]
        failed = [text for text, held in given["assertions"].items() if held is False]
        missing = given["error"] or "; ".join(failed)
        table.add_row(*map(printable, (case["id"], f"{given['score']:.2f}", f"{bare['score']:.2f}", missing)))
    console.print(table)
    console.print(
        f"All cases: {report['with_skill']:.2f} with the skill, {report['without_skill']:.2f} without."
    )
    if report["triggers"]:
        console.print(f"Triggers: {report['triggers_right']} of {len(report['triggers'])} as they should be.")
    for each in report["triggers"]:
        if each["is_read"] is not each["should"]:
            console.print(printable(f"  {'read' if each['is_read'] else 'not read'}: {each['query']}"))
