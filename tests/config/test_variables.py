"""`{env:NAME}` and `{file:path}` in files that are trusted."""

import pytest

from kedge.domain.errors import ConfigInvalid
from tests.config.scene import Scene, put


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("{env:NAME}", "value"),
        ("a{env:NAME}b{env: NAME }", "avaluebvalue"),
        ("{env:MISSING}", ""),
        ("{env:NESTED}", "{env:NAME}"),
        ("{file:nested.txt}", "{env:NAME} {file:key.txt}"),
        ("{file:key.txt}", "key"),
        ("{file:./sub/../key.txt}", "key"),
        ("{file:~/home.txt}", "at home"),
        ("{file:mark.txt}", "marked"),
        ("x {file:key.txt} {env:NAME}", "x key value"),
        ("{ENV:NAME} {env:} {other:x} {env:NAME", "{ENV:NAME}  {other:x} {env:NAME"),
    ],
)
def test_tokens_are_replaced_once(scene: Scene, given: str, expected: str) -> None:
    """Files are found from the file that names them, and trimmed; nothing is replaced twice."""
    scene.environ |= {"NAME": "value", "NESTED": "{env:NAME}"}
    folder = scene.home / ".config" / "opencode"
    put(folder / "key.txt", "\nkey\n")
    put(folder / "nested.txt", "{env:NAME} {file:key.txt}")
    put(folder / "mark.txt", "\ufeffmarked")
    put(scene.home / "home.txt", "at home")
    scene.own({"username": given, "agent": {"{env:NAME}": {}}})
    config = scene.load()
    assert config.username == expected
    assert list(config.agent) == ["{env:NAME}"]


def test_an_absolute_path(scene: Scene) -> None:
    """A path may be written out."""
    path = put(scene.home / "key", "k")
    scene.own({"provider": {"x": {"options": {"apiKey": f"{{file:{path}}}"}}}})
    assert scene.load().provider["x"].options == {"apiKey": "k"}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing", "there is no file {folder}/missing"),
        ("", "the file {folder} is not a regular file"),
        (".", "the file {folder} is not a regular file"),
        ("binary", "the file {folder}/binary is not UTF-8"),
        ("large", "the file {folder}/large is larger than 1048576 bytes"),
        ("/dev/zero", "the file /dev/zero is not a regular file"),
        ("a\0b", "the file {folder}/a\ufffdb has a name that no file can have"),
        ("x" * 300, "cannot be read (File name too long)"),
    ],
)
def test_a_file_that_cannot_be_included(scene: Scene, name: str, why: str) -> None:
    """The error names the file, the line and the key that wanted it."""
    folder = scene.home / ".config" / "opencode"
    put(folder / "large", "x" * 1_048_577)
    (folder / "binary").write_bytes(b"\xff\xfe")
    path = scene.own({"provider": {"x": {"options": {"apiKey": f"{{file:{name}}}"}}}})
    with pytest.raises(ConfigInvalid) as caught:
        scene.load()
    message = str(caught.value).replace("\0", "\ufffd")
    assert message.startswith(f"{path}:1: provider.x.options.apiKey: ")
    assert why.format(folder=folder) in message


def test_a_file_that_may_not_be_read(scene: Scene) -> None:
    """A configuration that cannot be read says so; a folder in its place likewise."""
    path = scene.home / ".config" / "opencode" / "opencode.json"
    path.mkdir(parents=True)
    with pytest.raises(ConfigInvalid, match="the file is not a regular file"):
        scene.load()
    path.rmdir()
    path.symlink_to(path)
    with pytest.raises(ConfigInvalid, match="the file cannot be read"):
        scene.load()
