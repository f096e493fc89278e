"""The Typer commands and their options; each implementation is imported on use, so that help is fast."""

import gc
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from deerflow.cli.startup import StatusLine, end_on_interrupt, raise_on_interrupt
from deerflow.errors import DeerFlowError

DEFAULT_URL = "http://127.0.0.1:2026"
_COLLECTOR_THRESHOLDS = (50_000, 20, 50)

app = typer.Typer(
    name="deerflow",
    help="DeerFlow gets long work done: a lead agent plans, delegates, acts in a sandbox and reports.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="Settings file; config.yaml here or in the folder above when absent."
    ),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"deerflow {version('deerflow')}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of every command."""


@app.command()
def run(
    task: Annotated[
        str, typer.Argument(help="What is to be done, in your own words. '-' reads it from stdin.")
    ],
    more: Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="More files to work on.")] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="A file or folder to work on; may be repeated."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Name of a model; `deerflow doctor` lists them.")
    ] = None,
    thread: Annotated[
        str | None, typer.Option("--thread", "-t", help="Go on in this thread instead of a new one.")
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="With --thread: start a new thread of this id.")] = False,
    no_subagents: Annotated[
        bool, typer.Option("--no-subagents", help="Do everything in one agent, without delegating.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Work along a plan that is kept up to date.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print every event as a line of JSON.")] = False,
    config: Config = None,
) -> None:
    """Run one job in the terminal, with live progress.

    Prints the answer, the token use and where the artifacts are. Exit code 0 when it worked, 1 when it
    failed, 130 when it was stopped with Ctrl-C; what was done until then is kept in the thread.
    """
    text = sys.stdin.read() if task == "-" else task
    status = StatusLine(sys.stderr, is_shown=not json)
    _exit_with(
        "run",
        task=text,
        files=[*(file or ()), *(more or ())],
        model=model,
        thread_id=thread,
        is_new_thread=new,
        has_subagents=not no_subagents,
        is_plan_mode=plan,
        as_json=json,
        config=config,
        status=status,
    )


@app.command()
def serve(
    host: Annotated[
        str, typer.Option("--host", envvar="GATEWAY_HOST", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", envvar="GATEWAY_PORT", min=0, max=65535, help="Port.")
    ] = 2026,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            min=0,
            help="How many runs this server executes at once; the others wait. 0: none, "
            "`deerflow worker` processes do (PostgreSQL). Any number when absent.",
        ),
    ] = None,
    config: Config = None,
) -> None:
    """Serve the API and the page until stopped."""
    _exit_with("serve", host=host, port=port, concurrency=concurrency, config=config)


@app.command()
def worker(
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, help="How many runs are executed at once.")
    ] = 10,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", min=0, max=65535, help="Serve /metrics on this port of 127.0.0.1."),
    ] = None,
    config: Config = None,
) -> None:
    """Execute runs that servers admit, until stopped; any number of workers share one PostgreSQL.

    The first SIGTERM (or Ctrl-C) hands runs in progress over to other workers at their next step, the
    second at once.
    """
    _exit_with("worker", concurrency=concurrency, metrics_port=metrics_port, config=config)


@app.command()
def doctor(config: Config = None) -> None:
    """Check what works here, what does not, and how to fix it."""
    _exit_with("doctor", config=config)


@app.command()
def install(
    extras: Annotated[
        list[str] | None,
        typer.Argument(metavar="[EXTRA]...", help="What to add; without a name all are listed."),
    ] = None,
) -> None:
    """Add optional packages to this installation, such as `anthropic` or `postgres`."""
    _exit_with("install", extras=extras or [])


Url = Annotated[str, typer.Option("--url", help="Where the server is.")]
OfThread = Annotated[str | None, typer.Option("--thread", "-t", help="Only this thread's latest run.")]
OfRun = Annotated[str | None, typer.Option("--run", help="Only this run; needs --thread.")]
tasks_app = typer.Typer(
    help="See and stop the tasks of sub-agents on a running server.", no_args_is_help=True
)
app.add_typer(tasks_app, name="tasks")


@tasks_app.command("list")
def list_tasks(thread: OfThread = None, run: OfRun = None, url: Url = DEFAULT_URL) -> None:
    """List the tasks of all runs in progress, or of one run."""
    _exit_with("tasks", action="list", url=url, thread_id=thread, run_id=run)


