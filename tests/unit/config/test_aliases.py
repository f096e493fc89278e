"""What `use:` strings lead to."""

import sys
from collections import OrderedDict
from pathlib import Path

import pytest

from deerflow.config import canonical_use, resolve_use
from deerflow.errors import ConfigError


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("deerflow.sandbox.local:LocalSandboxProvider", "local"),
        ("deerflow.community.aio_sandbox:AioSandboxProvider", "aio"),
        ("deerflow.sandbox.tools:bash_tool", "deerflow.tools.shell:bash_tool"),
        ("deerflow.sandbox.tools:str_replace_tool", "deerflow.tools.files:str_replace_tool"),
        (
            "deerflow.models.patched_deepseek:PatchedChatDeepSeek",
            "deerflow.models.compatible:CompatibleChatOpenAI",
        ),
        ("deerflow.models.vllm_provider:VllmChatModel", "deerflow.models.compatible:CompatibleChatOpenAI"),
        ("deerflow.models.claude_provider:ClaudeChatModel", "langchain_anthropic:ChatAnthropic"),
        ("langchain_openai:ChatOpenAI", "langchain_openai:ChatOpenAI"),
        (" isolated ", "isolated"),
    ],
)
def test_strings_of_deerflow_2_mean_ours(theirs: str, ours: str) -> None:
    assert canonical_use(theirs) == ours


def test_an_object_is_imported() -> None:
    assert resolve_use("collections:OrderedDict") is OrderedDict
    assert resolve_use("collections:OrderedDict.fromkeys") == OrderedDict.fromkeys


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ("", "is not of the form"),
        ("nothing", "is not of the form"),
        ("a:b:c", "is not of the form"),
        ("../etc:x", "is not of the form"),
        ("os:system('id')", "is not of the form"),
        ("collections:Missing", "collections has no Missing"),
        ("collections.missing:X", "there is no module collections.missing$"),
        (
            "no_such_package_here:X",
            "needs the package no_such_package_here, .* pip install .*no-such-package-here .*PYTHONPATH",
        ),
        (
            "deerflow.community.browserless.tools:web_capture_tool",
            "of DeerFlow 2, and this version does not have it$",
        ),
        ("deerflow.nothing:x", "is not part of this DeerFlow"),
    ],
)
def test_what_cannot_be_used_is_said(use: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve_use(use)


def test_a_module_that_breaks_on_import_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_syntax_module.py").write_text("def (")
    (tmp_path / "broken_import_module.py").write_text("from collections import nothing_like_that")
    monkeypatch.syspath_prepend(tmp_path)

    for name in ("broken_syntax_module", "broken_import_module"):
        with pytest.raises(ConfigError, match="cannot be imported"):
            resolve_use(f"{name}:X")
        assert name not in sys.modules
