"""`deerflow doctor`: checks the installation and its configuration, and says how to fix problems."""

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.text import Text

from deerflow.app.components import SkillFolderMounts
from deerflow.app.configured import faults_of
from deerflow.config import LoadedSettings, SettingsSource
from deerflow.config.effect import Fault
from deerflow.config.secrets import without_login
from deerflow.errors import ConfigError, DeerFlowError
from deerflow.files.home_marker import home_problem
from deerflow.gateway.page import STATIC
from deerflow.mcp import McpServers, ServerStatus, ToolPins, missing_package
from deerflow.mcp.base import ServerEnvironment
from deerflow.models import ModelFactory, discover
from deerflow.models.compatible import connection_problem
from deerflow.models.providers import memory_model
from deerflow.observability import secrets_of
from deerflow.observability.logs import Redactor
from deerflow.observability.telemetry import audience_of
from deerflow.plugins import broken_plugins
from deerflow.sandbox import choose_users_root, create_sandbox_provider, tier_of
from deerflow.skills import skill_folders, skills_of
from deerflow.storage import Storage, open_storage

_ROOM_BYTES = 500 * 1024 * 1024


class Verdict(StrEnum):
    """The outcome of a check."""

    GOOD = "✓"
    NOTE = "!"
    BAD = "✗"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    verdict: Verdict
    subject: str
    text: str
    fix: str = ""
    is_security: bool = False


def execute(*, config: Path | None) -> int:
    """Print all findings; return 1 when something configured or required does not work."""
    findings = asyncio.run(examine(config))
    console = Console()
    for title, group in _groups(findings):
        _print(console, title, group)
    bad = sum(finding.verdict is Verdict.BAD for finding in findings)
    print("Everything that is configured works." if not bad else f"{bad} thing(s) to fix, see above.")
    return 1 if bad else 0


async def examine(config: Path | None) -> list[Finding]:
    """Run all checks and return the findings; invalid settings end the list: the other checks need them."""
    findings = [_python()]
    try:
        loaded = SettingsSource(config).current()
    except ConfigError as error:
        return [*findings, Finding(Verdict.BAD, "settings", str(error), "correct the file and try again")]
    faults = faults_of(loaded)
    findings += _settings(loaded, faults)
    findings += _plugins(faults)
    findings += await _models(loaded, {fault.key for fault in faults})
    findings.append(await _sandbox(loaded))
    findings += await _database(loaded)
    findings.append(_disk(loaded))
    findings.append(_page())
    findings += await asyncio.to_thread(_skills, loaded)
    findings += _telemetry(loaded)
    findings += await _mcp(loaded)
    return findings


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    return Finding(Verdict.GOOD, "deerflow", f"{version('deerflow')} on Python {found}")


def _settings(loaded: LoadedSettings, faults: list[Fault]) -> Iterator[Finding]:
    source = loaded.source_path
    text = str(source) if source else f"no config.yaml in {loaded.project_root}: defaults are used"
    yield Finding(Verdict.GOOD, "settings", text)
    for fault in faults:
        verdict = Verdict.BAD if fault.is_broken else Verdict.NOTE
        yield Finding(verdict, fault.key, fault.text, fault.fix, fault.is_security)


def _plugins(faults: list[Fault]) -> Iterator[Finding]:
    """Load the plug-ins of other packages; DeerFlow works without one that fails."""
    reported = {fault.text for fault in faults}
    for plugin, error in broken_plugins():
        if str(error) in reported:
            continue
        fix = f"update or uninstall {plugin.package}; everything else works without it"
        yield Finding(Verdict.BAD, "plug-ins", str(error), fix)


async def _models(loaded: LoadedSettings, known: set[str]) -> list[Finding]:
    """Create every model and probe its server, except those with a known fault."""
    findings = []
    entries = loaded.settings.models
    if not entries:
        found = await discover(loaded.env)
        entries = found.models
        findings += [Finding(Verdict.NOTE, "models", note) for note in found.notes]
    own = loaded.settings.memory.backend_config.model
    try:
        if own is not None:
            memory_model(own, name="memory", key="memory.backend_config.model")
        factory = ModelFactory(entries, env=loaded.env)
    except ConfigError as error:
        return [*findings, Finding(Verdict.BAD, "models", str(error), "correct it in config.yaml")]
    try:
        wanted = [entry for entry in entries if f"models[{entry.name}]" not in known]
        looks = (_model(factory, entry.name, entry.use) for entry in wanted)
        return findings + list(await asyncio.gather(*looks))
    finally:
        await factory.aclose()


