"""Sandboxes: isolated execution of shell commands, and access to a thread's files."""

from deerflow.sandbox.base import (
    CommandResult,
    Match,
    OutputListener,
    Probe,
    Sandbox,
    SandboxProvider,
    SelfTest,
)
from deerflow.sandbox.paths import (
    ACP_WORKSPACE,
    OUTPUTS,
    SKILLS,
    UPLOADS,
    USER_DATA,
    WORKSPACE,
    PathMapping,
    PathTable,
    SkillMounts,
    checked_container_path,
    thread_paths,
)
from deerflow.sandbox.provider import create_sandbox_provider, tier_of
from deerflow.sandbox.trees import remove_tree
from deerflow.sandbox.users import choose_users_root

__all__ = [
    "ACP_WORKSPACE",
    "OUTPUTS",
    "SKILLS",
    "UPLOADS",
    "USER_DATA",
    "WORKSPACE",
    "CommandResult",
    "Match",
    "OutputListener",
    "PathMapping",
    "PathTable",
    "Probe",
    "Sandbox",
    "SandboxProvider",
    "SelfTest",
    "SkillMounts",
    "checked_container_path",
    "choose_users_root",
    "create_sandbox_provider",
    "remove_tree",
    "thread_paths",
    "tier_of",
]
