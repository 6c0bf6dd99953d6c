"""Finds the code blocks of Markdown pages and runs the Python ones; prose is not looked at."""

import ast
import asyncio
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block: its page, the line its content begins on, the words after the fence."""

    page: Path
    line: int
    words: tuple[str, ...]
    content: str

    @property
    def place(self) -> str:
        """Where a person finds it."""
        return f"{self.page.name}:{self.line}"


def blocks(page: Path, language: str) -> list[Block]:
    """The blocks of a page in one language, in order."""
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    found = [
        Block(
            page=page,
            line=token.map[0] + 2,  # The map counts from 0 and begins at the fence.
            words=tuple(token.info.split()),
            content=token.content,
        )
        for token in tokens
        if token.type == "fence" and token.map is not None
    ]
    return [block for block in found if block.words[:1] == (language,)]


def run(page_blocks: Iterable[Block], namespace: dict[str, Any]) -> None:
    """Run blocks one after the other in one namespace and, where they await, in one event loop."""
    with asyncio.Runner() as runner:
        for block in page_blocks:
            try:
                outcome = eval(_compiled(block), namespace)
                if inspect.iscoroutine(outcome):
                    runner.run(outcome)
            except BaseException as error:
                error.add_note(f"in the Python block at {block.place}")
                raise


def _compiled(block: Block) -> Any:  # noqa: ANN401 (typeshed has no better type for compile)
    # Blank lines above, so that a traceback shows the page's own line.
    source = "\n" * (block.line - 1) + block.content
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return compile(source, str(block.page), "exec", flags=flags, dont_inherit=True)