@tasks_app.command("cancel")
def cancel_task(
    task: Annotated[str, typer.Argument(help="The task's id; `deerflow tasks list` shows them.")],
    thread: OfThread = None,
    run: OfRun = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Stop one task; its run goes on with what the task had found."""
    _exit_with("tasks", action="cancel", url=url, thread_id=thread, run_id=run, task_id=task)


mcp_app = typer.Typer(
    help="See the MCP servers of a running server, and approve their tools.", no_args_is_help=True
)
app.add_typer(mcp_app, name="mcp")


@mcp_app.command("status")
def show_mcp_status(url: Url = DEFAULT_URL) -> None:
    """Show how the MCP servers are doing, and which of their tools are left out or withheld."""
    _exit_with("mcp", action="status", url=url)


@mcp_app.command("approve")
def approve_mcp_tools(
    server: Annotated[str, typer.Argument(help="The MCP server's name.")],
    tool: Annotated[list[str] | None, typer.Argument(help="Only these tools; all when absent.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show what is new about tools that are withheld, and let agents use them."""
    _exit_with("mcp", action="approve", url=url, server=server, tools=tool or (), is_sure=yes)


OfAgent = Annotated[
    str | None, typer.Option("--agent", "-a", help="What this agent of yours remembers, instead.")
]
memory_app = typer.Typer(help="See and delete what is remembered of you.", no_args_is_help=True)
app.add_typer(memory_app, name="memory")


@memory_app.command("show")
def show_memory(
    agent: OfAgent = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print it as JSON, as /api/memory/import takes it.")
    ] = False,
    config: Config = None,
) -> None:
    """Show what is remembered."""
    _exit_with("memory", action="show", agent=agent, as_json=json, config=config)


@memory_app.command("forget")
def forget_fact(
    fact: Annotated[str, typer.Argument(help="The fact's id; `deerflow memory show` shows them.")],
    agent: OfAgent = None,
    config: Config = None,
) -> None:
    """Forget one fact."""
    _exit_with("memory", action="forget", agent=agent, fact_id=fact, config=config)


@memory_app.command("clear")
def clear_memory(
    agent: OfAgent = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
    config: Config = None,
) -> None:
    """Forget everything."""
    if not yes:
        typer.confirm("Forget everything that is remembered?", abort=True)
    _exit_with("memory", action="clear", agent=agent, config=config)


approvals_app = typer.Typer(help="See and take back calls that run unasked.", no_args_is_help=True)
app.add_typer(approvals_app, name="approvals")


@approvals_app.command("list")
def list_allowed_calls(
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, for programs.")] = False,
    config: Config = None,
) -> None:
    """List the calls that you allowed for good."""
    _exit_with("approvals", action="list", as_json=json, config=config)


@approvals_app.command("revoke")
def revoke_allowed_call(
    allowed: Annotated[
        str,
        typer.Argument(help="Its id, or the beginning of it; `deerflow approvals list` shows them."),
    ],
    config: Config = None,
) -> None:
    """Take one back: the call is asked about again."""
    _exit_with("approvals", action="revoke", allowed_id=allowed, config=config)


skills_app = typer.Typer(help="Use, install and share skills.", no_args_is_help=True)
app.add_typer(skills_app, name="skills")
secrets_app = typer.Typer(
    help="Secrets that skills need, kept encrypted and given to their commands only.", no_args_is_help=True
)
skills_app.add_typer(secrets_app, name="secrets")
OfSkill = Annotated[str, typer.Argument(help="The skill's name.", metavar="SKILL")]
SecretsAsJson = Annotated[bool, typer.Option("--json", help="Print the list as JSON, for programs.")]


@secrets_app.command("list")
def list_skill_secrets(skill: OfSkill, json: SecretsAsJson = False, config: Config = None) -> None:
    """List the secrets that a skill names, and whether they are set; never their values."""
    _exit_with("skill_secrets", action="list", skill=skill, as_json=json, config=config)


@secrets_app.command("set")
def set_skill_secret(
    skill: OfSkill,
    name: Annotated[str, typer.Argument(help="The secret's name, such as API_KEY.", metavar="NAME")],
    json: SecretsAsJson = False,
    config: Config = None,
) -> None:
    """Set a secret of a skill; the value is asked for, or read from stdin."""
    _exit_with("skill_secrets", action="set", skill=skill, secret=name, as_json=json, config=config)


@secrets_app.command("remove")
def remove_skill_secret(
    skill: OfSkill,
    name: Annotated[
        str | None, typer.Argument(help="Only this secret; all of the skill when absent.", metavar="[NAME]")
    ] = None,
    json: SecretsAsJson = False,
    config: Config = None,
) -> None:
    """Remove the secrets of a skill, or one of them."""
    _exit_with("skill_secrets", action="remove", skill=skill, secret=name, as_json=json, config=config)


AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON, for programs.")]
OnServer = Annotated[
    str | None,
    typer.Option("--url", help="Act on the server there; on the files of this machine when absent."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]


@skills_app.command("list")
def list_skills(json: AsJson = False, url: OnServer = None, config: Config = None) -> None:
    """List the skills, whether agents may use them, and what is wrong with their files."""
    _exit_with("skills", action="list", as_json=json, url=url, config=config)


@skills_app.command("show")
def show_skill(skill: OfSkill, json: AsJson = False, url: OnServer = None, config: Config = None) -> None:
    """Show a skill: what its front matter says, its files and its text."""
    _exit_with("skills", action="show", name=skill, as_json=json, url=url, config=config)


@skills_app.command("new")
def new_skill(
    skill: OfSkill,
    description: Annotated[
        str, typer.Option("--description", "-d", help="What it is for and when to use it, in a sentence.")
    ] = "",
    json: AsJson = False,
    config: Config = None,
) -> None:
    """Make a skill of your own from a template, and print where it is."""
    _exit_with("skills", action="new", name=skill, description=description, as_json=json, config=config)


@skills_app.command("validate")
def validate_skill(
    target: Annotated[str, typer.Argument(help="A folder with a SKILL.md, or a skill's name.")],
    strict: Annotated[bool, typer.Option("--strict", help="Count warnings as errors.")] = False,
    json: AsJson = False,
    config: Config = None,
) -> None:
    """Check a skill before it is shared: its format, its size, what it names, and what the scan finds.

    Exit code 0 when it is valid, 1 when it is not.
    """
    _exit_with("skills", action="validate", target=target, is_strict=strict, as_json=json, config=config)


@skills_app.command("install")
def install_skill(
    source: Annotated[
        str, typer.Argument(help="A folder, a .skill, .zip or .tar.gz file, or a name in a catalogue.")
    ],
    catalogue: Annotated[
        str | None, typer.Option("--from", help="The catalogue, if several have a skill of this name.")
    ] = None,
    digest: Annotated[
        str | None, typer.Option("--digest", help="Only if the catalogue's digest is this one.")
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", "-u", help="Update the skill; files that you changed are kept.")
    ] = False,
    keep_mine: Annotated[
        bool, typer.Option("--keep-mine", help="Keep yours of files that you and the update changed.")
    ] = False,
    take_theirs: Annotated[
        bool, typer.Option("--take-theirs", help="Take the update's of files that both changed.")
    ] = False,
    json: AsJson = False,
    url: OnServer = None,
    config: Config = None,
) -> None:
    """Install a skill, or update it.

    It is scanned first, and nothing of it is executed. Exit code 1 if it is blocked, is there already, or
    if you and the update changed the same files.
    """
    if keep_mine and take_theirs:
        raise typer.BadParameter("choose one of --keep-mine and --take-theirs")
    _exit_with(
        "skills",
        action="install",
        source=source,
        catalogue=catalogue,
        digest=digest,
        is_update=update,
        on_conflict="mine" if keep_mine else "theirs" if take_theirs else "refuse",
        as_json=json,
        url=url,
        config=config,
    )


@skills_app.command("remove")
def remove_skill(
    skill: OfSkill, yes: Yes = False, json: AsJson = False, url: OnServer = None, config: Config = None
) -> None:
    """Remove one of your own skills; `deerflow skills rollback` restores it."""
    _exit_with("skills", action="remove", name=skill, is_sure=yes, as_json=json, url=url, config=config)


@skills_app.command("enable")
def enable_skill(skill: OfSkill, json: AsJson = False, url: OnServer = None, config: Config = None) -> None:
    """Let agents use a skill."""
    _exit_with("skills", action="enable", name=skill, is_enabled=True, as_json=json, url=url, config=config)


@skills_app.command("disable")
def disable_skill(skill: OfSkill, json: AsJson = False, url: OnServer = None, config: Config = None) -> None:
    """Keep agents from using a skill; its files stay."""
    _exit_with("skills", action="enable", name=skill, is_enabled=False, as_json=json, url=url, config=config)


@skills_app.command("export")
def export_skill(
    skill: OfSkill,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File or folder to write to; NAME.skill when absent."),
    ] = None,
    json: AsJson = False,
    url: OnServer = None,
    config: Config = None,
) -> None:
    """Write a skill to a .skill archive that others can install; the same files give the same bytes."""
    _exit_with("skills", action="export", name=skill, output=output, as_json=json, url=url, config=config)


