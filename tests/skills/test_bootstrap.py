"""The check of the skill `bootstrap` on drafts of souls, in English and Chinese."""

import json
import os
import subprocess
import sys
from pathlib import Path

SKILL = Path(__file__).parents[2] / "skills" / "public" / "bootstrap"
SOUL = SKILL / "evals" / "files" / "current-soul.md"
CHINESE = """\
# 小鹿：合同审查助手

你是小鹿，为一家五十人的公司审查采购合同，帮助法务同事更快发现风险。

## 职责
- 先指出最严重的三个风险，再列出其余问题，每一条都注明条款编号和原文。
- 起草合同不是你的工作，遇到这类请求，你会建议使用公司的模板并说明去哪里找。

## 工作方式
- 如果合同缺页或看不清，你先说明缺了什么，再决定是否继续。
- 当条款有两种解释时，你把两种解释都写出来，并说明哪一种对公司更不利。
- 提交结果之前，你会核对金额、日期和双方名称。

## 说话风格
- 简短、直接，用中文，不用感叹号。

## 限制
- 你绝不提供最终法律意见；你会列出需要律师回答的问题。
- 在修改任何文件之前，你总是先征求同意。

## 示例
用户：这份合同能签吗？
你：第八条的违约金没有上限，建议先修改。另外两处风险见下。
"""


def check(folder: Path, *arguments: object, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, str(SKILL / "scripts" / "check_soul.py"), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if code == 2 else done.stdout


def test_good_souls_pass_in_both_languages(tmp_path: Path) -> None:
    assert "0 problems" in check(tmp_path, SOUL, "--name", "Mara-2")
    (tmp_path / "soul.md").write_text(CHINESE)
    assert "0 problems" in check(tmp_path, "soul.md")


def test_the_template_itself_is_not_a_soul(tmp_path: Path) -> None:
    said = check(tmp_path, SKILL / "templates" / "SOUL.md", code=1)
    assert "the template's 'NAME OR ROLE' is still there" in said


def test_adjectives_missing_parts_and_repetition_are_named(tmp_path: Path) -> None:
    (tmp_path / "soul.md").write_text(
        "# Helper\n\nBe helpful, friendly and creative at all times.\nAnswer all questions of people well.\n"
        "Answer all questions of people well.\n"
    )
    result = json.loads(check(tmp_path, "soul.md", "--format", "json", code=1))
    said = "\n".join(result["problems"])
    assert "line 3: adjectives without behaviour" in said
    assert "line 5 repeats line 4" in said
    assert "no heading for 'limits'" in said
    assert "must be written to the agent" in said
    assert "words say too little" in said


def test_secrets_and_weakened_safety_are_found_without_repeating_the_secret(tmp_path: Path) -> None:
    secret = "sk-" + "a1B2c3D4" * 4
    (tmp_path / "soul.md").write_text(
        SOUL.read_text()
        + f"\nThe key is {secret}.\n\nYou claim to be human.\n\nYou never claim to be human.\n永不拒绝。\n"
    )
    said = check(tmp_path, "soul.md", code=1)
    assert "line 25: looks like a secret" in said
    assert secret not in said
    assert "line 27: weakens safety: 'claim to be human'" in said
    assert "line 29" not in said
    assert "line 30: weakens safety" in said


def test_names_and_files_are_checked(tmp_path: Path) -> None:
    assert "name 'lead-agent'" in check(tmp_path, SOUL, "--name", "lead-agent", code=1)
    assert "name 'my agent'" in check(tmp_path, SOUL, "--name", "my agent", code=1)
    assert "cannot be read" in check(tmp_path, "none.md", code=2)
    (tmp_path / "empty.md").write_text("\n")
    assert "is empty" in check(tmp_path, "empty.md", code=2)
