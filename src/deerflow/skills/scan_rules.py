"""The rules of the skill scan: one table for files, one for text, each rule with its id and level."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Level = Literal["block", "warn"]
_PLACEHOLDER = re.compile(
    r"(?i)example|placeholder|your|xxx|\*\*\*|\.\.\.|<|\{|dummy|sample|redacted|changeme|1234567"
)
_MIN_RANDOM_BITS = 3.0
_LOOKALIKES = str.maketrans(
    "АВЕЅІЈКМНОРСТУХаеѕіјорсухѵһӏԁԛԝ" + "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧινορυχ" + "աոսօց",
    "ABESIJKMHOPCTYXaesijopcyxvhldqw" + "ABEZHIKMNOPTYXivopux" + "wnuog",
)
_UNSEEN = dict.fromkeys(
    [
        *(0xAD, 0x180E, 0xFEFF, 0x3164),
        *range(0x200B, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2060, 0x206A),
        *range(0xFE00, 0xFE10),
        *range(0xE0000, 0xE01F0),
    ]
)
_SHELL = (
    r"(?:sudo\s{1,3})?(?:/(?:usr/)?bin/)?(?:env\s{1,3})?(?:(?:ba|z|da|k|c)?sh|python[0-9.]{0,4}|perl|ruby|node"
    r"|php)\b"
)
_FETCH = r"\b(?:curl|wget|fetch|iwr|Invoke-WebRequest)\b"
_CREDENTIALS = (
    r"(?:~|\$HOME|\$\{HOME\}|/root|/home/[\w.-]{1,32})/\.(?:ssh|aws|gnupg|kube|docker|netrc"
    r"|git-credentials|pgpass)"
    r"|\bid_(?:rsa|ed25519|ecdsa|dsa)\b(?!\.pub)|/etc/shadow\b|/proc/(?:self|\d{1,7})/environ"
)
_SENDING = (
    r"(?:\bcurl\b|\bwget\b|\bncat\b|\bnc\s|requests\.(?:post|put)|urlopen|/dev/tcp|\bscp\s"
    r"|httpx\.(?:post|put))"
)


def _always(match: re.Match[str]) -> bool:
    return True


def _is_random(match: re.Match[str]) -> bool:
    """Return whether the last group looks like a real secret: mixed characters, no placeholder."""
    value = match[match.lastindex or 0]
    if _PLACEHOLDER.search(value) or not any(map(str.isdigit, value)) or not any(map(str.isalpha, value)):
        return False
    counts = Counter(value)
    bits = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return bits >= _MIN_RANDOM_BITS


def _is_printable_hex(match: re.Match[str]) -> bool:
    """Return whether escaped bytes are readable text: binary data in a script is no hidden command."""
    values = [int(code, 16) for code in re.findall(r"x([0-9a-fA-F]{2})", match[0])]
    return sum(0x20 <= value < 0x7F or value in (9, 10) for value in values) >= 0.9 * len(values)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule for the text of a file."""

    id: str
    level: Level
    meaning: str
    pattern: re.Pattern[str]
    accepts: Callable[[re.Match[str]], bool] = _always
    """Whether a match of the pattern counts."""
    is_secret: bool = False
    """It also counts in test data, and its matches are never shown."""
    is_exact: bool = False
    """It reads the text as it is; other rules read it with look-alike letters and hidden marks folded."""


