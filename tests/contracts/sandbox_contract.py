"""What every sandbox does, whichever place its commands run in."""

import asyncio
import time

import pytest

from deerflow.errors import PathRefusedError, SandboxError, SandboxTimeoutError
from deerflow.sandbox import Sandbox

WORKSPACE = "/mnt/user-data/workspace"
PATIENCE = 60
"""Seconds that a command may take where time is not what is looked at."""
WAIT = "until [ -e go ]; do sleep 0.05; done"
"""What holds a command up until a file is there."""


class SandboxContract:
    """Every sandbox passes these; a subclass supplies the `sandbox` fixture."""

    async def test_runs_a_command(self, sandbox: Sandbox) -> None:
        result = await sandbox.execute_command("echo hello", timeout=PATIENCE)

        assert (result.exit_code, result.output) == (0, "hello\n")

    async def test_reports_a_failing_command(self, sandbox: Sandbox) -> None:
        result = await sandbox.execute_command("echo no >&2; exit 3", timeout=PATIENCE)

        assert (result.exit_code, result.output) == (3, "no\n")

    async def test_stops_a_command_that_outlives_its_timeout(self, sandbox: Sandbox) -> None:
        for timeout in (1, 8, 40):  # longer where it had not even begun
            started = time.monotonic()
            with pytest.raises(SandboxTimeoutError) as caught:
                await sandbox.execute_command("echo begun; sleep 120", timeout=timeout)
            took = time.monotonic() - started
            if caught.value.output:
                break

        assert caught.value.output == "begun\n"
        assert took < timeout + 30

    @pytest.mark.parametrize("timeout", [0, -1, float("nan")])
    async def test_refuses_a_timeout_that_is_none(self, sandbox: Sandbox, timeout: float) -> None:
        with pytest.raises(SandboxError, match="timeout"):
            await sandbox.execute_command("true", timeout=timeout)

    async def test_works_on_after_a_timeout(self, sandbox: Sandbox) -> None:
        with pytest.raises(SandboxTimeoutError):
            await sandbox.execute_command("sleep 30", timeout=0.5)

        assert (await sandbox.execute_command("echo again", timeout=PATIENCE)).output == "again\n"

    async def test_a_cancelled_command_is_gone(self, sandbox: Sandbox) -> None:
        begun = asyncio.Event()
        running = asyncio.create_task(
            sandbox.execute_command(
                f"echo begun; {WAIT}; echo late > late.txt", timeout=PATIENCE, on_output=lambda _: begun.set()
            )
        )
        await begun.wait()

        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        result = await sandbox.execute_command("touch go; sleep 0.7; cat late.txt", timeout=PATIENCE)
        assert "late" not in result.output.replace("late.txt", "")

    async def test_output_arrives_while_the_command_runs(self, sandbox: Sandbox) -> None:
        for seconds in (1, 8, 40):  # longer where the machine had no time to listen meanwhile
            received: list[tuple[float, str]] = []
            await sandbox.execute_command(
                f"echo one; sleep {seconds}; echo two",
                timeout=PATIENCE + seconds,
                on_output=lambda text, received=received: received.append((time.monotonic(), text)),
            )
            early = time.monotonic() - received[0][0]
            if early > seconds / 2:
                break

        assert early > seconds / 2
        assert received[0][1] == "one\n"
        assert "".join(text for _, text in received) == "one\ntwo\n"

    async def test_long_output_is_cut_in_the_middle(self, sandbox: Sandbox) -> None:
        result = await sandbox.execute_command("echo first; seq 1 100000; echo last", timeout=PATIENCE)

        assert result.output.startswith("first\n1\n")
        assert result.output.endswith("100000\nlast\n")
        assert "left out]" in result.output
        assert len(result.output) < 25_000

    async def test_commands_share_files_with_the_file_tools(self, sandbox: Sandbox) -> None:
        await sandbox.write_file("notes/a.txt", "written\n")

        result = await sandbox.execute_command(
            f"cat {WORKSPACE}/notes/a.txt; echo changed > {WORKSPACE}/notes/a.txt; "
            "echo new > /mnt/user-data/outputs/b.txt",
            timeout=PATIENCE,
        )

        assert result.output == "written\n"
        assert await sandbox.read_file(f"{WORKSPACE}/notes/a.txt") == "changed\n"
        assert await sandbox.read_file("/mnt/user-data/outputs/b.txt") == "new\n"

    async def test_commands_start_in_the_workspace(self, sandbox: Sandbox) -> None:
        assert (await sandbox.execute_command("pwd", timeout=PATIENCE)).output == f"{WORKSPACE}\n"

    async def test_the_working_directory_and_exports_carry_over(self, sandbox: Sandbox) -> None:
        await sandbox.execute_command(
            "mkdir -p deep && cd deep && export MOOD='good; \"day\"'", timeout=PATIENCE
        )

        result = await sandbox.execute_command('pwd; echo "$MOOD"', timeout=PATIENCE)

        assert result.output == f'{WORKSPACE}/deep\ngood; "day"\n'

    async def test_variables_of_one_command_do_not_carry_over(self, sandbox: Sandbox) -> None:
        value = 'it\'s a "$secret" value'
        run = 'echo "$API_TOKEN"; export API_TOKEN KEPT=yes'

        first = await sandbox.execute_command(run, timeout=PATIENCE, environment={"API_TOKEN": value})
        second = await sandbox.execute_command('echo "[$API_TOKEN] $KEPT"', timeout=PATIENCE)

        assert first.output == f"{value}\n"
        assert second.output == "[] yes\n"

    async def test_a_failing_command_still_leaves_its_directory(self, sandbox: Sandbox) -> None:
        await sandbox.execute_command("mkdir -p deep; cd deep; exit 4", timeout=PATIENCE)

        assert (await sandbox.execute_command("pwd", timeout=PATIENCE)).output == f"{WORKSPACE}/deep\n"

    async def test_commands_of_one_sandbox_may_run_at_once(self, sandbox: Sandbox) -> None:
        results = await asyncio.gather(
            *(sandbox.execute_command(f"echo {number}", timeout=PATIENCE) for number in range(4))
        )

        assert [result.output for result in results] == ["0\n", "1\n", "2\n", "3\n"]

    async def test_writes_appends_and_reads(self, sandbox: Sandbox) -> None:
        await sandbox.write_file("a/b/c.txt", "one\n")
        await sandbox.write_file("a/b/c.txt", "two — ü\n", append=True)
        await sandbox.write_file("a/b/fresh.txt", "x", append=True)

        assert await sandbox.read_file(f"{WORKSPACE}/a/b/c.txt") == "one\ntwo — ü\n"
        assert await sandbox.read_file("a/b/fresh.txt") == "x"

    async def test_bytes_survive(self, sandbox: Sandbox) -> None:
        data = bytes(range(256)) * 1000

        await sandbox.update_file("/mnt/user-data/outputs/raw.bin", data)

        assert await sandbox.download_file("/mnt/user-data/outputs/raw.bin") == data

    async def test_a_missing_file_is_named(self, sandbox: Sandbox) -> None:
        with pytest.raises(SandboxError, match=r"missing\.txt"):
            await sandbox.read_file("missing.txt")

    async def test_a_binary_file_gets_a_sentence(self, sandbox: Sandbox) -> None:
        await sandbox.update_file("raw.bin", b"\x7fELF\0\0\1")

        with pytest.raises(SandboxError, match="binary"):
            await sandbox.read_file("raw.bin")

    async def test_lists_two_levels_without_clutter(self, sandbox: Sandbox) -> None:
        for name in ("top.txt", "a/one.txt", "a/b/two.txt", ".git/config", "node_modules/x/y.js"):
            await sandbox.write_file(name, "x")

        listed = await sandbox.list_dir(WORKSPACE)

        assert listed == [f"{WORKSPACE}/{name}" for name in ("a/", "a/b/", "a/one.txt", "top.txt")]

    async def test_finds_files_by_pattern(self, sandbox: Sandbox) -> None:
        for name in ("top.py", "src/a.py", "src/deep/b.py", "src/c.txt"):
            await sandbox.write_file(name, "x")

        assert await sandbox.glob(WORKSPACE, "src/**/*.py") == (
            [f"{WORKSPACE}/src/a.py", f"{WORKSPACE}/src/deep/b.py"],
            False,
        )
        found, more = await sandbox.glob(WORKSPACE, "**/*.py", max_results=1)
        assert (len(found), more) == (1, True)
        assert (await sandbox.glob(WORKSPACE, "**/deep", include_dirs=True))[0] == [f"{WORKSPACE}/src/deep/"]

    async def test_searches_lines(self, sandbox: Sandbox) -> None:
        await sandbox.write_file("a.txt", "Hello world\nnothing\nhello again\n")
        await sandbox.write_file("b.md", "hello markdown\n")

        matches, more = await sandbox.grep(WORKSPACE, r"hello \w+", glob="*.txt")

        assert [(match.path, match.line, match.text) for match in matches] == [
            (f"{WORKSPACE}/a.txt", 1, "Hello world"),
            (f"{WORKSPACE}/a.txt", 3, "hello again"),
        ]
        assert more is False
        sensitive, _ = await sandbox.grep(WORKSPACE, "hello", case_sensitive=True, glob="*.txt")
        assert [match.line for match in sensitive] == [3]

    async def test_searches_literally_and_within_limits(self, sandbox: Sandbox) -> None:
        await sandbox.write_file("a.txt", "a+b\naab\n" * 10)

        matches, more = await sandbox.grep(WORKSPACE, "a+b", literal=True, max_results=3)

        assert {match.text for match in matches} == {"a+b"}
        assert (len(matches), more) == (3, True)

    async def test_a_wrong_pattern_is_explained(self, sandbox: Sandbox) -> None:
        with pytest.raises(SandboxError, match="regular expression"):
            await sandbox.grep(WORKSPACE, "(unclosed")

    @pytest.mark.parametrize(
        "path",
        [
            "../../etc/passwd",
            "/etc/passwd",
            "/mnt/user-data/../../etc/passwd",
            "a\0b",
            "..\\x",
            "C:\\x",
            "x" * 300,
        ],
    )
    async def test_refuses_a_path_that_leaves(self, sandbox: Sandbox, path: str) -> None:
        with pytest.raises(PathRefusedError):
            await sandbox.read_file(path)
        with pytest.raises(PathRefusedError):
            await sandbox.write_file(path, "x")
