"""Lists configured items that do not work here, for `deerflow doctor`, `/health` and the start-up log.

It makes no network request and imports no provider's package, because servers call it at start-up.
"""

import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from deerflow.acp.agents import missing_package as missing_for_acp
from deerflow.agents.plugin_middlewares import load_middlewares
from deerflow.config import LoadedSettings, ModelSettings, Section, Settings, module_hint, resolve_use
from deerflow.config.aliases import TOOLS_OF_DEERFLOW_2
from deerflow.config.check import UnusedKey
from deerflow.config.effect import SECURITY, Fault
from deerflow.errors import ConfigError
from deerflow.mcp import missing_package as missing_for_mcp
from deerflow.models import ModelFactory
from deerflow.models.providers import COMPATIBLE, class_path
from deerflow.sandbox import tier_of
from deerflow.subagents.python_agents import load_agents
from deerflow.tools.catalog import PROVIDERS, tool_problems
from deerflow.tools.policy_provider import make_provider
from deerflow.web.providers import configured_providers, missing_keys

_NOT_BUILT = {
    "auth": "nobody has to sign in: sign-in is not part of this version",
    "authorization": "roles are not checked: they are not part of this version",
    "channels": "no chat service is listened to: they are not part of this version",
}
"""The consequence of configuring a section that nothing reads."""
_SWITCHES = (
    "authorization",
    "channel_connections",
    "channels",
    "mcp_tasks",
    "plugins",
)
"""Sections without effect until something in them is enabled."""
_FOLDER_STORAGE = "deerflow.skills.storage.local_skill_storage:LocalSkillStorage"
_REPLACE_TOOL = (
    "take the entry out; an MCP server can offer such a tool instead (docs/howto/mcp.md), or a LangChain "
    "tool of yours as `use: module:name`"
)
_MAX_NAMED = 8
"""How many faults the log names, in addition to security faults."""


def faults_of(loaded: LoadedSettings, factory: ModelFactory | None = None) -> list[Fault]:
    """Return the configured items that do not work, security faults first.

    Args:
        factory: Creates the models; models without a key are tried with it.

    """
    found = [
        *_left_out(loaded),
        *_without_effect(loaded),
        *_guardrails(loaded.settings),
        *_models(loaded.settings, factory),
        *_mounts(loaded.settings),
        *_tools(loaded.settings),
        *_web_keys(loaded),
        *load_middlewares(loaded.extensions.middlewares)[1],
        *load_agents(loaded.extensions.agents)[1],
        *_skills(loaded),
        *_other_programs(loaded),
        *loaded.notes,
    ]
    return sorted(found, key=lambda fault: (not fault.is_security, not fault.is_broken))


def summary(faults: Sequence[Fault]) -> str:
    """Return one line about what does not work; empty when everything works."""
    broken = [fault for fault in faults if fault.is_broken]
    security = [fault for fault in broken if fault.is_security]
    others = [fault for fault in broken if not fault.is_security]
    notes = [fault for fault in faults if not fault.is_broken]
    parts = [f"{fault.key}: {fault.text}" for fault in (*security, *others[:_MAX_NAMED], *notes)]
    parts += [f"and {len(others) - _MAX_NAMED} more"] if len(others) > _MAX_NAMED else []
    count = f"{len(broken)} configured thing(s) do not work" if broken else "all that is configured works"
    return f"{count} (`deerflow doctor` says more): {'; '.join(parts)}" if parts else ""


def _left_out(loaded: LoadedSettings) -> Iterator[Fault]:
    for problem in loaded.problems:
        is_security = problem.key.split(".")[0] in SECURITY
        yield Fault(problem.key, problem.text, problem.fix, is_security=is_security)