def fold(text: str) -> str:
    """Return a text as a model reads it: compatibility forms, look-alike letters and no hidden marks."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text.translate(_UNSEEN)).translate(_LOOKALIKES)


FILE_RULES: Mapping[str, tuple[Level, str]] = {
    "symlink": ("block", "a symbolic link"),
    "special-file": ("block", "a device, pipe or socket"),
    "unicode-file-name": ("block", "a file name with invisible characters"),
    "executable-binary": ("block", "a program that cannot be reviewed"),
    "executable-file": ("warn", "an executable file"),
    "nested-archive": ("warn", "an archive in the package"),
    "hidden-file": ("warn", "a hidden file"),
    "oversize-file": ("block", "a file over the size limit"),
    "oversize-package": ("block", "a package over the size limit"),
    "oversize-text": ("block", "instructions or code too long to be checked"),
    "oversize-data": ("warn", "data too long to be checked"),
}


def _rule(
    id_: str, level: Level, meaning: str, *patterns: str, accepts: Callable[[re.Match[str]], bool] = _always
) -> Rule:
    return Rule(id_, level, meaning, re.compile("|".join(patterns), re.IGNORECASE | re.MULTILINE), accepts)


def _secret(
    id_: str, meaning: str, pattern: str, *, accepts: Callable[[re.Match[str]], bool] = _is_random
) -> Rule:
    return Rule(id_, "block", meaning, re.compile(pattern), accepts, is_secret=True, is_exact=True)


def _unicode(id_: str, level: Level, meaning: str, pattern: str) -> Rule:
    return Rule(id_, level, meaning, re.compile(pattern), is_exact=True)


_SECRETS = (
    _secret(
        "secret-private-key",
        "a private key",
        r"-----BEGIN (?:[A-Z0-9]{2,10} ){0,3}PRIVATE KEY-----\s{1,4}[A-Za-z0-9+/]{16}",
        accepts=_always,
    ),
    _secret("secret-aws-key", "an AWS access key", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    _secret(
        "secret-github-token",
        "a GitHub token",
        r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{40,255})",
    ),
    _secret("secret-gitlab-token", "a GitLab token", r"\bglpat-[A-Za-z0-9_-]{20,64}"),
    _secret(
        "secret-model-key",
        "a model provider's key",
        r"\bsk-(?:ant-|proj-|or-|svcacct-)?[A-Za-z0-9_-]{20,200}",
    ),
    _secret("secret-slack-token", "a Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,200}"),
    _secret("secret-google-key", "a Google API key", r"\bAIza[0-9A-Za-z_-]{35}(?![0-9A-Za-z_-])"),
    _secret(
        "secret-web-token",
        "a signed web token",
        r"\beyJ[A-Za-z0-9_-]{15,200}\.eyJ[A-Za-z0-9_-]{10,400}\.[A-Za-z0-9_-]{10,200}",
    ),
    _secret(
        "secret-assignment",
        "a secret in the text",
        r"(?i:\b[a-z_-]{0,30}(?:api[_-]?key|secret|token|passw(?:or)?d"
        r"|passphrase)\b)[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?"
        r"([A-Za-z0-9+/_=.~!@#$%^&-]{20,200})(?![\w(])",
    ),
)

_HIDDEN = (
    _unicode(
        "unicode-tags",
        "block",
        "invisible tag characters",
        r"(?<!\U0001f3f4)(?<![\U000e0000-\U000e007f])[\U000e0000-\U000e007f]",
    ),
    _unicode("unicode-long-tags", "block", "invisible tag characters", r"[\U000e0000-\U000e007f]{8}"),
    _unicode("unicode-bidi", "block", "characters that reorder the text", "[\u202a-\u202e\u2066-\u2069]"),
    _unicode(
        "unicode-zero-width",
        "block",
        "invisible characters",
        "[\u200b\u2060-\u2064\u206a-\u206f\u180e\u3164\uffa0\u115f\u1160]|(?<!\\A)\ufeff"
        "|(?<=[\x00-\x7f])[\u200c\u200d]",
    ),
    _unicode(
        "unicode-variation",
        "block",
        "invisible variation selectors",
        "[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2}"
        "|(?<=[\x00-\x22\x24-\x29\x2b-\x2f\x3a-\x7f])[\ufe00-\ufe0f\U000e0100-\U000e01ef]",
    ),
    _unicode(
        "unicode-private-use",
        "block",
        "characters without a public meaning",
        "[\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd]",
    ),
    _unicode(
        "unicode-confusable",
        "block",
        "letters of another alphabet that look like Latin ones",
        "[A-Za-z][АВЕЅІЈКМНОРСТУХаеѕіјорсухһӏԁԛԝ]|[АВЕЅІЈКМНОРСТУХаеѕіјорсухһӏԁԛԝ][A-Za-z]",
    ),
    _unicode(
        "unicode-marks", "warn", "invisible direction marks or soft hyphens", "[\u200e\u200f\u061c\u00ad]"
    ),
    _unicode(
        "control-characters", "block", "control characters", "[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f]"
    ),
)

_INJECTION = (
    _rule(
        "injection-override",
        "block",
        "it tells the agent to drop its instructions",
        r"\b(?:ignore|disregard|forget|override"
        r"|discard)\s{1,8}(?:[\w']{1,20}\s{1,8}){0,4}?(?:previous|prior|above|earlier|preceding"
        r"|existing|system|safety|other)\s{1,8}(?:\w{1,20}\s{1,8}){0,2}?(?:instructions?|prompts?"
        r"|rules?|guidelines?|directives?"
        r"|polic(?:y|ies)|restrictions?|safeguards?)\b",
        r"(?:忽略|无视|忘记|忘掉|绕过|不要理会|不必理会)[^。\n]{0,12}(?:之前|以上|先前|前面|上述|此前|原有|系统|安全)[^。\n]{0,8}"
        r"(?:指令|指示|提示词?|规则|限制|命令|约束)",
    ),
    _rule(
        "injection-conceal",
        "block",
        "it tells the agent to hide something from the user",
        r"\b(?:do\s{1,8}not|don[’']?t|never)\s{1,8}(?:tell|inform|notify|alert"
        r"|warn)\s{1,8}(?:the\s{1,8}|any\s{1,8}|your\s{1,8})?"
        r"(?:users?|humans?|person|operator|anyone)\s{1,8}(?:about\s{1,8}(?:this|it|these|that)\b"
        r"|of\s{1,8}(?:this|it)\b"
        r"|that\s{1,8}you\s{1,8}(?:did|ran|sent|read|have|are|were)\b)",
        r"\b(?:secretly|covertly|silently)\s{1,8}(?:\w{1,20}\s{1,8}){0,2}?(?:send|upload|post|copy"
        r"|exfiltrate|execute|run|read|collect)\b",
        r"\bwithout\s{1,8}the\s{1,8}user[’']?s?\s{1,8}(?:knowledge|knowing|noticing)\b",
        r"(?:不要|不得|切勿|禁止)(?:告诉|告知|通知|提醒|让)[^。\n]{0,6}(?:用户|使用者|任何人)(?:这|此|知道|发现|察觉)",
        r"(?:偷偷|悄悄|暗中|秘密)地?[^。\n]{0,10}(?:发送|上传|执行|运行|读取|复制|收集)",
        r"(?:瞒着|背着)(?:用户|使用者)",
    ),
    _rule(
        "injection-role",
        "block",
        "it imitates the messages of the system or changes the agent's role",
        r"<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id)\|>|\[/?INST\]"
        r"|<</?SYS>>",
        r"</?(?:system[-_](?:reminder|prompt|message)|system_override)>",
        r"\byou\s{1,8}are\s{1,8}now\s{1,8}(?:in\s{1,8}|an?\s{1,8})?(?:dan\b|jailbroken|unrestricted"
        r"|developer\s{1,8}mode|free\s{1,8}of\s{1,8}(?:all|any))",
        r"你现在(?:是|处于)[^。\n]{0,10}(?:无限制|不受限制|越狱|开发者模式)",
    ),
    _rule(
        "injection-safety",
        "block",
        "it tells the agent to switch off its protection",
        r"\b(?:bypass|circumvent|disable|evade|defeat"
        r"|turn\s{1,8}off)\s{1,8}(?:\w{1,20}\s{1,8}){0,3}?(?:guardrails?|sandbox|safety\s{1,8}"
        r"(?:checks?|filters?|rules?)|approvals?|security\s{1,8}(?:checks?|scans?|review)"
        r"|skill\s{1,8}scan)\b",
        r"(?:绕过|关闭|禁用|规避)[^。\n]{0,8}(?:审批|沙箱|安全检查|安全审查|防护)",
    ),
    _rule(
        "injection-reviewer",
        "block",
        "it addresses the review of skills",
        r"\b(?:dear|note\s{1,8}to(?:\s{1,8}the)?|attention"
        r"|hello)\s{1,8}(?:\w{1,20}\s{1,8}){0,2}?(?:reviewer|scanner|moderator|auditor)\b",
        r"[\"']?verdict[\"']?\s{0,8}[:=]\s{0,8}[\"']?allow\b",
        r"(?:致|各位|亲爱的)[^。\n]{0,6}(?:审核员|审查者|审查模型|扫描器)",
    ),
    _rule(
        "injection-hidden-text",
        "block",
        "instructions to the agent in text that readers do not see",
        r"<!--(?:(?!<!--|-->)[\s\S]){0,400}?\b(?:you\s{1,8}(?:must|should|will|are)|the\s{1,8}(?:agent"
        r"|assistant|model)\s{1,8}(?:must|should|will)"
        r"|always\s{1,8}(?:run|send|call|read|upload|fetch)|execute|curl|wget|upload|exfiltrate"
        r"|credentials?|api\s{0,2}keys?)\b",
        r"<!--(?:(?!<!--|-->)[\s\S]){0,400}?(?:你必须|你应该|请执行|请运行|请发送|请上传|助手必须|模型必须)",
        r"<\w{1,20}\s[^>\n]{0,200}(?:display\s{0,4}:\s{0,4}none|font-size\s{0,4}:\s{0,4}0(?![.\d])"
        r"|visibility\s{0,4}:\s{0,4}hidden)[^>\n]{0,200}>"
        r"[^<]{0,200}\b(?:ignore|you\s{1,8}must|execute|send|upload|run)\b",
    ),
    _rule(
        "injection-system-prompt",
        "warn",
        "it asks for the system prompt",
        r"\b(?:reveal|print|output|repeat|leak"
        r"|send)\s{1,8}(?:\w{1,20}\s{1,8}){0,3}?(?:system\s{1,8}prompt|hidden\s{1,8}instructions)\b",
        r"(?:输出|打印|泄露|发送|复述)[^。\n]{0,8}(?:系统提示词?|隐藏指令)",
    ),
)

_NETWORK = (
    _rule(
        "network-pipe-shell",
        "block",
        "it runs what it downloads",
        _FETCH + r"[^\n|;]{0,400}\|\s{0,8}" + _SHELL,
        r"\b(?:ba|z|da|k)?sh\s{1,4}(?:-c\s{1,4})?[\"']?(?:<\(|\$\()\s{0,4}(?:curl|wget)\b",
        r"\b(?:eval|source|\.)\s{1,4}[\"']?(?:<\(|\$\(|`)\s{0,4}(?:curl|wget)\b",
        r"\b(?:eval|exec)\s{0,4}\(\s{0,4}(?:requests\.get|urllib\.request\.urlopen|urlopen|httpx\.get)\b",
    ),
    _rule(
        "network-metadata",
        "block",
        "the address of a cloud's credentials",
        r"\b169\.254\.169\.254\b",
        r"\bmetadata\.google\.internal\b",
        r"\b100\.100\.100\.200\b",
    ),
    _rule(
        "network-collector",
        "block",
        "a host that collects data",
        r"\b(?:webhook\.site|requestbin\.\w{2,4}|pipedream\.net|ngrok(?:-free)?\.(?:io|app|dev)"
        r"|transfer\.sh|interact\.sh"
        r"|burpcollaborator\.net|oast\.(?:fun|pro|live|site|online|me)|requestcatcher\.com)\b",
    ),
    _rule(
        "network-credentials",
        "block",
        "it sends credentials",
        rf"(?:{_CREDENTIALS})[^\n]{{0,200}}{_SENDING}",
        rf"{_SENDING}[^\n]{{0,200}}(?:{_CREDENTIALS})",
        rf"\b(?:printenv|env)\b\s{{0,4}}\|[^\n]{{0,120}}{_SENDING}",
        rf"{_SENDING}[^\n]{{0,120}}\$\((?:printenv|env)\b",
    ),
    _rule("credential-files", "warn", "it names files with credentials", _CREDENTIALS),
    _rule(
        "network-upload",
        "warn",
        "it sends files",
        r"\bcurl\b[^\n]{0,200}\s(?:-d|-F|-T|--data\S{0,12}|--form|--upload-file)[ =]?\S{0,60}@",
    ),
    _rule(
        "network-command",
        "warn",
        "it uses the network",
        r"\b(?:curl|wget)\s{1,4}(?:-\S{1,40}\s{1,4}){0,8}[\"']?(?:https?|ftp)://",
        r"\b(?:scp|rsync|sftp|telnet|ssh)\s{1,4}[\w.-]{1,64}@",
        r"\b(?:requests|httpx)\.(?:get|post|put|request)\s{0,4}\(",
        r"\burllib\.request\.urlopen\b",
        r"\bsocket\.(?:socket|create_connection)\s{0,4}\(",
    ),
)

_SHELLS = (
    _rule(
        "reverse-shell",
        "block",
        "a reverse shell",
        r"/dev/(?:tcp|udp)/",
        r"\b(?:nc|ncat|netcat)\b[^\n|]{0,80}\s-\w{0,6}[ec]\w{0,2}\s{1,4}\S{0,20}(?:sh|cmd|powershell)\b",
        r"\bmkfifo\b[^\0]{0,160}?\|\s{0,4}(?:nc|ncat|netcat|openssl|telnet)\b",
        r"\bsocat\b[^\n]{0,160}\bexec:",
        r"\bdup2\s{0,4}\(\s{0,4}\w{1,20}\.fileno\s{0,4}\(",
        r"\bpty\.spawn\s{0,4}\(",
        r"\b(?:ba|z)?sh\s{1,4}-i\s{0,4}(?:>&|<|[0-9]>)",
        r"\bfsockopen\s{0,4}\([^\n]{0,120}(?:exec|shell_exec|proc_open)",
        r"Net\.Sockets\.TCPClient",
        r"\bruby\s{1,4}-rsocket\b",
        r"\bIO::Socket::INET\b[^\n]{0,200}\bexec\b",
    ),
)

_DESTRUCTIVE = (
    _rule(
        "destructive-delete",
        "block",
        "it deletes everything",
        r"\brm\s{1,4}(?:-{1,2}[a-z-]{1,24}\s{1,4}){1,4}[\"']?(?:/|~|\$HOME|\$\{HOME\}|/(?:home|etc"
        r"|usr|var|root|boot|lib|bin|mnt))/?\*?[\"']?(?=[\s;&|)`]|$)",
        r"--no-preserve-root",
        r"\bshutil\.rmtree\s{0,4}\(\s{0,4}(?:[\"'](?:/|~)[\"']|Path\.home\(\)"
        r"|os\.path\.expanduser\([\"']~[\"']\))\s{0,4}[,)]",
        r"\bfind\s{1,4}(?:/|~)\s[^\n]{0,80}-delete\b",
        r"\brm\s{1,4}(?:-{1,2}[a-z-]{1,24}\s{1,4}){1,4}/mnt/user-data/?\*?(?=[\s;&|)`]|$)",
    ),
    _rule(
        "destructive-disk",
        "block",
        "it overwrites a disk",
        r"\bmkfs(?:\.\w{1,8})?\s{1,4}\S{0,20}/dev/",
        r"\bdd\s[^\n]{0,120}\bof=/dev/(?:sd|nvme|hd|vd|xvd|disk|mmcblk)",
        r">\s{0,4}/dev/(?:sd|nvme|hd|vd)[a-z0-9]",
        r":\(\)\s{0,4}\{\s{0,4}:\s{0,4}\|\s{0,4}:\s{0,4}&\s{0,4}\}\s{0,4};\s{0,4}:",
        r"\bchmod\s{1,4}-R\s{1,4}0?777\s{1,4}/(?=\s|$)",
    ),
    _rule(
        "persistence",
        "block",
        "it changes what starts by itself or who may sign in",
        r">>?\s{0,4}\S{0,40}authorized_keys\b",
        r">>?\s{0,4}(?:~|\$HOME)/\.(?:bashrc|zshrc|profile|bash_profile)\b",
        r"\|\s{0,4}crontab\s{1,4}-",
        r">>?\s{0,4}/etc/(?:cron|passwd|sudoers|ld\.so\.preload)",
    ),
    _rule(
        "destructive-database",
        "warn",
        "it deletes data",
        r"\bDROP\s{1,4}(?:DATABASE|TABLE|SCHEMA)\b",
        r"\bgit\s{1,4}push\s[^\n]{0,60}--force\b",
    ),
    _rule("privileges", "warn", "it asks for the rights of root", r"(?:^|[\s;&|`])sudo\s{1,4}[a-z]"),
)

_DECODE = (
    r"(?:b64decode|b32decode|a85decode|b85decode|fromhex|unhexlify|\batob\b|zlib\.decompress"
    r"|marshal\.loads|codecs\.decode"
    r"|Buffer\.from\([^\n]{0,80}base64|base64_decode|gzinflate|FromBase64String)"
)
_OBFUSCATION = (
    _rule(
        "obfuscation-decoded-shell",
        "block",
        "it runs a decoded text",
        r"\b(?:base64|base32|openssl\s{1,4}(?:enc|base64))\s[^\n|]{0,120}(?:-d|-D"
        r"|--decode)\b[^\n|]{0,120}\|\s{0,8}(?:[^\n|]{0,60}\|\s{0,8}){0,2}" + _SHELL,
        r"\bxxd\s{1,4}-r\b[^\n|]{0,80}\|\s{0,8}" + _SHELL,
        r"\b(?:rev|tr)\b[^\n|]{0,80}\|\s{0,8}(?:ba|z|da|k)?sh\b",
        r"\b(?:ba|z|da|k)?sh\s{1,4}(?:-c\s{1,4})?[\"']?(?:<\(|\$\("
        r"|`)[^\n)]{0,200}\bbase64\s[^\n)]{0,80}(?:-d|-D|--decode)\b",
        r"\beval\s{1,4}[\"']?(?:\$\(|`)[^\n)]{0,200}\b(?:base64|xxd|rev|tr)\b",
        r"\bpowershell\b[^\n]{0,120}\s-e(?:nc|ncodedcommand)?\s{1,4}[A-Za-z0-9+/=]{16}",
        r"\bprintf\s{1,4}[\"'](?:\\x?[0-9a-f]{2,3}){6,}[^\n|]{0,400}\|\s{0,8}" + _SHELL,
    ),
    _rule(
        "obfuscation-decoded-eval",
        "block",
        "it evaluates a decoded text",
        r"\b(?:eval|exec|compile|Function|os\.system|os\.popen|subprocess\.\w{1,20}|execSync"
        r"|shell_exec|IEX|Invoke-Expression)(?:\s{0,4}\(|\s)[^\n]{0,160}?" + _DECODE,
    ),
    Rule(
        "obfuscation-hex",
        "block",
        "a text written as escaped bytes",
        re.compile(r"(?:\\x[0-9a-fA-F]{2}){16,64}"),
        _is_printable_hex,
    ),
    _rule(
        "obfuscation-character-codes",
        "block",
        "a text written as character codes",
        r"(?:chr\(\s{0,2}\d{2,3}\s{0,2}\)\s{0,4}[+.,]\s{0,4}){8}",
        r"fromCharCode\s{0,4}\((?:\s{0,4}\d{2,3}\s{0,4},){8}",
    ),
    _rule("obfuscation-encoded-payload", "block", "encoded text hides something that is blocked", r"(?!)"),
    _rule("obfuscation-long-code", "warn", "a long encoded text", r"(?<![A-Za-z0-9+/,])[A-Za-z0-9+/]{1000}"),
    _rule(
        "evals-as-instructions",
        "block",
        "it runs or follows its own test data",
        rf"{_SHELL}\s{{1,4}}[\w./$-]{{0,80}}\bevals/files/",
        r"\b(?:follow|obey|execute)\s{1,8}(?:\w{1,20}\s{1,8}){0,3}?[`\"']?evals/files/",
    ),
    _rule(
        "dynamic-code",
        "warn",
        "it evaluates code made at run time",
        r"(?<![.\w])(?:eval|exec)\s{0,2}\(\s{0,2}[a-z_]",
    ),
)

TEXT_RULES: Mapping[str, Rule] = {
    rule.id: rule
    for rule in (*_SECRETS, *_HIDDEN, *_INJECTION, *_NETWORK, *_SHELLS, *_DESTRUCTIVE, *_OBFUSCATION)
}
