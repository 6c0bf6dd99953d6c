"""Projects in which agents have worked, for commands to look at and to change."""

from pathlib import Path

import kedge
from kedge import Agent
from tests.cli.terminal import Terminal


async def prompts(terminal: Terminal, *texts: str, directory: Path | None = None) -> str:
    """A session in the project that was asked for this; its id."""
    async with (
        kedge.open(directory or terminal.project, data_dir=terminal.data) as engine,
        Agent(engine, environ={}) as agent,
    ):
        session = await engine.sessions.create("Two files")
        for text in texts:
            await agent.prompt(session, text, model="kedge/offline")
        return session.id


async def hostile_call(terminal: Terminal, path: str, text: str) -> None:
    """A tool whose name moves the cursor, and its session's title too, write a file."""
    evil = "\x1b[2J\n\tx"
    async with kedge.open(terminal.project, data_dir=terminal.data) as engine:
        session = await engine.sessions.create(evil)
        turn, paths = session.turn("x"), [path]
        async with turn, turn.step() as step, step.tool(evil, {}, reads=paths, writes=paths):
            (terminal.project / path).write_text(text)
