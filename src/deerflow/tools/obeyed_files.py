"""Files that programs on a host execute or read as configuration without being named.

Writing one of them controls what the next harmless command does: a `.git/config` can name a program that
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
"""Folders whose files programs read as configuration, or run."""
FILES = frozenset(_FILES.split())
"""Files that shells, editors and other programs read automatically."""
ENDINGS = (".pth",)


def is_obeyed(path: str) -> bool:
    """Return whether a path is such a file; case-insensitive, like some file systems."""
    *folders, name = normal_path(path).casefold().split("/")
    return name in FILES or name.endswith(ENDINGS) or not FOLDERS.isdisjoint([*folders, name])
