"""What is shown of a configuration, and what is not."""

import json

import pytest

from kedge.config.display import HIDDEN, redacted

SECRET = "s3cret"


@pytest.mark.parametrize(
    "raw",
    [
        {"provider": {"x": {"options": {"apiKey": SECRET}}}},
        {"provider": {"x": {"options": {"headers": {"x-any": SECRET}}}}},
        {"provider": {"x": {"options": {"baseURL": f"https://u:{SECRET}@h/v1"}}}},
        {"provider": {"x": {"options": {"baseURL": f"https://h/v1?key={SECRET}"}}}},
        {"provider": {"x": {"options": {"baseURL": f"https://[{SECRET}/v1"}}}},
        {"provider": {"x": {"options": {"anything": SECRET}}}},
        {"provider": {"x": {"options": {"deep": {"accessToken": SECRET}}}}},
        {"provider": {"x": {"api": f"https://{SECRET}@h"}}},
        {"provider": {"x": {"models": {"m": {"headers": {"a": SECRET}}}}}},
        {"mcp": {"x": {"environment": {"A": SECRET}}}},
        {"mcp": {"x": {"env": {"A": SECRET}}}},
        {"mcp": {"x": {"headers": {"Authorization": SECRET}}}},
        {"mcp": {"x": {"oauth": {"clientSecret": SECRET}}}},
        {"mcp": {"x": {"command": ["run", f"--key={SECRET}"]}}},
        {"mcp": {"x": {"url": f"https://h/?t={SECRET}"}}},
        {"server": {"password": SECRET}},
        {"somewhere": [{"secret": [SECRET]}]},
        {"github_token": SECRET},
    ],
    ids=json.dumps,
)
def test_secrets_are_hidden(raw: dict[str, object]) -> None:
    """Neither keys, nor headers, nor what is in an address is shown."""
    before = json.dumps(raw)
    shown = json.dumps(redacted(raw))
    assert SECRET not in shown
    assert HIDDEN in shown
    assert json.dumps(raw) == before


def test_all_else_is_shown() -> None:
    """What is no secret is as it was."""
    raw = {
        "model": "a/b",
        "provider": {
            "x": {
                "env": ["X_KEY"],
                "options": {"baseURL": "https://h/v1", "timeout": 5, "setCacheKey": True},
                "models": {"m": {"limit": {"context": 5}, "options": {"max_tokens": 7}}},
            }
        },
        "keybinds": {"leader": "ctrl+x"},
        "permission": {"bash": {"git *": "allow"}},
        "mcp": {"x": {"command": ["run"], "enabled": False}},
        "instructions": ["https://h/x.md"],
    }
    assert redacted(raw) == raw
