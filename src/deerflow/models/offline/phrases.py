"""Everything the offline model says in its own words, in English and in Chinese."""

from dataclasses import dataclass

from deerflow.models.offline.words import Language


@dataclass(frozen=True, slots=True)
class Phrases:
    """The sentences of one language."""

    introduction: str
    connect: str
    unusable_key: str
    joint: str
    """What stands between two sentences."""
    no_files: str
    nothing_readable: str
    cannot_read: str
    origin: str
    summary: str
    comparison: str
    file: str
    nothing_on: str
    nothing_in: str
    unread: str
    sources: str
    lines_read: str
    lines_of: str
    limit: str
    passages: str
    failed_task: str
    no_answer: str
    narrowed: str
    not_text: str
    missing: str
    answer: str
    answer_empty: str
    report_at: str
    write_failed: str
    footer: str
    empty: str
    todo_find: str
    todo_research: str
    todo_report: str


_ENGLISH = Phrases(
    introduction=(
        "I am DeerFlow's built-in offline model: I work by fixed rules, quote sentences from files and "
        "understand no language, so I cannot answer general questions. What I can do right now: give me "
        "files (attach them, or name a path such as /mnt/user-data/workspace/notes.md) and ask about them "
        "or ask me to compare them; I split the work among sub-agents, search and read the files, and "
        "write a report in which every quoted sentence carries its file and line. "
    ),
    connect=(
        "To connect a real model, set an API key such as OPENAI_API_KEY, ANTHROPIC_API_KEY or "
        "DEEPSEEK_API_KEY, run Ollama on this machine, or add an entry under `models:` in config.yaml. "
        "`deerflow doctor` shows which models were found."
    ),
    unusable_key=(
        "{variable} is set, but the package for {provider} is missing: install it with `{command}`, then "
        "start DeerFlow again."
    ),
    joint=" ",
    no_files="I looked for files to answer from and found none ({locations}).",
    nothing_readable="I could read none of the files, so there is no report:",
    cannot_read="None of the tools I was given can read files, so I cannot answer from them.",
    origin=(
        "Every statement below is quoted from a file and carries its line. Chosen by DeerFlow's offline "
        "model: it ranks sentences by their words and draws no conclusions of its own."
    ),
    summary="Summary",
    comparison="Comparison",
    file="File",
    nothing_on="Nothing found on: {what}.",
    nothing_in="Nothing on this in: {files}.",
    unread="Not read, or not in full",
    sources="Sources",
    lines_read="{lines} lines",
    lines_of="{read} of {lines} lines",
    limit="only {read} lines were read, from line 1 to {last}; the limit for one reader was reached",
    passages="passages found: {count}",
    failed_task="the sub-agent “{task}” returned nothing, so its files were read without it: {reason}",
    no_answer="it returned nothing usable",
    narrowed="{count} more files were left out: {limit} is the most for one report; kept were those that "
    "mention the question's words most often",
    not_text="{count} files were passed over, being no text by their names: {names}",
    missing="no file of this name was found",
    answer="I read {files} and quote what fits the question best:",
    answer_empty="I read {files} and found nothing on: {what}.",
    report_at="The report with {count} citations is at {path}.",
    write_failed="The report could not be written ({reason}), so here it is:",
    footer="(Offline model: quotes, no conclusions. `deerflow doctor` says how to connect a real model.)",
    empty="the file is empty",
    todo_find="Find the files",
    todo_research="Look for what they say on the question",
    todo_report="Write the report with citations",
)

_CHINESE = Phrases(
    introduction=(
        "我是 DeerFlow 内置的离线模型：我按固定规则工作，只摘录文件里的句子，并不理解语言，"
        "因此无法回答一般性问题。我现在能做的是：请上传文件，或给出路径（例如 "
        "/mnt/user-data/workspace/notes.md），然后就这些文件提问或让我比较它们；我会把工作分给子智能体，"
        "检索并阅读文件，再写一份报告，其中每句引文都标明文件和行号。"
    ),
    connect=(
        "要接入真正的模型，请设置 API 密钥（如 "
        "OPENAI_API_KEY、ANTHROPIC_API_KEY 或 DEEPSEEK_API_KEY），或在本机运行 Ollama，或在 config.yaml 的 "
        "`models:` 下添加一项。运行 `deerflow doctor` 可以查看找到了哪些模型。"
    ),
    unusable_key=(
        "已设置 {variable}，但缺少 {provider} 所需的软件包：请用 `{command}` 安装，然后重新启动 DeerFlow。"
    ),
    joint="",
    no_files="我查找了可以用来回答的文件，但一个也没有找到（{locations}）。",
    nothing_readable="所有文件都无法读取，因此没有报告：",
    cannot_read="我得到的工具都不能读取文件，所以无法根据文件回答。",
    origin="以下每句话都摘自文件并标明行号。由 DeerFlow 离线模型挑选：它只按词语给句子排序，不作任何推断。",
    summary="摘要",
    comparison="对比",
    file="文件",
    nothing_on="没有找到关于以下内容的句子：{what}。",
    nothing_in="以下文件没有提到：{files}。",
    unread="未读或未读完",
    sources="来源",
    lines_read="{lines} 行",
    lines_of="{lines} 行中的 {read} 行",
    limit="只读了 {read} 行（第 1 行到第 {last} 行），已达到一次阅读的上限",
    passages="找到 {count} 处",
    failed_task="子智能体“{task}”没有带回内容，它的文件改由主智能体阅读：{reason}",
    no_answer="没有返回可用的内容",
    narrowed="另有 {count} 个文件没有阅读：一份报告最多 {limit} 个文件，保留了提到问题用词最多的那些",
    not_text="有 {count} 个文件从名称看不是文本，已跳过：{names}",
    missing="没有找到这个名称的文件",
    answer="我读了 {files}，下面是最切题的原文：",
    answer_empty="我读了 {files}，没有找到与此有关的内容：{what}。",
    report_at="报告（含 {count} 处引用）在 {path}。",
    write_failed="报告无法写入（{reason}），内容如下：",
    footer="（离线模型：只摘录原文，不作推断。运行 `deerflow doctor` 可查看如何接入真正的模型。）",
    empty="文件是空的",
    todo_find="找到文件",
    todo_research="查找文件中与问题有关的内容",
    todo_report="写出带引用的报告",
)


def phrases(language: Language) -> Phrases:
    """Return the sentences of a language."""
    return _CHINESE if language == "zh" else _ENGLISH


def counted_files(count: int, language: Language) -> str:
    """Return a number of files in words."""
    if language == "zh":
        return f"{count} 个文件"
    return "one file" if count == 1 else f"{count} files"
