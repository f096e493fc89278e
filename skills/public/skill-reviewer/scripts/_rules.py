"""The patterns that review.py looks for, one table with ids.

Repetitions are bounded: a reviewed file must not be able to make the search take forever.
"""

from dataclasses import dataclass

DOWNLOAD = r"(?:curl|wget|fetch|iwr|Invoke-WebRequest)\b[^\n|;&]{0,400}"


@dataclass(frozen=True)
class Rule:
    """A pattern with a meaning; `only` limits it to "code" or "prose"."""

    id: str
    severity: str
    title: str
    pattern: str
    only: str = ""


RULES = (
    Rule("SECRET-KEY", "critical", "private key", r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
    Rule(
        "SECRET-TOKEN",
        "high",
        "access token or key of a known service",
        r"\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{24,}|xox[abpr]-[A-Za-z0-9-]{10,}"
        r"|AIza[0-9A-Za-z_-]{35}|glpat-[\w-]{20,})",
    ),
    Rule(
        "SECRET-VALUE",
        "medium",
        "password or key written into a file",
        r"(?i)\b(?:password|passwd|secret|api_?key|access_?token)\b[\"']?\s*[:=]\s*"
        r"[\"'][^\"'\s{}$<]{8,}[\"']",
    ),
    Rule(
        "INJECT-OVERRIDE",
        "critical",
        "tells the agent to drop its instructions",
        r"(?i)\b(?:ignore|disregard|forget|override)\b.{0,30}\b(?:previous|prior|above|earlier|system|safety)\b"
        r".{0,20}\b(?:instruction|prompt|rule|message|polic)"
        r"|(?:忽略|无视|忘记).{0,8}(?:之前|以上|先前|系统).{0,8}(?:指令|提示|规则)",
    ),
    Rule(
        "INJECT-HIDE",
        "critical",
        "tells the agent to hide something from the user",
        r"(?i)\b(?:do not|don't|never|without)\s+(?:tell|inform|mention|reveal|show|alert)\w*\b"
        r".{0,30}\b(?:user|human|operator)s?\b|(?:不要|不得|切勿)(?:告诉|告知|提醒)用户",
    ),
    Rule(
        "INJECT-UNGUARD",
        "high",
        "tells the agent to act without approval or protection",
        r"(?i)\b(?:skip|bypass|disable|turn off)\b.{0,25}"
        r"\b(?:approval|confirmation|sandbox|security|safety|scan)"
        r"|\bwithout (?:asking|approval|confirmation)\b|绕过.{0,6}(?:审批|确认|沙箱|安全)",
        "prose",
    ),
    Rule(
        "INJECT-ROLE",
        "high",
        "imitates system or chat markup",
        r"(?i)</?(?:system|assistant|developer|tool_result|function_calls?)>|<\|(?:im_start|im_end|system)\|>",
    ),
    Rule(
        "REMOTE-TEXT",
        "high",
        "takes instructions from an address at run time",
        r"(?i)\b(?:fetch|download|open|load|read)\b.{0,40}https?://\S+.{0,60}"
        r"\b(?:follow|obey|execute|do what)\b",
        "prose",
    ),
    Rule(
        "RUN-DOWNLOAD",
        "critical",
        "runs downloaded text",
        rf"{DOWNLOAD}\|\s*(?:sudo\s+)?(?:(?:ba|z|da)?sh|python3?|perl|ruby|node)\b"
        rf"|\b(?:source|bash|sh)\s+<\(\s*{DOWNLOAD}|\beval\s+\"?\$\(\s*{DOWNLOAD}",
    ),
    Rule(
        "REVERSE-SHELL",
        "critical",
        "opens a shell to another machine",
        r"/dev/(?:tcp|udp)/\w|\bnc(?:at)?\b[^\n]{0,400}\s-[a-z]*e\b|\bpty\.spawn\(|\bsocat\b[^\n]{0,400}\bexec:"
        r"|os\.dup2\([^\n]{0,400}fileno\(",
    ),
    Rule(
        "DESTROY",
        "critical",
        "deletes or overwrites the machine or the home folder",
        r"\brm\s+(?:-\w+\s+)*-\w*[rR]\w*\s+(?:-\w+\s+)*(?:/\*?|~(?:/\*?)?|\$HOME(?:/\*?)?)(?=\s|$|[\"'`;&|])"
        r"|\bmkfs\.\w+\s|\bdd\b[^\n]{0,400}\bof=/dev/(?:sd|nvme|vd|disk)|:\(\)\s*\{\s*:\|:&\s*\};:",
    ),
    Rule(
        "DELETE",
        "medium",
        "deletes recursively",
        r"\brm\s+-\w*[rR]\w*\s|\bshutil\.rmtree\(|\bgit\s+(?:reset\s+--hard|clean\s+-\w*f)",
    ),
    Rule(
        "EXEC-ENCODED",
        "critical",
        "runs decoded text",
        r"(?i)(?:exec|eval|Function)\s*\([^\n]{0,400}(?:b64decode|atob|fromhex|decompress|codecs\.decode|unhexlify)\("
        r"|base64\s+(?:-d|--decode)\b[^\n]{0,400}\|\s*(?:ba|z)?sh\b|-enc(?:odedcommand)?\s+[A-Za-z0-9+/=]{40,}",
    ),
    Rule(
        "EXEC-TEXT",
        "high",
        "runs text as code",
        r"(?<![\w.])(?:eval|exec)\((?!\s*\))|\b__import__\((?!\s*\))|\bnew Function\(",
        "code",
    ),
    Rule(
        "SHELL-TEXT",
        "medium",
        "gives text to a shell",
        r"shell\s*=\s*True\b(?!`)|\bos\.(?:system|popen)\(|child_process\.exec\(",
        "code",
    ),
    Rule(
        "UNPICKLE",
        "medium",
        "loads objects from data",
        r"\b(?:pickle|marshal|dill|joblib)\.loads?\(|\byaml\.load\((?![^)\n]*Safe)",
        "code",
    ),
    Rule(
        "ENCODED",
        "medium",
        "long encoded text",
        r"[A-Za-z0-9+/]{240,}={0,2}|(?:\\x[0-9a-fA-F]{2}){24,}|(?:\\u[0-9a-fA-F]{4}){16,}",
    ),
    Rule(
        "JOINED",
        "medium",
        "builds text from character codes",
        r"(?:chr\(\d+\)\s*\+\s*){4,}|String\.fromCharCode\((?:\d+\s*,\s*){6,}",
    ),
    Rule(
        "NETWORK",
        "medium",
        "talks to the network",
        r"\b(?:import|from)\s+(?:requests|httpx|aiohttp|urllib3?\.?(?:request)?|http\.client|ftplib|smtplib|socket"
        r"|paramiko)(?=[\s,.])(?!\.parse)|\bfetch\(\s*[\"'`]http|\bXMLHttpRequest\(|\brequire\([\"'](?:https?|net)"
        r"|^[ \t]*(?:curl|wget|scp|rsync|ssh|ncat?)\s+[-\w\"'$]",
        "code",
    ),
    Rule(
        "EXFILTRATE",
        "high",
        "puts data into an address",
        r"https?://[^\s\"'`)]{0,1000}[?&][\w-]{1,60}=(?:\{|\$|%s|<)|!\[[^\]]{0,200}\]\(https?://[^\s)]{0,300}[?&][^\s)]{0,300}=(?:\{|\$|<|\[)",
    ),
    Rule(
        "READS-SECRETS",
        "high",
        "reads places where secrets are kept",
        r"(?:~|\$HOME|/root|/home/\w+)/\.(?:ssh|aws|gnupg|kube|docker|netrc|config/gcloud)\b"
        r"|/\.ssh/id_(?:rsa|ed25519)\b|/etc/shado[w]\b|/proc/(?:self|\d+)/environ\b",
    ),
    Rule(
        "READS-ENV",
        "medium",
        "reads all environment variables",
        r"\bdict\(os\.environ\)|os\.environ\.(?:items|copy)\(|^[ \t]*printenv\b"
        r"|JSON\.stringify\(process\.env\b",
        "code",
    ),
    Rule(
        "PERSIST",
        "high",
        "installs itself for later",
        r"\bcrontab\s+-\w|/etc/cron\.|[~/]\.(?:bashrc|zshrc|profile|bash_profile)\b|systemctl\s+enable\s"
        r"|/LaunchAgent[s]/|/authorized_key[s]\b",
    ),
    Rule(
        "RIGHTS",
        "high",
        "raises rights",
        r"^[ \t]*sudo\s+\w|[;&|]\s*sudo\s+\w"
        r"|\bchmod\s+(?:-R\s+)?(?:0?777\b(?!`)|[ugoa]*\+s\b)|\bos\.setuid\(",
    ),
    Rule(
        "OTHER-SKILLS",
        "high",
        "changes skills, agents or memory",
        r"(?i)(?:\b(?:edit|append|modify|overwrite)\b|>>)[^\n]{0,40}(?:/mnt/skill[s]/|\bSOUL\.md|\bAGENTS\.md)",
    ),
    Rule(
        "INSTALL",
        "medium",
        "installs packages from a free source",
        r"\bpip3?\s+install\s[^\n]{0,400}(?:git\+|https?://|--(?:extra-)?index-url)|\bnpm\s+(?:i|install)\s[^\n]{0,400}https?://",
    ),
    Rule(
        "GREEDY",
        "medium",
        "claims to be for everything",
        r"(?i)^description:.*(?:\balways use this\b|\bfor (?:every|any|all) (?:task|request|message)s?\b"
        r"|\bbefore any other skill\b)",
        "prose",
    ),
)
EXTRA_RULES = {
    "HIDDEN-CHARS": ("critical", "invisible or direction-changing characters"),
    "HIDDEN-COMMENT": ("high", "instructions in an HTML comment"),
    "BINARY": ("high", "binary file that cannot be read"),
    "LINK": ("critical", "symbolic link or device"),
    "PATH": ("critical", "path that leaves the folder"),
    "SIZE": ("medium", "too many or too large files"),
    "LONG-LINE": ("medium", "line of more than 2,000 characters in code or text"),
    "FORMAT": ("medium", "front matter that strict readers refuse"),
    "QUALITY": ("low", "fault of form"),
}
"""Findings that are no pattern: severity and title."""
