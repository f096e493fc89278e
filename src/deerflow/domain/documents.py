"""Documents that people upload, and the Markdown that stands beside them."""

from pathlib import PurePosixPath

DOCUMENTS = frozenset({".pdf", ".doc", ".docx", ".ppt", ".pptx", ".xls", ".xlsx"})
"""What can be turned into Markdown, or says clearly why not."""


def companion_of(filename: str) -> str | None:
    """Return the name of the Markdown that belongs to a document; None for any other file."""
    return f"{filename}.md" if PurePosixPath(filename).suffix.lower() in DOCUMENTS else None
