"""The `bash` sub-agent: runs series of commands whose output would fill the lead agent's context."""

from deerflow.agents.prompts import WORKING_DIRECTORY, join_parts
from deerflow.subagents.config import SubagentConfig

PROMPT = join_parts(
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
    system_prompt=PROMPT,
    tools=("bash", "ls", "read_file", "write_file", "str_replace"),
    disallowed_tools=("task", "ask_clarification", "present_files"),
    max_turns=60,
    needs_shell=True,
)
