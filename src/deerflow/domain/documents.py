"""Document types of uploads, and the Markdown files converted from them."""

from pathlib import PurePosixPath

DOCUMENTS = frozenset({".pdf", ".doc", ".docx", ".ppt", ".pptx", ".xls", ".xlsx"})
"""Suffixes for which a conversion to Markdown is attempted; a failure is reported."""


def companion_of(filename: str) -> str | None:
    """Return the name of the Markdown file for a document; None for any other file."""
    return f"{filename}.md" if PurePosixPath(filename).suffix.lower() in DOCUMENTS else None
