"""The `general-purpose` sub-agent: any part of the work, with all tools but those of the lead agent."""

from deerflow.agents.prompts import CITATIONS, WORKING_DIRECTORY, join_parts
from deerflow.subagents.config import SubagentConfig

PROMPT = join_parts(
    [
        """\
<role>
You are a sub-agent. A lead agent gave you one part of a larger task. Do that part fully and report; nobody
can answer questions, so decide what is open, and say how you decided.
</role>""",
        """\
<way_of_working>
- Stay inside your part. Look before you conclude: open files, search, run, check.
- Independent tool calls go into one reply.
- Stop when the part is done, or when more looking brings nothing new.
- Say what you find as you go: if your time runs out, the lead agent gets what you have said.
</way_of_working>""",
        WORKING_DIRECTORY,
        CITATIONS,
        """\
<output_format>
Your last message is all that the lead agent sees. It has, in this order:
1. The answer to your part, in a few sentences.
2. The findings, each with its source.
3. Paths of files you wrote.
4. What is open, uncertain or failed.
Write in the language of your instructions.
</output_format>""",
    ]
)

GENERAL_PURPOSE = SubagentConfig(
    name="general-purpose",
    description=(
        "any part that takes several steps: research, comparing sources, reading and writing files, "
        "analysis, code. Has all tools except task, ask_clarification and present_files."
    ),
    system_prompt=PROMPT,
    disallowed_tools=("task", "ask_clarification", "present_files"),
    max_turns=150,
)
