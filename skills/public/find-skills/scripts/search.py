#!/usr/bin/env python3
"""Search the installed skills by need, in English and Chinese, or list them all.

Looks at name, description, headings and the example queries in evals/evals.json. Custom skills win over
public ones of the same name. Exit code 0: found; 1: nothing fits; 2: an input is wrong.
"""

import argparse
import json
import math
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _front_matter import parse

OWN_NAME = "find-skills"
CATEGORIES = ("public", "custom")
MAX_BYTES = 1_000_000
WEIGHTS = {"name": 4.0, "description": 2.0, "examples": 1.0, "headings": 0.5}
SATURATION = 1.2
MIN_SCORE = 0.6
WEAK_SCORE = 2.5
RELATED_WEIGHT = 0.6
STOP = frozenset(
    ["a", "an", "and", "any", "are", "be", "can", "do", "does", "for", "from", "have", "help", "how", "i",
     "in", "into", "is", "it", "make", "me", "my", "need", "now", "of", "on", "or", "our", "out", "please",
     "skill", "some", "that", "the", "there", "this", "to", "use", "very", "want", "what", "which", "with",
     "you"]
)  # fmt: skip
STOP_WIDE = frozenset(
    [
        "技能",
        "一个",
        "一下",
        "帮我",
        "可以",
        "什么",
        "哪个",
        "怎么",
        "这个",
        "我的",
        "有没",
        "没有",
        "我想",
        "这份",
    ]
)
RELATED = (
    "slides presentation deck ppt pptx powerpoint 幻灯 演示",
    "chart plot graph diagram figure visualization 图表 绘图 画图 可视",
    "summarise summarize summary condense shorten compress digest 总结 摘要 概括 压缩 归纳",
    "paper papers literature study studies academic scholarly 论文 文献 综述",
    "safe safety security dangerous danger harmful malicious trust audit 安全 恶意 审查 危险",
    "market industry business strategy company competitor 市场 行业 商业 战略 竞争",
    "research investigate investigation survey 研究 调研 调查",
    "lookup search web online internet current latest news 搜索 查询 查找 最新 新闻 核实",
    "data table spreadsheet csv excel sql statistics 数据 表格 统计",
    "code program function bug software 代码 程序",
    "contract document agreement 合同 文件 文档",
    "website page html frontend interface landing 网页 网站 界面 页面",
    "newsletter mailing bulletin 简报 通讯 周刊",
    "agent persona personality character soul assistant 人格 性格 角色 助手 智能",
    "create write build teach routine workflow permanently 创建 编写 工作 流程",
    "duplicates deduplicate screen screening 去重 筛选",
    "book transcript meeting minutes recording 会议 记录 电子",
    "install enable available list 安装 启用 列出",
)
"""Words that mean similar things, in both languages; a word of the query also finds its relatives."""


@dataclass
class Found:
    """A skill with the words of its parts."""

    name: str
    description: str
    category: str
    path: str
    words: dict[str, Counter[str]] = field(default_factory=dict)


def words_of(text: str) -> list[str]:
    """Return stems of Latin words and pairs of Chinese characters."""
    latin = [stem(word) for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in STOP]
    pairs = [
        run[number : number + 2]
        for run in re.findall(r"[\u3400-\u9fff]+", text)
        for number in range(max(len(run) - 1, 1))
    ]
    return latin + [pair for pair in pairs if pair not in STOP_WIDE]


