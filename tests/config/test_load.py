"""Files are found, laid over each other in order, and become one configuration."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.config.files import merge
from kedge.config.load import load_config, load_own_config, load_readable_config
from kedge.config.values import CompactionConfig, Config, Instruction
from kedge.domain.errors import ConfigInvalid
from tests.config.scene import Scene, everybody, put, rule

JSON = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), JSON, max_size=4)


def test_no_files_is_no_configuration(scene: Scene) -> None:
    """Without files everything has its default."""
    assert scene.load() == Config()


def test_files_count_in_order(scene: Scene) -> None:
    """The project wins over the user, the nearer folder over the outer, kedge over OpenCode."""
    names = [
        *("opencode/config.json", "opencode/opencode.json", "opencode/opencode.jsonc"),
        *("kedge/kedge.json", "kedge/kedge.jsonc"),
    ]
    inner = [
        *("opencode.json", "opencode.jsonc", ".opencode/opencode.json"),
        *(".opencode/opencode.jsonc", "kedge.json", "kedge.jsonc"),
    ]
    paths = [scene.home / ".config" / name for name in names]
    paths += [scene.project / name for name in inner]
    paths += [scene.project / "a" / "b" / name for name in inner]
    for n, path in enumerate(paths):
        put(path, {"model": f"m/{n}", "provider": {"p": {"models": {f"m{n}": {}}}}})
        config = scene.load(everybody, "a/b")
        assert config.model == f"m/{n}"
        assert list(config.provider["p"].models) == [f"m{each}" for each in range(n + 1)]
    assert config.files == tuple(str(path) for path in paths)
    assert scene.load(everybody).model == f"m/{len(names) + len(inner) - 1}"


def test_folders_above_the_worktree_do_not_count(scene: Scene) -> None:
    """Nothing above the worktree, nor beside the way to the directory, is read."""
    put(scene.project.parent / "opencode.json", {"model": "no/no"})
    put(scene.project / "other" / "opencode.json", {"model": "no/no"})
    (scene.project / "a").mkdir()
    assert scene.load(everybody, "a") == Config()


def test_a_directory_outside_of_the_worktree_stands_alone(scene: Scene) -> None:
    """Only its own files count then."""
    scene.write({"model": "no/no"})
    other = scene.project.parent / "other"
    put(other / "kedge.json", {"model": "yes/yes"})
    config = load_config(other, scene.project, environ=scene.environ, is_trusted=everybody)
    assert config.model == "yes/yes"


def test_the_config_home_can_be_elsewhere(scene: Scene, tmp_path: Path) -> None:
    """XDG_CONFIG_HOME counts if it is absolute."""
    put(tmp_path / "xdg" / "kedge" / "kedge.json", {"username": "there"})
    scene.own({"username": "here"})
    scene.environ["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    assert scene.load().username == "there"
    scene.environ["XDG_CONFIG_HOME"] = "relative"
    assert scene.load().username == "here"


def test_who_works_in_their_config_folder_is_trusted_there(scene: Scene) -> None:
    """The user's own file stays theirs when the folder it is in is the project."""
    scene.own({"shell": "/bin/zsh"}, "opencode/opencode.json")
    folder = scene.home / ".config" / "opencode"
    config = load_config(folder, folder, environ=scene.environ)
    assert config.shell == "/bin/zsh"
    assert len(config.files) == 1


