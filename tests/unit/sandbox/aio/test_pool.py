"""How containers are shared, kept warm, found again, limited and stopped."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from support.waiting import until

from deerflow.config import LimitSettings, MountSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import ConfigError, SandboxError, SandboxUnavailableError
from deerflow.sandbox import PathMapping, Sandbox, remove_tree

from .conftest import Engine, MakeProvider

Threads = Callable[[str], ThreadFolders]


def name_of(thread_id: str) -> str:
    return f"deer-flow-sandbox-{hashlib.sha256(f'ann:{thread_id}'.encode()).hexdigest()[:16]}"


async def say(sandbox: Sandbox, command: str) -> str:
    return (await sandbox.execute_command(command, timeout=60)).output


async def none_left(sandbox: Sandbox, pattern: str) -> str:
    """Return how many such processes are left, once those have gone that were told to."""
    count = f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '{pattern}'"
    return await say(
        sandbox, f"for i in $(seq 300); do [ $({count}) = 0 ] && break; sleep 0.1; done; {count}"
    )


async def test_files_need_no_container(make_provider: MakeProvider, engine: Engine, thread: Threads) -> None:
    async with make_provider().acquire(thread("t1")) as sandbox:
        await sandbox.write_file("a.txt", "a")
        assert await sandbox.read_file("a.txt") == "a"

    assert engine.names == []


async def test_a_thread_keeps_its_container_between_runs(
    make_provider: MakeProvider, engine: Engine, thread: Threads
) -> None:
    provider = make_provider()
    async with provider.acquire(thread("t1")) as sandbox:
        await say(sandbox, "export MOOD=good; touch /tmp/kept")

    async with provider.acquire(thread("t1")) as sandbox:
        assert await say(sandbox, "echo $MOOD; ls /tmp/kept") == "good\n/tmp/kept\n"

    assert engine.names == [name_of("t1")]


async def test_a_recreated_thread_has_a_container_of_its_own(
    make_provider: MakeProvider, thread: Threads
) -> None:
    provider = make_provider()
    async with provider.acquire(thread("t1")) as sandbox:
        await say(sandbox, "echo old > a.txt; touch /tmp/kept")
    remove_tree(thread("t1").root)

    async with provider.acquire(thread("t1")) as sandbox:
        await sandbox.write_file("b.txt", "new")
        assert (
            await say(sandbox, "cat b.txt; ls /tmp/kept >/dev/null 2>&1 || echo gone; echo c > c.txt")
            == "newgone\n"
        )
        assert await sandbox.list_dir("/mnt/user-data/workspace") == [
            f"/mnt/user-data/workspace/{name}" for name in ("b.txt", "c.txt")
        ]


async def test_threads_have_containers_of_their_own(
    make_provider: MakeProvider, engine: Engine, thread: Threads
) -> None:
    provider = make_provider()

    async with provider.acquire(thread("t1")) as one, provider.acquire(thread("t2")) as two:
        await asyncio.gather(say(one, "echo 1 > mine"), say(two, "echo 2 > mine"))

        assert [await say(one, "cat mine"), await say(two, "cat mine")] == ["1\n", "2\n"]

    assert engine.names == sorted([name_of("t1"), name_of("t2")])


async def test_another_process_finds_the_container(
    make_provider: MakeProvider, engine: Engine, thread: Threads
) -> None:
    first, second = make_provider(), make_provider()

    async with first.acquire(thread("t1")) as one, second.acquire(thread("t1")) as two:
        outputs = await asyncio.gather(say(one, "touch /tmp/met"), say(two, "true"))
        assert outputs == ["", ""]
        assert await say(two, "ls /tmp/met") == "/tmp/met\n"

    assert engine.names == [name_of("t1")]


async def test_closing_spares_a_container_that_another_process_uses(
    make_provider: MakeProvider, engine: Engine, thread: Threads
) -> None:
    first, second = make_provider(), make_provider()
    async with second.acquire(thread("t1")) as two:
        await say(two, "true")
        async with first.acquire(thread("t1")) as one:
            await say(one, "true")

        await first.aclose()

        assert await say(two, "echo alive") == "alive\n"
    await second.aclose()
    assert engine.names == []


async def test_an_idle_container_is_stopped(
    make_provider: MakeProvider, engine: Engine, thread: Threads
) -> None:
    provider = make_provider(idle_timeout=0.2)
    async with provider.acquire(thread("t1")) as sandbox:
        await say(sandbox, "sleep 0.5")
        assert engine.names == [name_of("t1")]

    await until(lambda: engine.names == [])


async def test_what_a_dead_process_left_behind_is_taken_in_and_stopped(
    make_provider: MakeProvider, engine: Engine, thread: Threads
) -> None:
    dead = make_provider()
    async with dead.acquire(thread("old")) as sandbox:
        await say(sandbox, "true")

    provider = make_provider(idle_timeout=0.3)
    async with provider.acquire(thread("new")) as sandbox:
        await say(sandbox, "true")
        await until(lambda: engine.names == [name_of("new")])


async def test_the_longest_unused_container_is_evicted(
    make_provider: MakeProvider, engine: Engine, thread: Threads
) -> None:
    provider = make_provider(replicas=2)
    for name in ("t1", "t2", "t1", "t3"):
        async with provider.acquire(thread(name)) as sandbox:
            await say(sandbox, "true")

    assert engine.names == sorted([name_of("t1"), name_of("t3")])


async def test_when_all_are_taken_the_next_waits_for_one(
    make_provider: MakeProvider, engine: Engine, thread: Threads
) -> None:
    provider = make_provider(replicas=1)
    async with provider.acquire(thread("t2")) as second:
        async with provider.acquire(thread("t1")) as first:
            await say(first, "true")
            waiting = asyncio.create_task(say(second, "echo mine"))
            await asyncio.sleep(0.2)
            assert not waiting.done()

        assert await waiting == "mine\n"
    assert engine.names == [name_of("t2")]


@pytest.mark.parametrize("policy", [{"overflow_policy": "reject"}, {"acquire_timeout": 0.1}])
async def test_a_full_pool_is_reported(
    make_provider: MakeProvider, thread: Threads, policy: dict[str, object]
) -> None:
    provider = make_provider(replicas=1, **policy)

    async with provider.acquire(thread("t1")) as first, provider.acquire(thread("t2")) as second:
        await say(first, "true")
        with pytest.raises(SandboxUnavailableError, match=r"All 1 .* raise sandbox\.replicas"):
            await say(second, "true")


async def test_a_burst_goes_beyond_up_to_its_limit(
    make_provider: MakeProvider, engine: Engine, thread: Threads
) -> None:
    provider = make_provider(replicas=1, overflow_policy="burst", burst_limit=1)

    async with (
        provider.acquire(thread("t1")) as first,
        provider.acquire(thread("t2")) as second,
        provider.acquire(thread("t3")) as third,
    ):
        await say(first, "true")
        await say(second, "true")
        with pytest.raises(SandboxUnavailableError):
            await say(third, "true")

    assert len(engine.names) == 2


async def test_a_container_that_died_is_replaced(
    make_provider: MakeProvider, engine: Engine, thread: Threads
) -> None:
    async with make_provider().acquire(thread("t1")) as sandbox:
        await say(sandbox, "echo here > kept.txt")
        engine.crash(name_of("t1"))

        with pytest.raises(SandboxError, match="run it again"):
            await say(sandbox, "cat kept.txt")

        assert await say(sandbox, "cat kept.txt") == "here\n"


async def test_a_warm_container_that_died_is_noticed_before_its_use(
    make_provider: MakeProvider, engine: Engine, thread: Threads
) -> None:
    provider = make_provider(health_check_skip_seconds=0.0)
    async with provider.acquire(thread("t1")) as sandbox:
        await say(sandbox, "true")
    engine.crash(name_of("t1"))

    async with provider.acquire(thread("t1")) as sandbox:
        assert await say(sandbox, "echo new") == "new\n"


async def test_a_lost_session_is_replaced_by_a_fresh_one(
    make_provider: MakeProvider, engine: Engine, thread: Threads
) -> None:
    async with make_provider().acquire(thread("t1")) as sandbox:
        await say(sandbox, "export MOOD=good")
        url = engine.url(name_of("t1"))
        async with aiohttp.ClientSession() as http:
            sessions = (await (await http.get(f"{url}/v1/bash/sessions")).json())["data"]
            for session in sessions:
                await http.post(f"{url}/v1/bash/sessions/{session['session_id']}/close", json={})

        assert await say(sandbox, "echo $MOOD") == "good\n"


@pytest.mark.parametrize("image", [{}, {"STANDIN_OLD_IMAGE": "1"}])
@pytest.mark.parametrize("has_mounts", [True, False])
async def test_sessions_do_not_pile_up(
    make_provider: MakeProvider, engine: Engine, thread: Threads, image: dict[str, str], has_mounts: bool
) -> None:
    provider = make_provider(environment=image, thread_data_mounts=has_mounts)
    async with provider.acquire(thread("t1")) as sandbox:
        for number in range(3):
            await say(sandbox, f"echo {number} > {number}.txt")
        with pytest.raises(SandboxError, match="still running"):
            await sandbox.execute_command("sleep 30", timeout=0.2)
        await say(sandbox, "true")

        async with aiohttp.ClientSession() as http:
            sessions = (await (await http.get(f"{engine.url(name_of('t1'))}/v1/shell/sessions")).json())[
                "data"
            ]
    assert len(sessions) == 1


async def test_a_stopped_command_leaves_nothing_behind_even_detached(
    make_provider: MakeProvider, thread: Threads
) -> None:
    async with make_provider().acquire(thread("t1")) as sandbox:
        with pytest.raises(SandboxError, match="still running"):
            await sandbox.execute_command(
                "for i in 1 2 3; do (setsid sleep 4321 >/dev/null 2>&1 &) ; done; sleep 60", timeout=1
            )

        left = await none_left(sandbox, "sleep 432[1]")
    assert left == "0\n"


async def test_a_background_process_outlives_its_command(
    make_provider: MakeProvider, thread: Threads
) -> None:
    async with make_provider().acquire(thread("t1")) as sandbox:
        await say(sandbox, "(sleep 1; echo late > late.txt) >/dev/null 2>&1 &")

        assert await say(sandbox, "until [ -s late.txt ]; do sleep 0.1; done; cat late.txt") == "late\n"


async def test_an_image_without_the_bash_api_works_too(make_provider: MakeProvider, thread: Threads) -> None:
    provider = make_provider(environment={"STANDIN_OLD_IMAGE": "1"})

    async with provider.acquire(thread("t1")) as sandbox:
        first = await sandbox.execute_command("export MOOD=good; mkdir d; cd d; echo hi; exit 3", timeout=60)
        assert (first.exit_code, first.output) == (3, "hi\n")
        assert await say(sandbox, "echo $MOOD; basename $PWD") == "good\nd\n"
        with pytest.raises(SandboxError, match="still running"):
            await sandbox.execute_command("sleep 4322", timeout=0.5)
        left = await none_left(sandbox, "sleep 432[2]")
    assert left == "0\n"


async def test_commands_see_variables_mounts_and_skills_but_no_secret_on_the_command_line(
    make_provider: MakeProvider,
    engine: Engine,
    thread: Threads,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: object,
) -> None:
    data = thread("t1").root.parent / "data, with: marks"
    data.mkdir(parents=True)
    (data / "a.txt").write_text("mounted\n")
    monkeypatch.setenv("THE_KEY", "s3cret")
    provider = make_provider(
        environment={"KEY": "$THE_KEY", "PLAIN": "yes"},
        mounts=(MountSettings(host_path=str(data), container_path="/mnt/data", read_only=True),),
        limits=LimitSettings(memory_mb=512, max_processes=64),
    )

    async with provider.acquire(thread("t1")) as sandbox:
        seen = await say(
            sandbox, "echo $KEY $PLAIN; cat /mnt/data/a.txt; touch /mnt/data/b 2>/dev/null || echo read-only"
        )

    assert seen == "s3cret yes\nmounted\nread-only\n"
    about = engine.about(name_of("t1"))
    assert "s3cret" not in " ".join(about["Argv"])
    assert about["HostConfig"] == {"Memory": ["512m"], "PidsLimit": ["64"]}


async def test_a_new_folder_of_skills_is_mounted_for_the_next_run(
    make_provider: MakeProvider, thread: Threads, tmp_path: Path
) -> None:
    mounted = []
    for name in ("public", "custom"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(f"{name}\n")
    provider = make_provider(skills=lambda _: tuple(mounted))
    command = "cat /mnt/skills/*/SKILL.md; touch /mnt/skills/public/new 2>/dev/null || echo read-only"
    seen = []

    for name in ("public", "custom"):
        mounted.append(PathMapping(f"/mnt/skills/{name}", tmp_path / name, read_only=True))
        async with provider.acquire(thread("t1")) as sandbox:
            seen.append(await say(sandbox, command))

    assert seen == ["public\nread-only\n", "custom\npublic\nread-only\n"]


async def test_an_unset_variable_is_named(make_provider: MakeProvider, thread: Threads) -> None:
    provider = make_provider(environment={"KEY": "$NO_SUCH_VARIABLE_HERE"})

    with pytest.raises(ConfigError, match=r"sandbox\.environment\.KEY"):
        async with provider.acquire(thread("t1")):
            pass


async def test_a_container_of_another_installation_is_left_alone(
    make_provider: MakeProvider, engine: Engine, thread: Threads
) -> None:
    async with make_provider().acquire(thread("t1")) as sandbox:
        await say(sandbox, "true")
        folders = thread("t1")
        elsewhere = ThreadFolders(
            "t1", folders.root.parents[3] / "home2" / "users" / "ann" / "threads" / "t1"
        )

        async with make_provider().acquire(elsewhere) as other:
            with pytest.raises(SandboxUnavailableError, match=r"sandbox\.container_prefix"):
                await say(other, "true")

        assert await say(sandbox, "echo alive") == "alive\n"


async def test_taken_ports_are_passed_over(
    make_provider: MakeProvider, engine: Engine, thread: Threads
) -> None:
    taken = await asyncio.start_server(_nothing, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    async with taken, make_provider(port=port).acquire(thread("t1")) as sandbox:
        assert await say(sandbox, "echo hi") == "hi\n"

        assert int(engine.url(name_of("t1")).rpartition(":")[2]) > port


async def _nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_without_an_engine_commands_are_refused_and_files_work(
    make_provider: MakeProvider, thread: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    provider = make_provider()

    async with provider.acquire(thread("t1")) as sandbox:
        await sandbox.write_file("a.txt", "a")
        assert sandbox.refusal is not None
        with pytest.raises(SandboxUnavailableError, match="neither docker nor podman"):
            await say(sandbox, "true")
    tested = await provider.self_test()
    assert not tested.ok
    assert "neither docker nor podman" in (tested.refusal or "")


async def test_two_processes_that_start_at_once_start_one_container(
    make_provider: MakeProvider, engine: Engine, thread: Threads
) -> None:
    providers = [make_provider() for _ in range(4)]

    async def one(index: int) -> str:
        async with providers[index].acquire(thread("t1")) as sandbox:
            return await say(sandbox, f"echo {index}")

    work: list[Awaitable[str]] = [one(index) for index in range(4)]
    assert await asyncio.gather(*work) == ["0\n", "1\n", "2\n", "3\n"]
    assert engine.names == [name_of("t1")]