@skills_app.command("search")
def search_skills(
    query: Annotated[list[str] | None, typer.Argument(help="What it is to do; all when absent.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="Most skills to list.")] = 20,
    json: AsJson = False,
    url: OnServer = None,
    config: Config = None,
) -> None:
    """Search the catalogues that skills.catalogues names; nothing else is asked."""
    words = " ".join(query or ())
    _exit_with("skills", action="search", query=words, limit=limit, as_json=json, url=url, config=config)


@skills_app.command("history")
def show_skill_history(
    skill: OfSkill, json: AsJson = False, url: OnServer = None, config: Config = None
) -> None:
    """List the versions of one of your own skills: when, what, who and why."""
    _exit_with("skills", action="history", name=skill, as_json=json, url=url, config=config)


@skills_app.command("diff")
def show_skill_diff(
    skill: OfSkill,
    old: Annotated[int | None, typer.Argument(help="A version; the one before NEW when absent.")] = None,
    new: Annotated[
        int | None, typer.Argument(help="A version, 0 for the draft; the last when absent.")
    ] = None,
    json: AsJson = False,
    url: OnServer = None,
    config: Config = None,
) -> None:
    """Show the differences between two versions of a skill."""
    _exit_with("skills", action="diff", name=skill, old=old, new=new, as_json=json, url=url, config=config)


@skills_app.command("rollback")
def rollback_skill(
    skill: OfSkill,
    version: Annotated[
        int | None, typer.Argument(help="The version to restore; the one before the last change when absent.")
    ] = None,
    json: AsJson = False,
    url: OnServer = None,
    config: Config = None,
) -> None:
    """Restore an earlier version of a skill, as a new version; also of a removed skill."""
    _exit_with("skills", action="rollback", name=skill, version=version, as_json=json, url=url, config=config)


@skills_app.command("draft")
def show_skill_draft(
    skill: OfSkill, json: AsJson = False, url: OnServer = None, config: Config = None
) -> None:
    """Show how the draft of a skill's next version differs from the version in use."""
    _exit_with("skills", action="draft", name=skill, as_json=json, url=url, config=config)


@skills_app.command("promote")
def promote_skill_draft(
    skill: OfSkill, json: AsJson = False, url: OnServer = None, config: Config = None
) -> None:
    """Approve the draft of a skill: it is used from the next turn on."""
    _exit_with("skills", action="promote", name=skill, as_json=json, url=url, config=config)


@skills_app.command("discard")
def discard_skill_draft(
    skill: OfSkill, json: AsJson = False, url: OnServer = None, config: Config = None
) -> None:
    """Discard the draft of a skill; the version in use stays."""
    _exit_with("skills", action="discard", name=skill, as_json=json, url=url, config=config)


@skills_app.command("eval")
def evaluate_skill(
    skill: OfSkill,
    case: Annotated[str | None, typer.Option("--case", help="Only the case with this id.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The model that works and judges; absent: the first.")
    ] = None,
    draft: Annotated[
        bool, typer.Option("--draft", help="Compare the draft with the version in use; promote a better one.")
    ] = False,
    triggers: Annotated[
        bool, typer.Option("--triggers/--no-triggers", help="Run the requests that should trigger it, too.")
    ] = True,
    json: AsJson = False,
    config: Config = None,
) -> None:
    """Run a skill's own cases (evals/evals.json) with and without it; each case is a run with tokens.

    Exit code 1 when the skill makes the results worse, or its draft is not better.
    """
    _exit_with(
        "skill_eval",
        name=skill,
        case=case,
        model_name=model,
        is_draft=draft,
        has_triggers=triggers,
        as_json=json,
        config=config,
    )


def _exit_with(command: str, **options: Any) -> None:
    """Import a command, run it and exit with its exit code; a `DeerFlowError` is printed as one message."""
    line = options.get("status") or StatusLine(sys.stderr, is_shown=sys.stderr.isatty())
    # The LangGraph SDK imports httpx, which loads its own command line, with rich and pygments, if it can:
    # 3 MB, and a twentieth of the time that loading takes.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    # Modules stay, and a step of an agent creates thousands of short-lived objects. The garbage collector by
    # default takes a tenth of the time to load, and a fifth of the CPU time of a wide fan-out.
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
    with end_on_interrupt():
        line.say("Loading DeerFlow")
        execute = import_module(f"deerflow.cli.{command}").execute
        line.clear()
    try:
        with raise_on_interrupt():
            code = execute(**options)
    except DeerFlowError as error:
        line.clear()
        typer.secho(f"Error: {error}", fg=typer.colors.RED, err=True)
        code = 1
    raise typer.Exit(code)
