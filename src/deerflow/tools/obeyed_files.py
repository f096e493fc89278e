"""Files that programs on a host execute or obey without anybody naming them.

Whoever writes one decides what the next harmless command does: a `.git/config` can name a program that
`git status` runs.
"""

from deerflow.tools.patch import normal_path

_FOLDERS = """
.git .hg .svn .bzr .jj .husky .githooks hooks .vscode .idea .devcontainer .zed .fleet .config .ssh
.gnupg .aws .docker .kube .direnv .mise .asdf .cargo .npm .yarn .m2 .gradle .bundle .claude .agents
.cursor .codex bin sbin site-packages dist-packages autostart systemd launchagents
"""
_FILES = """
.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile
.zlogin .zlogout .kshrc .cshrc .tcshrc .login .logout .inputrc .xinitrc .xprofile .xsession .vimrc
.gvimrc .exrc .nvimrc .nanorc .emacs .dir-locals.el .screenrc .tmux.conf .gitconfig .gitattributes
.gitmodules .hgrc .envrc .env .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pnp.cjs .pypirc .pythonrc
.pythonrc.py sitecustomize.py usercustomize.py .curlrc .wgetrc .netrc .gdbinit .lldbinit .ripgreprc
.editorconfig .tool-versions .pre-commit-config.yaml
"""
FOLDERS = frozenset(_FOLDERS.split())
"""Folders whose files tools read as their settings, or run."""
FILES = frozenset(_FILES.split())
"""Files that shells, editors and other programs read by themselves."""
ENDINGS = (".pth",)


def is_obeyed(path: str) -> bool:
    """Tell whether a file is one of these; letters count alike in both cases, as on some file systems."""
    *folders, name = normal_path(path).casefold().split("/")
    return name in FILES or name.endswith(ENDINGS) or not FOLDERS.isdisjoint([*folders, name])