async def _model(factory: ModelFactory, name: str, use: str) -> Finding:
    try:
        model = factory.create(name)
    except DeerFlowError as error:
        return Finding(Verdict.BAD, "models", f"{name}: {error}")
    problem = await connection_problem(model)
    if problem is None:
        return Finding(Verdict.GOOD, "models", f"{name} ({use})")
    return Finding(Verdict.BAD, "models", f"{name}: {without_login(problem)}")


async def _sandbox(loaded: LoadedSettings) -> Finding:
    tier = tier_of(loaded.settings.sandbox)
    try:
        skills = SkillFolderMounts(skill_folders(loaded, loaded.paths))
        provider = create_sandbox_provider(loaded.settings.sandbox, skills=skills)
    except DeerFlowError as error:
        return Finding(Verdict.BAD, "sandbox", str(error))
    try:
        tested = await provider.self_test()
    finally:
        await provider.aclose()
    if not tested.ok:
        # `local` has no shell on purpose; another tier that was chosen should work.
        is_chosen = tier != "local" and "use" in loaded.settings.sandbox.model_fields_set
        verdict = Verdict.BAD if is_chosen else Verdict.NOTE
        return Finding(verdict, "sandbox", f"{tier}: no shell: {tested.reason}", tested.fix or "")
    if tier == "local":
        fix = "remove sandbox.use, or set it to 'isolated'" if sys.platform == "linux" else ""
        return Finding(Verdict.NOTE, "sandbox", "local: commands run on this host, not isolated", fix)
    return Finding(Verdict.GOOD, "sandbox", f"{tier}: {len(tested.probes)} probes passed")


async def _database(loaded: LoadedSettings) -> list[Finding]:
    try:
        async with open_storage(loaded.settings.database, loaded.paths) as storage:
            active = len(await storage.runs.active())
            shared = (
                [] if storage.jobs is None else await _sharing(loaded, storage, await storage.jobs.workers())
            )
    except DeerFlowError as error:
        return [Finding(Verdict.BAD, "database", str(error))]
    where = loaded.paths.database if not shared else "PostgreSQL"
    return [Finding(Verdict.GOOD, "database", f"{where}, {active} run(s) in flight"), *shared]


async def _sharing(loaded: LoadedSettings, storage: Storage, workers: int) -> list[Finding]:
    """Check what processes on one database share: workers and the home folder."""
    found = Finding(Verdict.GOOD, "workers", f"{workers} process(es) execute runs")
    if not workers:
        text = "nobody executes runs: what is admitted waits"
        found = Finding(Verdict.NOTE, "workers", text, "start `deerflow worker` or `deerflow serve`")
    paths = replace(loaded.paths, users_root=choose_users_root(loaded.paths, loaded.settings.sandbox))
    problem = await home_problem(storage.store, paths, remember=False)
    if problem is None:
        return [found]
    return [found, Finding(Verdict.NOTE, "home", problem, "see docs/howto/many-machines.md")]


def _disk(loaded: LoadedSettings) -> Finding:
    home = next(path for path in (loaded.paths.home, *loaded.paths.home.parents) if path.exists())
    if not os.access(home, os.W_OK):
        return Finding(
            Verdict.BAD, "disk", f"{home} cannot be written", "set DEER_FLOW_HOME to a folder of yours"
        )
    free = shutil.disk_usage(home).free
    verdict = Verdict.GOOD if free > _ROOM_BYTES else Verdict.NOTE
    return Finding(verdict, "disk", f"{free / 1e9:.1f} GB free for {loaded.paths.home}")


def _page() -> Finding:
    if (STATIC / "index.html").is_file():
        return Finding(Verdict.GOOD, "page", "built")
    fix = "install Node.js 20.19 or newer with npm, then `make install`"
    return Finding(Verdict.NOTE, "page", "not built: only the API is served", fix)


