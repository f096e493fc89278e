"""`find_skill`: finds skills of which the prompt has only the names."""

from collections.abc import Collection

from langchain_core.tools import BaseTool
from pydantic import BaseModel, Field

from deerflow.skills.search import SkillSearch
from deerflow.tools.define import PlainText, Runtime, refuse, tool_of

FIND_SKILL = "find_skill"
MAX_FOUND = 5


class FindSkillArguments(BaseModel):
    """What `find_skill` takes."""

    query: PlainText = Field(
        min_length=1,
        max_length=500,
        description="What is to be done: the task and its usual names, with the kinds of file and result, "
        "in English and in the user's language.",
    )


def make_find_skill_tool(search: SkillSearch, names: Collection[str] | None = None) -> BaseTool:
    """Return the tool; `names` are the only skills that it finds, None for all."""

    async def find_skill(*, query: str, runtime: Runtime) -> str:
        """Find the skills that fit a task among those whose names are listed in <skills>.

        Returns at most five, the best first, with what they are for and where their SKILL.md is.
        """
        found = await search.find(query, user=runtime.context.user_id, names=names, limit=MAX_FOUND)
        if not found:
            raise refuse("No skill fits. Try other words for the task, or go on without a skill.")
        lines = [f"- {skill.name} {skill.mark}: {skill.description} ({skill.path})" for skill in found]
        return "\n".join([*lines, "Read the SKILL.md of the one that fits with read_file, and follow it."])

    return tool_of(FIND_SKILL, FindSkillArguments, is_safe_to_repeat=True)(find_skill)
