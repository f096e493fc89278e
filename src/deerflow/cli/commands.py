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