def _without_effect(loaded: LoadedSettings) -> Iterator[Fault]:
    harmless = []
    for unused in loaded.unused:
        section = str(unused.path[0])
        if section in _SWITCHES and not _is_on(getattr(loaded.settings, section)):
            continue
        is_security = section in SECURITY or (unused.meant or "").split(".")[0] in SECURITY
        if not unused.is_known and (unused.meant or is_security):
            yield Fault(_location(unused), "is not a setting", _correction(unused), is_security=is_security)
        elif unused.is_known and (is_security or section in _SWITCHES):
            text = _NOT_BUILT.get(section, "is asked for, but not part of this version")
            yield Fault(_location(unused), text, "take it out, or do not rely on it", is_security=is_security)
        else:
            harmless.append(str(unused))
    if harmless:
        yield Fault("without effect", ", ".join(harmless), is_broken=False)


def _location(unused: UnusedKey) -> str:
    return f"{unused.key} (line {unused.line})" if unused.line else unused.key


def _correction(unused: UnusedKey) -> str:
    return f"did you mean {unused.meant}?" if unused.meant else "take it out"


def _is_on(value: object) -> bool:
    """Return whether anything in a section is enabled."""
    match value:
        case Section():
            if getattr(value, "enabled", False):
                return True
            return any(_is_on(getattr(value, name)) for name in value.model_fields_set if name != "enabled")
        case dict():  # a section of DeerFlow 2 that does not exist here
            return bool(value.get("enabled", True))
        case tuple() | list():
            return any(map(_is_on, value))
    return False


def _guardrails(settings: Settings) -> Iterator[Fault]:
    rules = settings.guardrails
    if rules.enabled and rules.provider is None and not rules.rules:
        text = "enabled, but nothing is refused: there is neither a provider nor a rule"
        yield Fault("guardrails", text, "add guardrails.rules or guardrails.provider", is_security=True)
    try:
        make_provider(settings.guardrails)
    except ConfigError as error:
        fix = "correct guardrails.provider; until then every run fails"
        yield Fault("guardrails.provider", str(error), fix, is_security=True)


def _models(settings: Settings, factory: ModelFactory | None) -> Iterator[Fault]:
    names = [model.name for model in settings.models]
    for model in settings.models:
        if (package := _missing_package(model)) is not None:
            text = f"use: {model.use} needs the package {package}, which is not installed"
            yield Fault(f"models[{model.name}]", text, module_hint(package))
        elif (problem := _wrong_use(model)) is not None:
            yield Fault(f"models[{model.name}]", problem, "correct `use`")
        elif factory is not None and (problem := _missing_key(model, factory)) is not None:
            yield Fault(f"models[{model.name}]", problem, "correct the entry, or take it out")
    for key, name in _named_models(settings):
        if names and name not in (None, "inherit", *names):
            known = f"there are: {', '.join(names)}"
            yield Fault(key, f"there is no model {name!r}", known)


def _path(model: ModelSettings) -> str:
    """Return the `module:Class` of a model; its `use` if that names nothing."""
    try:
        return class_path(model.use)
    except ConfigError:
        return model.use


def _missing_package(model: ModelSettings) -> str | None:
    module, colon, _ = _path(model).partition(":")
    package = module.split(".")[0]
    try:
        return None if not colon or not package.isidentifier() or find_spec(package) else package
    except (ImportError, ValueError):  # a module without a spec, replaced by a test or a program
        return None


def _missing_key(model: ModelSettings, factory: ModelFactory) -> str | None:
    names_one = any("key" in name or "token" in name for name in model.extra_keys)
    is_ours = _path(model) == COMPATIBLE
    if names_one or not (is_ours or _is_loaded(model)):
        return None
    try:
        factory.create(model.name)
    except ConfigError as error:
        return str(error)
    return None


def _is_loaded(model: ModelSettings) -> bool:
    """Return whether the model's module is imported; importing a provider's package takes over a second."""
    return _path(model).partition(":")[0] in sys.modules


def _wrong_use(model: ModelSettings) -> str | None:
    try:
        if _is_loaded(model):
            resolve_use(class_path(model.use))
        else:
            class_path(model.use)
    except ConfigError as error:
        return str(error)
    return None


