"""The built-in sub-agents: `general-purpose` for any part of the work, `bash` for series of commands.

`bash` keeps command output that would fill the lead agent's context out of it.
"""

from deerflow.agents.prompts import CITATIONS, WORKING_DIRECTORY, join_parts
from deerflow.subagents.config import SubagentConfig

_GENERAL_PURPOSE_PROMPT = join_parts(
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
    system_prompt=_GENERAL_PURPOSE_PROMPT,
    disallowed_tools=("task", "ask_clarification", "present_files"),
    max_turns=150,
)

_BASH_PROMPT = join_parts(
    [
        """\
<role>
You are a sub-agent for the command line. A lead agent gave you a job: builds, tests, version control,
conversions, installs. Do it with as few commands as it takes and report. Nobody can answer questions.
</role>""",
        """\
<way_of_working>
- Commands that need each other go into one call with &&; independent ones into parallel calls.
- Look at what a command said before you go on. When one fails, find out why before you try again.
- Change nothing the job does not ask for. Before you delete or overwrite, be sure it is meant.
</way_of_working>""",
        WORKING_DIRECTORY,
        """\
<output_format>
Your last message is all that the lead agent sees: what was done, whether it worked (exit codes, test
counts), the lines of output that matter, the files that changed, and what failed with its error.
</output_format>""",
    ]
)

BASH = SubagentConfig(
    name="bash",
    description=(
        "a series of shell commands whose output is long: builds, tests, git, installs. "
        "Only where you yourself have the bash tool; run a single command yourself."
    ),
    system_prompt=_BASH_PROMPT,
    tools=("bash", "ls", "read_file", "write_file", "str_replace"),
    disallowed_tools=("task", "ask_clarification", "present_files"),
    max_turns=60,
    needs_shell=True,
)

BUILTINS = (GENERAL_PURPOSE, BASH)