def _telemetry(loaded: LoadedSettings) -> Iterator[Finding]:
    """Report where spans and traces are sent."""
    audience = audience_of(loaded)
    for problem in audience.problems:
        what, _, fix = problem.partition("; ")
        yield Finding(Verdict.BAD, "telemetry", what, fix)
    if audience.spans is not None:
        yield Finding(Verdict.GOOD, "telemetry", f"spans go to {without_login(audience.spans.endpoint)}")
    if audience.langsmith is not None:
        where = f"LangSmith ({audience.langsmith.project}) at {without_login(audience.langsmith.endpoint)}"
        yield Finding(Verdict.GOOD, "telemetry", f"conversations go to {where}")
    if audience.langfuse is not None:
        where = f"Langfuse at {without_login(audience.langfuse.host)}"
        yield Finding(Verdict.GOOD, "telemetry", f"conversations go to {where}")


async def _mcp(loaded: LoadedSettings) -> list[Finding]:
    """Connect to every enabled MCP server and report the result."""
    wanted = {name: entry for name, entry in loaded.extensions.mcp_servers.items() if entry.enabled}
    if missing_package():  # reported with the settings' faults
        return []
    async with AsyncExitStack() as stack:
        pins = None
        with suppress(DeerFlowError):  # an unreachable database has its own finding
            opening = open_storage(loaded.settings.database, loaded.paths)
            pins = ToolPins((await stack.enter_async_context(opening)).store, remembers=False)
        environment = ServerEnvironment(env=loaded.env, folder=loaded.project_root)
        servers = McpServers(environment, redact=Redactor(secrets_of(loaded)), pins=pins)
        stack.push_async_callback(servers.aclose)
        servers.use(wanted, approval=loaded.settings.mcp.tool_approval)
        await servers.open()
        return [finding for status in servers.statuses for finding in _mcp_server(status)]


def _mcp_server(status: ServerStatus) -> Iterator[Finding]:
    if status.state != "ready":
        fix = "correct it in extensions_config.json, or set enabled: false; runs go on without it"
        yield Finding(Verdict.BAD, "mcp", f"{status.name}: {status.problem}", fix)
        return
    yield Finding(Verdict.GOOD, "mcp", f"{status.name}: {len(status.tools)} tool(s)")
    for tool in status.left_out:
        yield Finding(Verdict.NOTE, "mcp", f"{status.name}: {tool.name} is left out: {tool.reason}")
    for held in status.withheld:
        fix = f"look at it and approve it, with the server running: deerflow mcp approve {status.name}"
        yield Finding(Verdict.NOTE, "mcp", f"{status.name}: {held.name} is withheld: {held.reason}", fix)


def _skills(loaded: LoadedSettings) -> list[Finding]:
    """Read the skills of the default user; everything works without one that is skipped."""
    skills = skills_of(loaded, loaded.paths)
    count = f"{len(skills.all())} found, {len(skills.enabled())} enabled"
    notes = [Finding(Verdict.NOTE, "skills", f"{found.level}: {found}") for found in skills.problems()]
    return [Finding(Verdict.GOOD, "skills", count), *notes]


def _groups(findings: list[Finding]) -> Iterator[tuple[str, list[Finding]]]:
    """Yield the findings grouped by severity, security problems first."""
    bad = [finding for finding in findings if finding.verdict is Verdict.BAD]
    yield "Not working, and it concerns security", [finding for finding in bad if finding.is_security]
    yield "Not working", [finding for finding in bad if not finding.is_security]
    yield "Worth knowing", [finding for finding in findings if finding.verdict is Verdict.NOTE]
    yield "Working", [finding for finding in findings if finding.verdict is Verdict.GOOD]


def _print(console: Console, title: str, group: list[Finding]) -> None:
    """Print a group; a fix shared by consecutive findings is printed once, after the last of them."""
    if not group:
        return
    console.print(Text(title, style="bold"))
    styles = {Verdict.GOOD: "green", Verdict.NOTE: "yellow", Verdict.BAD: "red"}
    fixes = [finding.fix for finding in group[1:]]
    for finding, next_fix in zip(group, [*fixes, ""], strict=True):
        line = Text.assemble(
            "  ", (finding.verdict, styles[finding.verdict]), f" {finding.subject}  {finding.text}"
        )
        # Wrapped by the terminal only, so that copied text is one line.
        console.print(line, highlight=False, soft_wrap=True)
        if finding.fix and finding.fix != next_fix:
            console.print(Text(f"    → {finding.fix}", style="dim"), highlight=False, soft_wrap=True)
