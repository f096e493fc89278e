"""Files of settings: read, or refused by a `ConfigError` that says where."""

import json
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from fuzz.inputs import json_values, texts
from hypothesis import example, given
from hypothesis import strategies as st

from deerflow.config import Settings
from deerflow.config.extensions_file import parse_json
from deerflow.config.load import load_settings
from deerflow.config.yaml_file import parse_yaml
from deerflow.errors import ConfigError
from deerflow.observability.logs import secrets_of

SECTIONS = st.sampled_from(sorted(Settings.model_fields))
KEYS = st.sampled_from(
    sorted(
        {
            key
            for field in Settings.model_fields.values()
            for key in getattr(field.annotation, "model_fields", {})
        }
    )
)
VALUES = st.one_of(
    json_values,
    st.sampled_from(("$HOME", "$NOBODY_SET_IT", "${X}", "http://u:p@127.0.0.1/", "1:" * 200 + "1.5")),
)
SETTINGS = st.dictionaries(
    st.one_of(SECTIONS, texts),
    st.one_of(
        VALUES,
        st.dictionaries(st.one_of(KEYS, texts), VALUES, max_size=4),
        st.lists(st.dictionaries(KEYS, VALUES, max_size=3), max_size=2),
    ),
    max_size=4,
)
EXTENSIONS = st.fixed_dictionaries(
    {},
    optional={
        "mcpServers": st.one_of(
            json_values,
            st.dictionaries(
                texts,
                st.dictionaries(
                    st.sampled_from(("command", "args", "url", "env", "headers", "enabled", "type", "oauth")),
                    VALUES,
                ),
                max_size=2,
            ),
        ),
        "skills": json_values,
        "middlewares": json_values,
    },
)
PIECES = st.sampled_from(
    (
        *(
            "models:\n",
            "  - name: a\n",
            "&a ",
            "*a",
            "- ",
            "{",
            "}",
            "[",
            "]",
            "'",
            '"',
            "|\n",
            ">\n",
            ": ",
            "? ",
            "!!bool x\n",
        ),
        *(
            "!!int x\n",
            "!!timestamp x\n",
            "!!float .\n",
            "!x y\n",
            "<<: *a\n",
            "<<: 1\n",
            "\t",
            "---\n",
            "...\n",
            "%YAML 9.9\n",
            "\x00",
        ),
        *("a: 1\n", "a: 2\n", "0x\n", "9" * 5000 + "\n", "1:" * 200 + "1.5\n", "\ufeff", "\u2028", "#"),
    )
)
FILES = st.one_of(texts, st.lists(PIECES, max_size=12).map("".join), SETTINGS.map(yaml.safe_dump))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config")


@example("a: " + "1:" * 200 + "1.5").via("a number of base 60 that no float holds")
@example("a: !!bool maybe").via("a word that is none of the tag's")
@given(FILES)
def test_a_text_is_read_or_refused(text: str) -> None:
    started = time.process_time()
    for parse in (parse_yaml, lambda found: parse_json(found, None)):
        with suppress(ConfigError):
            parse(text)

    assert time.process_time() - started < 2


@given(FILES, EXTENSIONS)
def test_settings_are_loaded_or_refused(home: Path, text: str, extensions: object) -> None:
    (home / "config.yaml").write_bytes(text.encode(errors="surrogatepass"))
    (home / "extensions_config.json").write_text(json.dumps(extensions))
    try:
        loaded = load_settings(home / "config.yaml", env={"HOME": str(home)}, cwd=home)
    except ConfigError:
        return

    assert isinstance(loaded.settings, Settings)
    assert all(map(str, loaded.warnings))
    assert all(isinstance(secret, str) for secret in secrets_of(loaded))