def test_everything_that_is_known(scene: Scene) -> None:
    """Each key has its place in the configuration."""
    scene.own(
        {
            "$schema": "x",
            "theme": 5,
            "model": "a/b",
            "small_model": "a/c",
            "default_agent": "plan",
            "enabled_providers": ["a"],
            "disabled_providers": ["z"],
            "snapshot": False,
            "share": "disabled",
            "username": "me",
            "shell": "/bin/zsh",
            "instructions": ["a.md", "~/b.md"],
            "tools": {"glob": False},
            "tool_output": {"max_lines": 10},
            "compaction": {"threshold": 0.5, "prune": True},
            "provider": {
                "a": {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "A",
                    "env": ["A_KEY"],
                    "options": {"baseURL": "http://x", "timeout": False, "more": [1]},
                    "whitelist": ["b"],
                    "models": {
                        "b": {
                            "id": "b-1",
                            "limit": {"context": 1e5, "output": 10},
                            "cost": {"input": 1.5, "output": 2, "cache_read": 0.1},
                            "modalities": {"input": ["text", "image"]},
                            "variants": {"high": {"reasoningEffort": "high"}},
                            "headers": {"x": "y"},
                        }
                    },
                }
            },
            "agent": {"build": {"prompt": "p", "maxSteps": 5, "extra": 1, "color": "#fff000"}},
        }
    )
    config = scene.load()
    assert config.compaction == CompactionConfig(threshold=0.5, prune=True)
    provider = config.provider["a"]
    model = provider.models["b"]
    assert (config.model, config.small_model, config.default_agent) == ("a/b", "a/c", "plan")
    assert (config.enabled_providers, config.disabled_providers) == (("a",), ("z",))
    assert (config.snapshot, config.share, config.username) == (False, "disabled", "me")
    assert config.shell == "/bin/zsh"
    assert (config.tool_output.max_bytes, config.tool_output.max_lines) == (51_200, 10)
    assert [each.pattern for each in config.instructions] == ["a.md", f"{scene.home}/b.md"]
    assert provider.options == {"baseURL": "http://x", "timeout": False, "more": [1]}
    assert (provider.env, provider.whitelist) == (("A_KEY",), ("b",))
    assert model.limit is not None
    assert (model.id, model.limit.context) == ("b-1", 100_000)
    assert model.cost is not None
    assert (model.cost.input, model.cost.cache_read) == (1.5, 0.1)
    assert model.modalities is not None
    assert model.modalities.input == ("text", "image")
    assert config.agent["build"].steps == 5
    assert config.agent["build"].options == {"extra": 1}
    assert config.permission == (rule("glob", "*", "deny"),)
    assert config.raw["theme"] == 5
    assert config.notices == ()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("allow", [("*", "*", "allow")]),
        ({"edit": "ask"}, [("edit", "*", "ask")]),
        (
            {"bash": {"*": "ask", "git *": "allow"}, "edit": "deny"},
            [("bash", "*", "ask"), ("bash", "git *", "allow"), ("edit", "*", "deny")],
        ),
        ({"bash": "ask", "*": "allow"}, [("*", "*", "allow"), ("bash", "*", "ask")]),
        ({"edit": {"~/a/*": "deny"}}, [("edit", "HOME/a/*", "deny")]),
        (
            {"edit": {"$HOME": "deny", "$HOMEs": "ask"}},
            [("edit", "HOME", "deny"), ("edit", "$HOMEs", "ask")],
        ),
    ],
)
def test_permissions_become_rules(
    scene: Scene, given: object, expected: list[tuple[str, str, str]]
) -> None:
    """The order of the file is kept, but what is said of all comes before what is said of one."""
    scene.own({"permission": given})
    rules = [
        rule(name, text.replace("HOME", str(scene.home)) if text != "$HOMEs" else text, action)
        for name, text, action in expected
    ]
    assert list(scene.load().permission) == rules


def test_permissions_of_several_files_are_merged(scene: Scene) -> None:
    """A pattern keeps its place, and gets the action of the last file that names it."""
    scene.own({"permission": {"bash": {"*": "ask", "rm *": "deny"}}})
    scene.write({"permission": {"bash": {"*": "allow", "ls *": "ask"}}})
    assert scene.load(everybody).permission == (
        rule("bash", "*", "allow"),
        rule("bash", "rm *", "deny"),
        rule("bash", "ls *", "ask"),
    )


def test_switched_tools_are_permissions(scene: Scene) -> None:
    """All that edits is one permission, and what is written out wins."""
    scene.own({"tools": {"write": False, "bash": True}, "permission": {"bash": "ask"}})
    assert scene.load().permission == (rule("edit", "*", "deny"), rule("bash", "*", "ask"))


def test_old_spellings(scene: Scene) -> None:
    """`mode` and `autoshare` still count, but less than what took their place."""
    scene.own(
        {
            "mode": {"plan": {"prompt": "old", "model": "a/b"}},
            "agent": {"plan": {"prompt": "new", "steps": 2, "maxSteps": 9}},
            "autoshare": True,
        }
    )
    config = scene.load()
    plan = config.agent["plan"]
    assert (plan.prompt, plan.model, plan.steps) == ("new", "a/b", 2)
    assert config.share == "auto"


def test_instructions_are_added_up(scene: Scene) -> None:
    """Each counts once, wherever it is said."""
    scene.own({"instructions": ["a", "b"]})
    scene.write({"instructions": ["b", "c"]})
    root = str(scene.project)
    assert scene.load().instructions == (
        Instruction(pattern="a"),
        Instruction(pattern="b"),
        Instruction(pattern="c", root=root, trusted=False),
    )
    assert scene.load().raw["instructions"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ({"model": "noslash"}, "model"),
        ({"small_model": "/x"}, "small_model"),
        ({"agent": {"build": {"model": "x/"}}}, "agent.build.model"),
        ({"mode": {"plan": {"model": "{env:NAME}"}}}, "mode.plan.model"),
    ],
)
def test_a_model_without_a_provider(scene: Scene, value: dict[str, Any], key: str) -> None:
    """The error names the file, the line and the key, also if a variable brings the name."""
    scene.environ["NAME"] = "noslash"
    path = scene.own(value)
    with pytest.raises(ConfigInvalid, match='expected "provider/model", found') as caught:
        scene.load()
    assert str(caught.value).startswith(f"{path}:1: {key}: ")
    scene.environ["NAME"] = "a/b"
    path.write_text('{"model": "{env:NAME}", "small_model": "{env:MISSING}"}')
    assert (scene.load().model, scene.load().small_model) == ("a/b", "")


