"""Finds code, links and headings of Markdown pages, runs Python blocks; prose is not looked at."""

import ast
import asyncio
import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token


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


def links(page: Path) -> list[str]:
    """Where the links of a page lead, in order."""
    return [str(child.attrs["href"]) for child in _inline(page) if child.type == "link_open"]


def anchors(page: Path) -> set[str]:
    """What a link can name after the `#`: the headings, in small letters with dashes."""
    tokens = _parser().parse(page.read_text(encoding="utf-8"))
    titles = [
        tokens[n + 1].content.lower()
        for n, token in enumerate(tokens)
        if token.type == "heading_open"
    ]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def code(page: Path) -> str:
    """Everything on a page that is written as code, in lines or in blocks."""
    tokens = _parser().parse(page.read_text(encoding="utf-8"))
    spans = [child.content for child in _inline(page) if child.type == "code_inline"]
    return "\n".join(spans + [token.content for token in tokens if token.type == "fence"])


def _inline(page: Path) -> list[Token]:
    tokens = _parser().parse(page.read_text(encoding="utf-8"))
    return [child for token in tokens for child in token.children or ()]


def _parser() -> MarkdownIt:
    return MarkdownIt().enable("table")


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