def _named_models(settings: Settings) -> Iterator[tuple[str, str | None]]:
    """Yield every setting that names a model, with that name."""
    yield "title.model_name", settings.title.model_name
    yield "summarization.model_name", settings.summarization.model_name
    yield "input_polish.model_name", settings.input_polish.model_name
    yield "memory.model_name", settings.memory.backend_config.model_name
    for name, override in settings.subagents.agents.items():
        yield f"subagents.agents.{name}.model", override.model
    for name, custom in settings.subagents.custom_agents.items():
        yield f"subagents.custom_agents.{name}.model", custom.model


def _mounts(settings: Settings) -> Iterator[Fault]:
    if tier_of(settings.sandbox) == "aio":
        return  # its containers may run on another machine, with its own folders
    for index, mount in enumerate(settings.sandbox.mounts):
        folder = Path(mount.host_path).expanduser()
        if not folder.is_absolute() or not folder.is_dir():
            text = f"{mount.host_path} is not an existing absolute folder: no sandbox can be made"
            yield Fault(f"sandbox.mounts[{index}].host_path", text, "make the folder, or correct the path")


def _tools(settings: Settings) -> Iterator[Fault]:
    for entry, problem in tool_problems(settings):
        is_old = (entry.use or "").strip().startswith(TOOLS_OF_DEERFLOW_2)
        fix = _REPLACE_TOOL if is_old else "correct the entry, or take it out"
        yield Fault(f"tools[{entry.name}]", f"left out: {problem}", fix)


def _web_keys(loaded: LoadedSettings) -> Iterator[Fault]:
    for entry in loaded.settings.tools:
        try:
            providers = configured_providers(entry, PROVIDERS.get(entry.name, ()), default="")
        except ConfigError:
            continue  # another kind of tool, or reported as such
        for provider, variable in missing_keys(providers, loaded.env):
            fix = f"set `api_key` of the entry, or the variable {variable}"
            yield Fault(f"tools[{entry.name}]", f"{provider.name} has no key: it will refuse requests", fix)


def _skills(loaded: LoadedSettings) -> Iterator[Fault]:
    named = "skills.path" if loaded.settings.skills.path else "DEER_FLOW_SKILLS_PATH"
    is_named = loaded.settings.skills.path or loaded.env.get("DEER_FLOW_SKILLS_PATH")
    if is_named and not loaded.skills_root.is_dir():
        text = f"{loaded.skills_root} is not a folder: there are no skills"
        yield Fault(named, text, "make the folder, or correct the path")
    settings = loaded.settings.skills
    for key, folders in (("paths", settings.paths), ("trusted_projects", settings.trusted_projects)):
        for index, folder in enumerate(folders):
            if not (loaded.project_root / Path(folder).expanduser()).is_dir():
                text = f"{folder} is not a folder: it has no skills"
                yield Fault(f"skills.{key}[{index}]", text, "make the folder, or correct the path")
    for index, catalogue in enumerate(settings.catalogues):
        path = loaded.project_root / Path(catalogue.location).expanduser()
        if catalogue.kind == "folder" and not path.is_dir():
            text = f"{path} is not a folder: nothing is found in it"
            yield Fault(f"skills.catalogues[{index}]", text, "make the folder, or correct the location")
    own = settings.use
    if own is not None and own != _FOLDER_STORAGE:
        yield Fault("skills.use", f"{own} is not used: skills are read from folders", "take it out")


def _other_programs(loaded: LoadedSettings) -> Iterator[Fault]:
    servers = [name for name, server in loaded.extensions.mcp_servers.items() if server.enabled]
    if servers and (hint := missing_for_mcp()):
        yield Fault("mcpServers", f"no MCP server is used: a package is missing ({', '.join(servers)})", hint)
    agents = loaded.settings.acp_agents
    if agents and (hint := missing_for_acp()):
        yield Fault("acp_agents", f"no agent is used: a package is missing ({', '.join(agents)})", hint)
    for name, agent in agents.items():
        path = agent.env.get("PATH") or loaded.env.get("PATH")
        if shutil.which(agent.command, path=path) is None:
            text = f"there is no program {agent.command!r}"
            yield Fault(f"acp_agents.{name}", text, "install it, or correct `command`")