@pytest.mark.parametrize(
    "value",
    [
        {"permission": {"bash": {f"x{n}": "ask" for n in range(501)}}},
        {"permission": {f"x{n}": "ask" for n in range(501)}},
        {"tools": {f"x{n}": True for n in range(501)}},
        {
            "tools": {f"x{n}": True for n in range(167)},
            "permission": {"bash": {f"x{n}": "ask" for n in range(167)}},
            "agent": {"plan": {"permission": {f"x{n}": "ask" for n in range(167)}}},
        },
    ],
    ids=["patterns", "permissions", "tools", "together"],
)
def test_too_many_rules(scene: Scene, value: dict[str, Any]) -> None:
    """Each rule is looked at whenever something is decided, so a file has not thousands."""
    scene.write(value)
    with pytest.raises(ConfigInvalid, match="more than 500 rules"):
        scene.load()
    scene.write({"permission": {"bash": {f"x{n}": "ask" for n in range(500)}}})
    assert len(scene.load().restrictions[0]) == 500


@pytest.mark.parametrize(
    "value",
    [
        {"permission": {"bash": {"?" * 501: "ask"}}},
        {"permission": {"?" * 501: "ask"}},
        {"mode": {"plan": {"tools": {"?" * 501: True}}}},
    ],
    ids=["pattern", "permission", "tool"],
)
def test_a_pattern_that_is_too_long(scene: Scene, value: dict[str, Any]) -> None:
    """Nobody waits for it to be compared."""
    scene.write(value)
    with pytest.raises(ConfigInvalid, match="longer than 500 characters"):
        scene.load()
    scene.write({"permission": {"bash": {"?" * 500: "ask"}}})
    assert len(scene.load().restrictions) == 1


def test_words_that_are_not_known_are_left_out(scene: Scene) -> None:
    """A newer OpenCode may have more words; what kedge ignores is told."""
    path = scene.own(
        {"share": "sometimes", "provider": {"a": {"models": {"b": {"status": "new"}}}}}
    )
    config = scene.load()
    assert config.share == "manual"
    assert config.provider["a"].models["b"].status is None
    assert config.notices == (
        f"{path}: share is ignored: kedge does not know its value",
        f"{path}: provider.a.models.b.status is ignored: kedge does not know its value",
    )


@pytest.mark.parametrize(
    ("text", "line", "key", "why"),
    [
        (
            '{"provider": {"x": {"options":\n{"baseURL": 5}}}}',
            2,
            "provider.x.options.baseURL",
            "expected a string",
        ),
        ('{\n"model": null}', 2, "model", "expected a string"),
        (
            '{"permission": {"bash":\n{"a b": "maybe"}}}',
            2,
            'permission.bash."a b"',
            'expected "allow", "ask" or "deny"',
        ),
        (
            '{"permission": {"bash": {"a": {"b": "ask"}}}}',
            1,
            "permission.bash.a",
            'expected "allow", "ask" or "deny"',
        ),
        ('{"permission": []}', 1, "permission", 'expected "allow", "ask" or "deny", or an object'),
        (
            '{"permission": {"bash": "{env:HOME}"}}',
            1,
            "permission.bash",
            'expected "allow", "ask" or "deny", or an object',
        ),
        ('{"instructions": ["a",\n1]}', 2, "instructions[1]", "expected a string"),
        ('{"instructions": "a"}', 1, "instructions", "expected a list"),
        ('{"snapshot": "no"}', 1, "snapshot", "expected true or false"),
        (
            '{"tool_output": {"max_bytes": 0}}',
            1,
            "tool_output.max_bytes",
            "expected a whole number from 1 on",
        ),
        (
            '{"agent": {"plan": {"steps": 0}}}',
            1,
            "agent.plan.steps",
            "expected a whole number from 1 on",
        ),
        (
            '{"agent": {"plan": {"steps": true}}}',
            1,
            "agent.plan.steps",
            "expected a whole number that is not negative",
        ),
        (
            '{"agent": {"plan": {"temperature": -1}}}',
            1,
            "agent.plan.temperature",
            "expected a number that is not negative",
        ),
        (
            '{"provider": {"x": {"options": {"timeout": "5"}}}}',
            1,
            "provider.x.options.timeout",
            "expected a number of milliseconds, or false",
        ),
        (
            '{"provider": {"x": {"models": {"m": {"limit": {"context": 1e99}}}}}}',
            1,
            "provider.x.models.m.limit.context",
            "expected a whole number that is not negative",
        ),
        *(
            (
                f'{{"compaction": {{"threshold": {share}}}}}',
                1,
                "compaction.threshold",
                "expected a share above 0 and up to 1, for example 0.8",
            )
            for share in ("0", "1.01", '"80%"', "true")
        ),
        (
            '{"compaction": {"tail_turns": -1}}',
            1,
            "compaction.tail_turns",
            "expected a whole number that is not negative",
        ),
        ('{"provider": ["x"]}', 1, "provider", "expected an object"),
        ("[1]", 1, "", "expected an object"),
        ('{"model": "a/b",\n"model" }', 2, "", 'expected ":"'),
    ],
)
def test_mistakes_name_file_line_and_key(
    scene: Scene, text: str, line: int, key: str, why: str
) -> None:
    """Whoever wrote the file finds the place, in the user's file as in the project's."""
    for write in (scene.write, scene.own):
        path = write(text)
        with pytest.raises(ConfigInvalid) as caught:
            scene.load()
        place = f"{path}:{line}: {key}: " if key else f"{path}:{line}: "
        assert str(caught.value) == place + why
        assert (caught.value.path, caught.value.line, caught.value.key) == (str(path), line, key)
        path.unlink()


