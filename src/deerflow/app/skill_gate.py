"""Decides about drafts of skills: their own cases are run with the version in use and with the draft.

A draft replaces the version in use if no case gets worse and at least one gets better. The cases are those of
the version in use, so that a draft cannot make its own test easier. Otherwise it waits for a person.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deerflow.app.skill_evals import CaseRunner, SkillVariants, judge_of
from deerflow.config import LoadedSettings
from deerflow.context import RunContext
from deerflow.errors import DeerFlowError
from deerflow.lead.skill_editors import SkillEditors
from deerflow.skills.evals import CaseResult, Comparison, EvalCase, compare, read_evals
from deerflow.skills.versions import Package, SkillChange

logger = logging.getLogger(__name__)

AUTHOR = "gate"


@dataclass(frozen=True, slots=True)
class SkillComparison:
    """Compares two packages of one skill on its cases.

    Args:
        model_name: The model that works on the cases and judges the results; None: the default one.
    """

    editors: SkillEditors
    user: str
    name: str
    model_name: str | None = None

    @property
    def variants(self) -> SkillVariants:
        sources = self.editors.skills.folders.of(self.user)
        return SkillVariants(self.loaded, self.name, tuple(source.folder for source in sources))

    @property
    def loaded(self) -> LoadedSettings:
        return self.editors.loaded

    async def run(self, cases: Sequence[EvalCase], folder: Path, package: Package | None) -> list[CaseResult]:
        """Run the cases of the skill in `folder` with a package; None: without the skill."""
        ask = judge_of(self.editors.models, self.model_name)
        async with self.variants.open(package) as deerflow:
            runner = CaseRunner(deerflow, model_name=self.model_name, ask=ask)
            return [await runner.run_case(case, folder) for case in cases]

    async def draft(self) -> Comparison | None:
        """Compare the draft with the version in use and promote it if it is better; None without cases."""
        editor = self.editors.of(self.user)
        skills = editor.skills
        folder = skills.folder(self.name)
        evals = await asyncio.to_thread(read_evals, folder)
        draft = await asyncio.to_thread(skills.read_draft, self.name)
        if draft is None or evals is None or not evals.evals:
            return None
        used = await asyncio.to_thread(skills.read, self.name)
        old = await self.run(evals.evals, folder, used)
        new = await self.run(evals.evals, folder, await asyncio.to_thread(skills.files_of, self.name, draft))
        result = compare(old, new)
        checks = {"gate": result.to_dict()}
        if result.is_better:
            await editor.promote(self.name, SkillChange(AUTHOR, checks=checks), digest=draft.digest)
        else:
            await asyncio.to_thread(skills.note_draft, self.name, draft.digest, checks)
        return result


class SkillGate:
    """Compares drafts in the background, one after the other."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()

    async def start(self, editors: SkillEditors, context: RunContext, name: str) -> bool:
        """Start to compare a skill's draft; return False if the skill has no cases."""
        folder = editors.of(context.user_id).skills.folder(name)
        evals = await asyncio.to_thread(read_evals, folder)
        if evals is None or not evals.evals:
            return False
        key = (context.user_id, name)
        if (earlier := self._tasks.pop(key, None)) is not None:
            earlier.cancel()  # it compares an older draft
        comparison = SkillComparison(editors, context.user_id, name, context.options.model_name)
        task = self._tasks[key] = asyncio.create_task(self._compare(comparison), name=f"compare skill {name}")
        task.add_done_callback(
            lambda done: self._tasks.pop(key, None) if self._tasks.get(key) is done else None
        )
        return True

    async def aclose(self) -> None:
        """Stop the comparisons; their drafts stay."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _compare(self, comparison: SkillComparison) -> None:
        try:
            async with self._turn:
                result = await comparison.draft()
        except DeerFlowError as error:
            logger.warning("skill %s: its draft was not compared: %s", comparison.name, error)
        except Exception:
            logger.exception("skill %s: its draft was not compared", comparison.name)
        else:
            if result is not None:
                kept = "promoted" if result.is_better else "kept as a draft"
                logger.info("skill %s: the draft was %s (%s)", comparison.name, kept, result.reason)
