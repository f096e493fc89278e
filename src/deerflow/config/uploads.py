"""Settings of uploads."""

from typing import Literal

from pydantic import Field

from deerflow.config.section import Section


class UploadSettings(Section):
    """How much a user may upload to a thread."""

    max_files: int = Field(10, ge=1, description="Files in one upload.")
    max_file_size: int = Field(52_428_800, ge=1, description="Bytes of one file.")
    max_total_size: int = Field(104_857_600, ge=1, description="Bytes of one upload.")
    auto_convert_documents: bool = Field(
        True, description="Convert uploaded PDF and office files to Markdown files next to them."
    )
    pdf_converter: Literal["auto", "pymupdf4llm", "markitdown"] = Field(
        "auto", description="What reads PDFs: `auto` takes pymupdf4llm where it is installed, else pypdf."
    )
