"""Locates the settings files and data folders, and merges `.env` with the environment.

`os.environ` is not changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from dotenv import dotenv_values
from dotenv.variables import parse_variables

from deerflow.config.yaml_file import read_text
from deerflow.domain import ThreadFolders, folder_name
from deerflow.errors import ConfigError

CONFIG_NAME = "config.yaml"
EXTENSIONS_NAMES = ("extensions_config.json", "mcp_config.json")
SKILL_STATES_NAME = "skills_state_config.json"
HOME_NAME = ".deer-flow"

VARIABLES = {
    "DEER_FLOW_CONFIG_PATH": "Path of the settings file. Absent: `config.yaml` in the current folder or "
    "its parent.",
    "DEER_FLOW_EXTENSIONS_CONFIG_PATH": "Path of the extensions file. Absent: `extensions_config.json` in "
    "the project.",
    "DEER_FLOW_PROJECT_ROOT": "Folder of the project, with `config.yaml`, `.env`, `skills/` and the home. "
    "Absent: the folder of `config.yaml`, or the current one.",
    "DEER_FLOW_HOME": "Folder of threads, files and the database. Absent: `.deer-flow` in the project.",
    "DEER_FLOW_SKILLS_PATH": "Folder of skills if `skills.path` is absent. Absent: `skills/`.",
    "DEER_FLOW_AUTH_DISABLED": "Set to 1 to serve addresses other than loopback without sign-in; ignored in "
    "production.",
    "DEER_FLOW_ENV": "`production` for a public server; also `ENVIRONMENT`.",
    "DEER_FLOW_MCP_STDIO_COMMAND_ALLOWLIST": "Comma-separated programs, besides `npx` and `uvx`, that may be "
    "set as the `command` of an MCP server over HTTP with `mcp.allow_http_commands`.",
    "GATEWAY_HOST": "With `deerflow serve`: the address to listen on. Absent: 127.0.0.1.",
    "GATEWAY_PORT": "With `deerflow serve`: the port to listen on. Absent: 2026.",
    "GATEWAY_CORS_ORIGINS": "Comma-separated origins of other pages that may use the API.",
    "GATEWAY_TRUSTED_PROXIES": "Addresses or networks of reverse proxies, comma-separated, whose "
    "`X-Forwarded-Host` names the page that writes. List only proxies that set this header themselves and "
    "answer for their own names only. Absent: none; names of this machine are accepted from every client.",
    "GATEWAY_ENABLE_DOCS": "Set to false to hide the API's own pages at `/docs`.",
    "DEER_FLOW_SANDBOX_HOST": "With `aio`: where published ports of containers are reached.",
    "DEER_FLOW_SANDBOX_BIND_HOST": "With `aio`: the address that containers' ports are published on.",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "Where spans go, if anywhere; OpenTelemetry's other variables for "
    "headers, the service's name and resources are read too.",
    "LANGSMITH_TRACING": "Set to true to send conversations to LangSmith, with `LANGSMITH_API_KEY`, "
    "`LANGSMITH_PROJECT` and `LANGSMITH_ENDPOINT`; the older names with `LANGCHAIN_` count too.",
    "LANGFUSE_TRACING": "Set to true to send conversations to Langfuse, with `LANGFUSE_PUBLIC_KEY`, "
    "`LANGFUSE_SECRET_KEY` and `LANGFUSE_BASE_URL`.",
    "HOST": "With `make run`: the address to listen on. Absent: 127.0.0.1.",
    "PORT": "With `make run`: the port to listen on. Absent: 2026.",
}
"""The variables that DeerFlow itself reads, for the reference; `$VAR` in a file can read any variable."""


@dataclass(frozen=True, slots=True)
class SettingsFiles:
    """Locations of the settings files and folders, and the merged environment."""

    project_root: Path
    home: Path
    config: Path | None
    extensions: Path | None
    watched: tuple[Path, ...]
    """Every file whose change or creation would change the settings."""
    env: Mapping[str, str] = field(repr=False)

    @property
    def new_extensions(self) -> Path:
        """The path of the extensions file; it may not exist."""
        return self.extensions or self.project_root / EXTENSIONS_NAMES[0]

    @property
    def skill_states(self) -> Path:
        """The file in which older guides enable and disable skills; it may not exist."""
        return self.project_root / SKILL_STATES_NAME

    def skills(self, configured: str | None) -> Path:
        """Return the folder of skills; `configured` is the value of `skills.path`."""
        named = configured or self.env.get("DEER_FLOW_SKILLS_PATH") or "skills"
        return self.project_root / Path(named).expanduser()

    def data(self, configured: str | None) -> Path:
        """Return the folder of the database; `configured` is the value of `database.sqlite_dir`."""
        # DeerFlow 2's files state the default explicitly; it is relative to the actual home directory.
        if not configured or Path(configured) == Path(HOME_NAME, "data"):
            return self.home / "data"
        return self.project_root / Path(configured).expanduser()


def find_settings_files(path: Path | None, *, env: Mapping[str, str], cwd: Path) -> SettingsFiles:
    """Locate the files: an explicit path, else the environment, else `cwd`, else its parent folder."""
    configs = _config_candidates(path, env, cwd)
    config = _first_file(configs)
    root = _project_root(config, env, cwd)
    merged = {**_read_dotenv(root / ".env", env), **env}
    if path is None and "DEER_FLOW_CONFIG_PATH" not in env and "DEER_FLOW_CONFIG_PATH" in merged:
        configs = _config_candidates(path, merged, root)
        config = _first_file(configs)
    extensions = _extensions_candidates(merged, root, cwd)
    home = merged.get("DEER_FLOW_HOME")
    return SettingsFiles(
        project_root=root,
        home=cwd / Path(home).expanduser() if home else root / HOME_NAME,
        config=config,
        extensions=_first_file(extensions),
        watched=(*configs, *extensions, root / SKILL_STATES_NAME, root / ".env"),
        env=merged,
    )


def _config_candidates(path: Path | None, env: Mapping[str, str], cwd: Path) -> list[Path]:
    if path is not None:
        chosen = cwd / path.expanduser()
        if not chosen.exists():
            raise ConfigError(f"{chosen} does not exist")
        return [chosen]
    if named := _named(env, "DEER_FLOW_CONFIG_PATH", cwd):
        return [named]
    root = env.get("DEER_FLOW_PROJECT_ROOT")
    folders = [cwd / Path(root).expanduser()] if root else []
    return [folder / CONFIG_NAME for folder in (*folders, cwd, cwd.parent)]


def _extensions_candidates(env: Mapping[str, str], root: Path, cwd: Path) -> list[Path]:
    if named := _named(env, "DEER_FLOW_EXTENSIONS_CONFIG_PATH", cwd):
        return [named]
    return [folder / name for folder in (root, cwd, cwd.parent) for name in EXTENSIONS_NAMES]


def _project_root(config: Path | None, env: Mapping[str, str], cwd: Path) -> Path:
    if root := env.get("DEER_FLOW_PROJECT_ROOT"):
        return cwd / Path(root).expanduser()
    return config.parent if config else cwd


def _named(env: Mapping[str, str], variable: str, base: Path) -> Path | None:
    named = env.get(variable)
    if not named:
        return None
    path = base / Path(named).expanduser()
    if not path.exists():
        raise ConfigError(f"{variable} names {path}, which does not exist; correct it or unset it")
    return path


def _first_file(candidates: list[Path]) -> Path | None:
    # A dangling link counts: reading it raises a clear error, defaults would hide the problem.
    return next((path for path in candidates if path.exists() or path.is_symlink()), None)


def _read_dotenv(path: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables in `.env`; `${NAME}` in it refers to the environment and to earlier lines."""
    if not path.is_file():
        return {}
    values: dict[str, str] = {}
    for name, text in dotenv_values(stream=StringIO(read_text(path)), interpolate=False).items():
        known = {**values, **env}
        values[name] = "".join(atom.resolve(known) for atom in parse_variables(text or ""))
    return values


@dataclass(frozen=True, slots=True)
class Paths:
    """The folders of one DeerFlow home directory."""

    home: Path
    users_root: Path | None = None
    """Folder of users' threads if not under `home` (a server run by root whose home others cannot enter)."""
    data_root: Path | None = None
    """Folder of the database if not under `home` (`database.sqlite_dir`)."""

    @property
    def data(self) -> Path:
        return self.data_root or self.home / "data"

    @property
    def database(self) -> Path:
        return self.data / "deerflow.db"

    @property
    def users(self) -> Path:
        return self.users_root or self.home / "users"

    def agents(self, user_id: str) -> Path:
        """Return the folder of a user's custom agents; it may not exist."""
        return self.thread(user_id, "-").root.parents[1] / "agents"

    def skills(self, user_id: str) -> Path:
        """Return the folder of a user's custom skills; it may not exist."""
        return self.thread(user_id, "-").root.parents[1] / "skills" / "custom"

    def thread(self, user_id: str, thread_id: str) -> ThreadFolders:
        """Return the folders of one thread; they may not exist."""
        return ThreadFolders(thread_id, self.users / folder_name(user_id) / "threads" / thread_id)
