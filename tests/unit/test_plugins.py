"""Plug-ins come from installed packages; a broken one costs only itself."""

from pathlib import Path

import pytest

from deerflow.agents.plugin_middlewares import load_middlewares
from deerflow.app.configured import faults_of, summary
from deerflow.cli import doctor
from deerflow.config import ModelSettings, SandboxSettings, SettingsSource
from deerflow.errors import ConfigError
from deerflow.models import ModelFactory
from deerflow.models.compatible import CompatibleChatOpenAI
from deerflow.plugins import PluginError, broken_plugins, find_plugins, load_plugins
from deerflow.sandbox import create_sandbox_provider
from deerflow.tools import get_available_tools

GROUP = "deerflow.sandboxes"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that Python searches for packages."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def install(site: Path, package: str, entries: dict[str, str], code: str, group: str = GROUP) -> None:
    """Install a package of one module with entry points."""
    module = package.replace("-", "_")
    (site / f"{module}.py").write_text(code)
    about = site / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {target}\n" for name, target in entries.items())
    (about / "entry_points.txt").write_text(f"[{group}]\n{lines}")


def test_our_own_sandboxes_are_plug_ins() -> None:
    assert {name: plugin.package for name, plugin in find_plugins(GROUP).items()} == dict.fromkeys(
        ("aio", "isolated", "landlock", "local"), "deerflow"
    )


def test_an_installed_sandbox_is_chosen_by_its_name(site: Path) -> None:
    code = "from deerflow.sandbox.local import LocalSandboxProvider as L\nclass Mine(L):\n tier = 'mine'\n"
    install(site, "plug-one", {"mine": "plug_one:Mine"}, code)

    assert create_sandbox_provider(SandboxSettings(use="mine")).tier == "mine"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_package\n", "the package no_such_package is missing"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("def f(:\n", "SyntaxError"),
        ("", "has no attribute 'Mine'"),
    ],
)
def test_a_broken_plug_in_costs_only_itself(site: Path, code: str, reason: str) -> None:
    install(site, "plug-two", {"broken": "plug_two:Mine"}, code)

    loaded = load_plugins(GROUP)

    assert isinstance(loaded["broken"], PluginError)
    assert reason in str(loaded["broken"])
    assert "plug-two" in str(loaded["broken"])
    assert not any(isinstance(found, PluginError) for name, found in loaded.items() if name != "broken")
    with pytest.raises(ConfigError, match="plug-two"):
        create_sandbox_provider(SandboxSettings(use="broken"))
    assert create_sandbox_provider(SandboxSettings(use="local")).tier == "local"


def test_no_package_takes_the_name_of_ours(site: Path) -> None:
    install(site, "aaa-plug", {"isolated": "aaa_plug:Mine"}, "Mine = object\n")

    assert find_plugins(GROUP)["isolated"].package == "deerflow"
    [(plugin, error)] = broken_plugins()
    assert plugin.package == "aaa-plug"
    assert "deerflow has one of the same name" in str(error)


async def test_doctor_names_a_broken_plug_in(site: Path, tmp_path: Path) -> None:
    install(site, "plug-three", {"broken": "plug_three:Mine"}, "1 / 0\n")
    config = tmp_path / "config.yaml"
    config.write_text("sandbox: {use: local}\n")

    found = [finding for finding in await doctor.examine(config) if finding.subject == "plug-ins"]

    assert [finding.verdict for finding in found] == [doctor.Verdict.BAD]
    assert "'broken' of plug-three" in found[0].text
    assert "uninstall plug-three" in found[0].fix


async def test_an_installed_tool_is_offered_by_its_name_and_a_broken_one_is_named(
    site: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = (
        "from langchain_core.tools import tool\n@tool\ndef weather() -> str:\n  'Say it.'\n  return 'rain'\n"
    )
    install(site, "plug-weather", {"weather": "plug_weather:weather"}, code, "deerflow.tools")
    install(site, "plug-storm", {"storm": "plug_storm:storm"}, "1 / 0\n", "deerflow.tools")
    config = tmp_path / "config.yaml"
    config.write_text("sandbox: {use: local}\ntools: [{name: weather}, {name: storm}]\n")
    loaded = SettingsSource(config).current()

    offered = [tool.name for tool in get_available_tools(loaded.settings)]
    (fault,) = (fault for fault in faults_of(loaded) if fault.key.startswith("tools["))
    findings = [f"{finding.subject} {finding.text}" for finding in await doctor.examine(config)]

    assert "weather" in offered
    assert "storm" not in offered
    assert "bash" in offered
    assert (fault.key, "plug-storm" in fault.text) == ("tools[storm]", True)
    assert sum("plug-storm" in finding for finding in findings) == 2  # the entry, and the plug-in
    assert "tools[storm]" in summary([fault])


async def test_an_installed_model_is_used_by_its_name_and_a_broken_one_is_named(
    site: Path, tmp_path: Path
) -> None:
    code = (
        "from deerflow.models.offline import OfflineChatModel as O\nclass Mine(O):\n  model_name: str = 'x'\n"
    )
    install(site, "plug-model", {"mine": "plug_model:Mine"}, code, "deerflow.models")
    install(site, "plug-ruin", {"ruin": "plug_ruin:Mine"}, "1 / 0\n", "deerflow.models")
    models = [ModelSettings(name=name, use=name, model="m") for name in ("mine", "ruin", "offline", "none")]
    factory = ModelFactory(models, env={})

    assert type(factory.create("mine")).__name__ == "Mine"
    assert type(factory.create("offline")).__name__ == "OfflineChatModel"
    for name, words in (("ruin", "plug-ruin"), ("none", "'none' is unknown; use one of anthropic, google")):
        with pytest.raises(ConfigError, match=words):
            factory.create(name)


def test_a_plug_in_gets_the_defaults_of_its_class() -> None:
    factory = ModelFactory(
        [ModelSettings(name="o", use="openai", model="m")],
        env={"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"},
    )

    model = factory.create("o")

    assert isinstance(model, CompatibleChatOpenAI)
    assert model.openai_api_base == "http://127.0.0.1:9/v1"


MIDDLEWARE = "from langchain.agents.middleware import AgentMiddleware as A\n"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("class Mine: ...\n", "is not a subclass of langchain.agents.middleware.AgentMiddleware"),
        ("class Mine(A):\n def __init__(self, limit): ...\n", "missing 1 required positional argument"),
        ("class Mine(A):\n def wrap_tool_call(self, r, h): ...\n", "add awrap_tool_call"),
        ("class TodoMiddleware(A): ...\nMine = TodoMiddleware\n", "another middleware called TodoMiddleware"),
    ],
)
async def test_a_middleware_that_cannot_be_used_costs_only_itself(
    site: Path, tmp_path: Path, code: str, reason: str
) -> None:
    module = f"own_{abs(hash(code))}"
    install(site, module, {"mine": f"{module}:Mine"}, f"{MIDDLEWARE}{code}", group="deerflow.middlewares")
    (site / f"good_{module}.py").write_text(f"{MIDDLEWARE}class Good(A): ...\n")
    config = tmp_path / "config.yaml"
    config.write_text("sandbox: {use: local}\n")

    loaded, [fault] = load_middlewares([f"good_{module}:Good"])

    assert [type(middleware).__name__ for middleware in loaded] == ["Good"]
    assert f"'mine' of {module}" in fault.text
    assert reason in fault.text
    named = [finding.text for finding in await doctor.examine(config) if module in finding.text]
    assert named == [fault.text]
