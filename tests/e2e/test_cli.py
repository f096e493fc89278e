"""`deerflow run` as people start it: a process of its own, anywhere, with no model configured."""

import asyncio
import json
import re
import signal
import sys
import threading
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from urllib.parse import unquote

from support.gateway import environment, model_entry, write_config
from support.model_server import ScriptedModel, text, usage
from support.terminal import SECONDS

CITED = re.compile(
    r"(?P<text>[^|]*?)\s*\[citation:[^\]]*:(?P<line>\d+)\]\((?P<path>/[^)\s]*)#L(?P<anchor>\d+)\)"
)
NOTES = {
    "cache.md": "# Caching\n\nA cache makes reads fast.\nThe cost of a cache is stale data.\n",
    "shard.md": "# Sharding\n\nShards spread writes.\nThe cost of a shard is 250 dollars a month.\n",
    "queue notes.md": "# Queues\n\nA queue smooths peaks.\nThe cost of a queue is waiting time.\n",
}


async def deerflow(home: Path, cwd: Path, *words: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deerflow", *words, env=environment(home), cwd=cwd, stdout=PIPE, stderr=PIPE
    )


def unsupported(report: str, user_data: Path) -> list[str]:
    """Return the claims of a report that no line of a real file holds."""
    wrong = []
    for line in report.split("\n"):
        for claim in CITED.finditer(line):
            file = user_data / unquote(claim["path"]).removeprefix("/mnt/user-data/")
            quoted = claim["text"].strip().removeprefix("- ").removesuffix("…").strip()
            lines = file.read_text().split("\n")
            if claim["line"] != claim["anchor"] or not quoted or quoted not in lines[int(claim["line"]) - 1]:
                wrong.append(line)
    return wrong


async def test_notes_become_a_report_whose_citations_hold(tmp_path: Path) -> None:
    home, elsewhere, folder = tmp_path / "home", tmp_path / "elsewhere", tmp_path / "elsewhere/more"
    folder.mkdir(parents=True)
    for name, content in NOTES.items():
        (folder if name.startswith("queue") else elsewhere).joinpath(name).write_text(content)

    config = write_config(home, None)
    question = "Compare the approaches in these notes"
    options = ("--file", "more", "--thread", "t1", "--new", "--config", str(config))
    process = await deerflow(home, elsewhere, "run", question, "cache.md", "shard.md", *options)
    out, err = [part.decode() for part in await asyncio.wait_for(process.communicate(), SECONDS)]

    assert process.returncode == 0, err
    user_data = home / ".deer-flow/users/default/threads/t1/user-data"
    reports = [Path(line.split(None, 1)[1]) for line in err.splitlines() if line.startswith("artifact")]
    (report,) = [path.read_text() for path in reports]
    assert len(CITED.findall(report)) >= 3
    assert unsupported(report, user_data) == []
    for name in NOTES:
        assert f"[citation:{name.replace(' ', '_')}:" in report
    assert "[citation:" in out
    assert "by sub-agents" in err
    assert "▸ task" in err

    options = ("--thread", "t1", "--config", str(config))
    process = await deerflow(home, elsewhere, "run", "What do they say about shards?", *options)
    _, told = await asyncio.wait_for(process.communicate(), SECONDS)
    later = [
        Path(line.split(None, 1)[1]) for line in told.decode().splitlines() if line.startswith("artifact")
    ]
    assert later, "the second job reports too"
    assert not set(later) & set(reports), "what an earlier job presented is not told again"


async def test_ctrl_c_stops_cleanly_and_keeps_the_thread(
    tmp_path: Path, model: ScriptedModel, gate: threading.Event
) -> None:
    write_config(tmp_path, model.base_url)
    model.will_say(text("slow " * 1000).held(gate, after=5), text("Here I am."))
    process = await deerflow(tmp_path, tmp_path, "run", "first", "--thread", "t1", "--new")
    await model.until(lambda m: m.in_flight == 1)

    process.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(process.communicate(), SECONDS)
    again = await deerflow(tmp_path, tmp_path, "run", "second", "--thread", "t1", "--json")
    out, _ = await asyncio.wait_for(again.communicate(), SECONDS)

    assert process.returncode == 130, err
    assert "deerflow run --thread t1" in err.decode()
    assert b"Traceback" not in err
    assert again.returncode == 0
    values = [json.loads(line) for line in out.splitlines()]
    final = [event["data"] for event in values if event["event"] == "values"][-1]
    asked = [message["content"] for message in final["messages"] if message["type"] == "human"]
    assert (asked, final["messages"][-1]["content"]) == (["first", "second"], "Here I am.")


async def test_the_last_lines_say_what_the_run_cost(tmp_path: Path, model: ScriptedModel) -> None:
    model.will_say(text("Hello.") + usage(1000, 50))
    pricing = {"currency": "EUR", "input_per_million": 10, "output_per_million": 100}
    config = write_config(tmp_path, None, models=[model_entry(model.base_url, "big", pricing=pricing)])

    process = await deerflow(tmp_path, tmp_path, "run", "Hi", "--config", str(config))
    out, err = [part.decode() for part in await asyncio.wait_for(process.communicate(), SECONDS)]

    assert (process.returncode, out) == (0, "Hello.\n")
    assert "usage     1,050 tokens (1,000 in, 50 out, 0 by sub-agents), EUR 0.0150" in err