@pytest.mark.parametrize("text", ["", "\ufeff", "// nothing yet\n", "{}", '\ufeff{"model": "a/b"}'])
def test_little_is_enough(scene: Scene, text: str) -> None:
    """An empty file is one that says nothing; a byte order mark is not looked at."""
    path = scene.own(text)
    config = scene.load()
    assert config.files == (str(path),)
    assert config.model == ("a/b" if "model" in text else None)


def test_a_file_that_is_not_text(scene: Scene) -> None:
    """Bytes that are not UTF-8 are a mistake of the file."""
    path = scene.own("")
    path.write_bytes(b'{"model": "\xff"}')
    with pytest.raises(ConfigInvalid, match="is not UTF-8"):
        scene.load()


def test_the_same_line_for_a_client() -> None:
    """What a client is told has the place in it."""
    error = ConfigInvalid("/a", "expected a string", line=3, key="model")
    assert error.data == {
        "message": "/a:3: model: expected a string",
        "path": "/a",
        "line": 3,
        "key": "model",
    }


def flat(value: object, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every value that is no object, by where it stands; an empty object is one too."""
    if not isinstance(value, dict) or not value:
        return {path: value}
    return {
        at: leaf for key, item in value.items() for at, leaf in flat(item, (*path, key)).items()
    }


@given(OBJECTS, OBJECTS)
def test_merging_keeps_all_of_the_later(under: dict[str, Any], over: dict[str, Any]) -> None:
    """Whatever the later says is there; what only the earlier says is there too."""
    found = flat(merge(under, over))
    for at, leaf in flat(over).items():
        if leaf != {}:
            assert found[at] == leaf
    touched = {at[:n] for at in flat(over) for n in range(len(at) + 1)}
    for at, leaf in flat(under).items():
        if not any(at[:n] in flat(over) for n in range(1, len(at) + 1)) and at not in touched:
            assert found[at] == leaf


@given(OBJECTS, OBJECTS, OBJECTS)
def test_merging_changes_nothing_it_was_given(
    one: dict[str, Any], two: dict[str, Any], three: dict[str, Any]
) -> None:
    """It has no side effect, and nothing laid over something is that thing."""
    before = repr((one, two))
    made = merge(one, two)
    assert repr((one, two)) == before
    assert merge(made, {}) == made
    assert merge(made, made) == made
    assert list(merge(one, two))[: len(one)] == list(one)
    assert merge({}, three) == three


def test_a_broken_file_is_left_out_of_what_is_shown(scene: Scene) -> None:
    """The others count, and a notice names it; who works by the configuration is refused."""
    scene.own({"username": "ada"})
    path = scene.write('{"model": }')
    scene.write({"share": "disabled"}, "kedge.json")
    with pytest.raises(ConfigInvalid):
        scene.load()
    shown = load_readable_config(scene.project, scene.project, environ=scene.environ)
    assert (shown.username, shown.share) == ("ada", "disabled")
    assert shown.notices == (f"{path}:1: expected a value: the whole file is ignored",)


def test_the_users_own_files_are_shown_alone(scene: Scene) -> None:
    """Without those of a project, and without those that cannot be read."""
    scene.own({"username": "ada"})
    broken = scene.own("{", "kedge/kedge.json")
    scene.write({"share": "disabled"})
    own = load_own_config(scene.environ)
    assert (own.username, own.share) == ("ada", "manual")
    assert [str(broken) in notice for notice in own.notices] == [True]
