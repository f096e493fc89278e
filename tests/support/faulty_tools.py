"""Tools for settings files of tests: one that breaks in a way nobody expects."""

from langchain_core.tools import tool


@tool
async def explode(word: str) -> str:
    """Break."""
    raise RuntimeError(f"boom at {word}")
