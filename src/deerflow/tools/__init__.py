"""The tools that the model can call."""

from deerflow.tools.catalog import get_available_tools
from deerflow.tools.clarify import ask_clarification_tool
from deerflow.tools.edits import edit_files_tool
from deerflow.tools.files import (
    glob_tool,
    grep_tool,
    ls_tool,
    read_file_tool,
    str_replace_tool,
    write_file_tool,
)
from deerflow.tools.present import present_files_tool
from deerflow.tools.shell import bash_tool, python_tool
from deerflow.tools.vision import view_image_tool

__all__ = [
    "ask_clarification_tool",
    "bash_tool",
    "edit_files_tool",
    "get_available_tools",
    "glob_tool",
    "grep_tool",
    "ls_tool",
    "present_files_tool",
    "python_tool",
    "read_file_tool",
    "str_replace_tool",
    "view_image_tool",
    "write_file_tool",
]
