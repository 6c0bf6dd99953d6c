"""`kedge config` about what people allowed."""

import asyncio

import kedge
from tests.cli.terminal import Terminal


async def allow(terminal: Terminal, *patterns: str) -> None:
    """Allow something for good in the terminal's project."""
    async with kedge.open(terminal.project, data_dir=terminal.data) as engine:
        session = await engine.sessions.create("s")
        async with session.turn("Work") as turn, engine.events.subscribe() as events:
            ask = engine.asks.permission(turn, "bash", patterns, always=patterns)
            asking = asyncio.create_task(ask)
            async for event in events:
                if event.type == "permission.asked":
                    id = event.properties.id  # type: ignore[union-attr]  # of this type
                    await engine.asks.reply_permission(id, "always", lasting=True)
                    break
            await asking


def test_what_was_allowed_is_listed_and_taken_back(terminal: Terminal) -> None:
    """One by one by its id, or all at once."""
    assert "nothing is allowed" in terminal.run("config", "--allowed").out
    asyncio.run(allow(terminal, "git *", "ls *\x1b[2J", "make *"))
    listed = terminal.run("config", "--allowed").out.splitlines()
    ids = [line.split()[0] for line in listed]
    assert [line.split("  ")[1] for line in listed] == [
        "bash: git *",
        "bash: ls *\\x1b[2J",
        "bash: make *",
    ]
    assert all("for good, since 2" in line for line in listed)
    done = terminal.run("config", "--forget", ids[0])
    assert (done.code, done.out) == (0, "revoked: bash: git *\n")
    done = terminal.run("config", "--forget", ids[0])
    assert (done.code, done.out) == (1, "")
    assert f"kedge: Permission rule not found: {ids[0]}" in done.err
    assert len(terminal.run("config", "--allowed").out.splitlines()) == 2
    done = terminal.run("config", "--forget-all")
    assert done.out.splitlines() == [
        "revoked: bash: ls *\\x1b[2J",
        "revoked: bash: make *",
    ]
    assert "nothing is allowed" in terminal.run("config", "--allowed").out