def stem(word: str) -> str:
    """Return a word without common endings, so that 'slides' finds 'slide'."""
    for ending in (
        "ations",
        "ation",
        "ising",
        "izing",
        "ings",
        "ing",
        "ies",
        "ers",
        "er",
        "ed",
        "es",
        "s",
        "e",
        "y",
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def read_skill(file: Path, category: str) -> Found | None:
    """Return the skill of a SKILL.md; None if it has no name or description."""
    try:
        if file.is_symlink() or file.stat().st_size > MAX_BYTES:
            return None
        document = parse(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    name, description = document.matter.get("name"), document.matter.get("description")
    if not isinstance(name, str) or not isinstance(description, str):
        return None
    found = Found(name, " ".join(description.split()), category, str(file))
    headings = " ".join(re.findall(r"^#{1,3}\s+(.*)$", document.body, re.M))
    # "Not for …" names neighbours, which must not attract their queries.
    wanted = re.split(r"\b(?:Not for|To write|To check|For other|For one|For reports)\b", found.description)[
        0
    ]
    parts = {
        "name": name.replace("-", " "),
        "description": wanted,
        "headings": headings,
        "examples": " ".join(_examples(file.parent / "evals" / "evals.json")),
    }
    found.words = {key: Counter(words_of(text)) for key, text in parts.items()}
    return found


def _examples(file: Path) -> list[str]:
    try:
        data: Any = json.loads(file.read_text(encoding="utf-8"))
        return [str(query) for query in data["triggers"]["should"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def installed(root: Path) -> list[Found]:
    """Return the skills below `root`, each name once; a nested SKILL.md belongs to its package."""
    skills: dict[str, Found] = {}
    folders = [(root / name, name) for name in CATEGORIES if (root / name).is_dir()] or [(root, root.name)]
    for folder, category in folders:
        packages: list[Path] = []
        for file in sorted(folder.rglob("SKILL.md"), key=lambda path: (len(path.parts), path)):
            hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
            if hidden or any(package in file.parents for package in packages):
                continue
            packages.append(file.parent)
            skill = read_skill(file, category)
            if skill is not None:
                skills[skill.name] = skill
    return [skills[name] for name in sorted(skills)]


def expanded(query: str) -> dict[str, float]:
    """Return the query's words with weight 1, and related words with less."""
    own = dict.fromkeys(words_of(query), 1.0)
    weights = dict(own)
    for group in RELATED:
        members = words_of(group)
        if any(term in own for term in members):
            for term in members:
                weights.setdefault(term, RELATED_WEIGHT)
    return weights


def rank(skills: list[Found], query: str) -> list[tuple[float, Found, list[str]]]:
    """Return score, skill and matched words, best first."""
    terms = expanded(query)
    holders = {
        term: sum(any(term in part for part in skill.words.values()) for skill in skills) for term in terms
    }
    results = []
    for skill in skills:
        score, matched = 0.0, []
        for term, share in terms.items():
            weight = sum(
                WEIGHTS[key] * counts[term] / (counts[term] + SATURATION)
                for key, counts in skill.words.items()
                if counts[term]
            )
            if weight:
                score += share * weight * math.log(1 + len(skills) / holders[term])
                matched.append(term)
        if matched:
            results.append((score, skill, matched))
    return sorted(results, key=lambda each: (-each[0], each[1].name))


def main() -> int:
    """Search or list, print, return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("query", nargs="?", default="", help="what is needed, in a few words")
    parser.add_argument("--root", type=Path, default=Path("/mnt/skills"), help="folder of the skills")
    parser.add_argument("--list", action="store_true", help="list all skills")
    parser.add_argument("--limit", type=int, default=5, help="how many to show; default 5")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    if not options.root.is_dir():
        print(
            f"error: {options.root} is not a folder; name the folder of the skills with --root",
            file=sys.stderr,
        )
        return 2
    if not options.list and not words_of(options.query):
        print("error: say in a few words what is needed, or use --list", file=sys.stderr)
        return 2
    skills = installed(options.root)
    if options.list:
        shown = [(0.0, skill, []) for skill in skills]
    else:
        others = [skill for skill in skills if skill.name != OWN_NAME]
        shown = [each for each in rank(others, options.query) if each[0] >= MIN_SCORE][: options.limit]
    if options.format == "json":
        listed = [
            {"name": skill.name, "category": skill.category, "path": skill.path, "score": round(score, 2),
             "matched": matched, "description": skill.description}
            for score, skill, matched in shown
        ]  # fmt: skip
        print(json.dumps(listed, ensure_ascii=False, indent=2))
    elif not shown:
        print(f"nothing fits among {len(skills)} skills; try other words, the other language, or --list")
    else:
        for score, skill, matched in shown:
            kind = "weak, " if score < WEAK_SCORE else ""
            why = "" if options.list else f"  ({kind}score {score:.1f}: {', '.join(matched)})"
            print(f"{skill.name} [{skill.category}]  {skill.path}{why}\n    {skill.description}")
    return 0 if shown else 1


if __name__ == "__main__":
    sys.exit(main())
