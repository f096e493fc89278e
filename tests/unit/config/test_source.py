"""Edits count from the next run; broken ones keep the last good settings."""

import os
import threading
from pathlib import Path

import pytest
from support.project import Project

from deerflow.config import SettingsSource, load_settings
from deerflow.errors import ConfigError


def age(path: Path, seconds: int = 100) -> None:
    """Make a file look as if it had been written a while ago."""
    stamp = path.stat().st_mtime_ns - seconds * 1_000_000_000
    os.utime(path, ns=(stamp, stamp))


def test_unchanged_files_give_the_same_object(project: Project) -> None:
    project.write("log_level: debug")
    source = project.source()

    assert source.current() is source.current()
    assert source.current().settings.log_level == "debug"


def test_an_edit_is_seen_by_the_next_call(project: Project) -> None:
    project.write("title: {max_words: 3}")
    source = project.source()
    source.current()

    project.write("title: {max_words: 4}")

    assert source.current().settings.title.max_words == 4
    assert source.problem is None


def test_edits_of_equal_size_and_time_are_seen(project: Project) -> None:
    path = project.write("title: {max_words: 3}")
    source = project.source()
    before = path.stat()

    project.write("title: {max_words: 5}")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert source.current().settings.title.max_words == 5


def test_touching_a_file_changes_nothing(project: Project) -> None:
    path = project.write("log_level: debug")
    source = project.source()
    before = source.current()

    age(path)

    assert source.current() is before


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("title: [", "config.yaml line"),
        ("title: {max_words: 0}", "title.max_words is 0"),
        ("", "is empty"),
        ("database: {postgres_url: $NOT_SET}", "NOT_SET"),
        ("a: 1\na: 2", "second time"),
    ],
)
def test_a_broken_edit_keeps_the_last_good_settings_until_it_is_mended(
    project: Project, broken: str, said: str
) -> None:
    project.write("title: {max_words: 3}")
    source = project.source()
    good = source.current()

    project.write(broken)

    assert source.current() is good
    assert source.current() is good
    assert source.problem is not None
    assert said in source.problem
    assert "the last good settings stay in force" in source.problem

    project.write("title: {max_words: 4}")

    assert source.current().settings.title.max_words == 4
    assert source.problem is None


def test_putting_the_old_text_back_mends_it(project: Project) -> None:
    project.write("title: {max_words: 3}")
    source = project.source()
    project.write("title: [")
    source.current()

    project.write("title: {max_words: 3}")

    assert source.current().settings.title.max_words == 3
    assert source.problem is None


def test_a_file_that_vanishes_is_a_problem_not_a_wish_for_defaults(project: Project) -> None:
    path = project.write("title: {max_words: 3}")
    source = project.source()

    path.unlink()

    assert source.current().settings.title.max_words == 3
    assert "is gone" in (source.problem or "")


def test_an_explicit_file_that_vanishes_is_a_problem_too(project: Project) -> None:
    path = project.write("title: {max_words: 3}")
    source = SettingsSource(path, env={}, cwd=project.root)

    path.unlink()

    assert source.current().settings.title.max_words == 3
    assert "does not exist" in (source.problem or "")


def test_a_file_that_becomes_a_pipe_or_huge_is_a_problem(project: Project) -> None:
    path = project.write("title: {max_words: 3}")
    source = project.source()

    path.unlink()
    os.mkfifo(path)
    assert source.current().settings.title.max_words == 3
    assert "is not a regular file" in (source.problem or "")

    path.unlink()
    with path.open("wb") as file:
        file.truncate(10_000_000_000)
    assert source.current().settings.title.max_words == 3
    assert "larger than 5 MB" in (source.problem or "")


def test_a_file_that_appears_is_read(project: Project) -> None:
    source = project.source()
    assert source.current().source_path is None

    project.write("title: {max_words: 3}")

    assert source.current().settings.title.max_words == 3


def test_edits_of_dotenv_and_extensions_count_too(project: Project) -> None:
    project.write("models: [{name: a, use: 'x:Y', model: m, api_key: $KEY}]")
    source = project.source()
    assert [problem.key for problem in source.current().problems] == ["models[0]"]

    project.write("KEY=k\n", ".env")
    assert source.current().settings.models[0].extra_keys == {"api_key": "k"}

    source.save_extensions({"skills": {"s": {"enabled": False}}})
    assert source.current().extensions.skills["s"].enabled is False


def test_a_start_with_broken_settings_is_refused(project: Project) -> None:
    project.write("title: {max_words: 0}")

    with pytest.raises(ConfigError, match=r"title\.max_words is 0"):
        project.source()


def test_sections_that_need_a_restart_are_named(project: Project) -> None:
    project.write("database: {backend: sqlite}\ntitle: {max_words: 3}")
    source = project.source()
    assert source.restart_needed == ()

    project.write("database: {backend: memory}\ntitle: {max_words: 4}")
    source.current()

    assert source.restart_needed == ("database",)


def test_a_save_by_rename_is_seen(project: Project) -> None:
    project.write("title: {max_words: 3}")
    source = project.source()

    project.write("title: {max_words: 4}", "config.yaml.tmp").replace(project.config)

    assert source.current().settings.title.max_words == 4


def test_many_readers_during_many_edits_see_only_whole_settings(project: Project) -> None:
    def text(words: int) -> str:
        return f"title: {{max_words: {words}}}\nsubagents: {{max_running: {words}}}\n"

    project.write(text(1))
    source = project.source()
    torn: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            settings = source.current().settings
            if settings.title.max_words != settings.subagents.max_running:
                torn.append(settings)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for thread in readers:
        thread.start()
    for words in range(2, 20):
        project.write(text(words), "new.yaml").replace(project.config)
    done.set()
    for thread in readers:
        thread.join()

    assert torn == []
    assert source.current().settings.title.max_words == 19
    assert source.current().settings == load_settings(env={}, cwd=project.root).settings
