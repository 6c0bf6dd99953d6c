"""Where recordings are played: folders, a configuration and a model like those of the recording."""

import dataclasses
import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from kedge.agent.model_input import NO_WORDS
from kedge.server import ServerSettings, serving
from tests.server.replay import Player, Reading
from tests.server.replay_names import Names
from tests.server.replay_recorder import two_streams
from tests.server.world import Client
from tests.support.model_server import (
    ModelServer,
    Refusal,
    Reply,
    Request,
    Text,
    Wait,
    recorded,
)
from tests.support.timeouts import PATIENCE

PASSWORD = "secret"
_PIECES_AT_ONCE = 3
"""How much a slow model says before it waits."""
SERVERS: Mapping[str, Any] = {
    "first": "allow",
    "asking": {"edit": "ask", "bash": "ask"},
    "locked": "allow",
}
"""The names of the servers, with the permissions that are configured."""


_GIT = {
    "PATH": os.defpath,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_NAME": "a" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "a@example.com" for who in ("AUTHOR", "COMMITTER")},
    # Projects are listed by their ids, which begin with the first commit.
    **{f"GIT_{who}_DATE": "2026-01-01T00:00:00Z" for who in ("AUTHOR", "COMMITTER")},
}


class RecordedModel(ModelServer):
    """The model of the recordings; where it was slow, it waits until it may go on."""

    def __init__(self) -> None:
        super().__init__(self._reply_as_recorded)
        self._waits = 0
        self.prompt = ""
        """How the newest prompt begins."""

    def go_on(self) -> None:
        """Let the newest answer go on."""
        self.release(str(self._waits))

    def _reply_as_recorded(self, request: Request) -> Reply:
        reply = recorded(self._newest_alone(request))
        if isinstance(reply, Refusal):
            # What may be tried again is not, before the recording goes on.
            wait = {"retry-after": str(int(PATIENCE))} if reply.status == 503 else {}
            return msgspec.structs.replace(reply, headers=wait)
        if not reply.pace:
            return reply
        (said,) = reply.items
        assert isinstance(said, Text)
        self._waits += 1
        items = (
            Text(pieces=said.pieces[:_PIECES_AT_ONCE]),
            Wait(name=str(self._waits)),
            Text(pieces=said.pieces[_PIECES_AT_ONCE:]),
        )
        return msgspec.structs.replace(reply, items=items, pace=0)

    def _newest_alone(self, request: Request) -> Request:
        """kedge sends prompts that follow each other as one message, OpenCode as several; and one
        without words as a message that says so, OpenCode not at all: then the newest is the one
        before it."""
        messages = request.body["messages"]
        *earlier, at = [index for index, each in enumerate(messages) if each["role"] == "user"]
        _, newest, rest = request.prompt.rpartition(self.prompt)
        alone = {"role": "user", "content": newest + rest}
        if alone["content"] == NO_WORDS[0].text:
            alone = messages[earlier[-1]]
        body = {**request.body, "messages": [*messages[:at], alone, *messages[at + 1 :]]}
        return dataclasses.replace(request, body=body)


def make_folders(home: Path) -> Path:
    """The project with one commit, and two folders without git beside it."""
    project = home / "project"
    for name in ("project", "other", "nogit"):
        (home / name).mkdir()
    (project / "a.txt").write_text("one\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "one")):
        subprocess.run(["git", *words], cwd=project, env=_GIT, check=True, capture_output=True)
    return project


def write_config(home: Path, server: str, model_url: str) -> dict[str, str]:
    """An environment whose configuration is that of the recording; it is the person's own."""
    model = {
        "id": "fake-model",
        "name": "Fake Model",
        "release_date": "2025-01-01",
        "attachment": False,
        "reasoning": False,
        "temperature": False,
        "tool_call": True,
        "cost": {"input": 1, "output": 2},
        "limit": {"context": 100000, "output": 10000},
        "options": {},
    }
    provider = {
        "name": "Fake",
        "npm": "@ai-sdk/openai-compatible",
        "env": [],
        "options": {"apiKey": "test-key", "baseURL": model_url},
        "models": {"fake-model": model},
    }
    config = {
        "$schema": "https://opencode.ai/config.json",
        "command": {"hello": {"template": "say hello $ARGUMENTS", "description": "say hello"}},
        "share": "manual",
        "autoupdate": False,
        "enabled_providers": ["fake"],
        "model": "fake/fake-model",
        "small_model": "fake/fake-model",
        "provider": {"fake": provider},
        "formatter": False,
        "lsp": False,
        "permission": SERVERS[server],
    }
    path = home / ".config" / "opencode" / "opencode.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(config))
    return {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin"}


def names_of(home: Path, url: str, model_url: str) -> Names:
    """What the names of folders and addresses stand for."""
    folders = {name: str(home / name) for name in ("project", "other", "nogit")}
    return Names(
        {
            **folders,
            **{f"{name} path": path[1:] for name, path in folders.items()},
            **{f"{name} encoded": quote(path, safe="") for name, path in folders.items()},
            "home": str(home),
            "data": str(home / "data"),
            "server": url,
            "model": model_url,
        }
    )


@asynccontextmanager
async def stage(home: Path, server: str, reading: Reading) -> AsyncIterator[Player]:
    """A kedge server like the one of a recording, and a player on it."""
    project = make_folders(home)
    password = PASSWORD if server == "locked" else None
    async with (
        RecordedModel() as model,
        serving(
            project,
            settings=ServerSettings(port=0, password=password),
            data_dir=home / "data",
            environ=write_config(home, server, model.url),
        ) as running,
        AsyncExitStack() as more,
    ):
        client = Client(running.url, {})
        streams = None if password else await more.enter_async_context(two_streams(client))
        yield Player(
            client=client,
            folder=project,
            names=names_of(home, running.url, model.url),
            model=model,
            streams=streams,
            reading=reading,
        )
