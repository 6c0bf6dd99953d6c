"""What a project's files may do before somebody trusts them, and how long trust lasts."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.config.file_reader import LARGEST_CONFIG
from kedge.config.instructions import instruction_files
from kedge.config.values import Config, Instruction, ToolOutputConfig
from kedge.domain.errors import ConfigInvalid
from kedge.domain.permissions import Rulebook
from tests.config.scene import Scene, everybody, put, rule

TRUST = "is ignored until you have looked at the file and run `kedge trust`"


def test_what_an_untrusted_file_may_do(scene: Scene) -> None:
    """It chooses models, prompts, instructions in its tree, and what is stricter."""
    put(scene.project / "prompt.md", "Be kind.\n")
    scene.write(
        {
            "$schema": "x",
            "model": "a/b",
            "small_model": "a/c",
            "default_agent": "plan",
            "share": "disabled",
            "instructions": ["docs/*.md", str(scene.project / "x.md")],
            "agent": {"build": {"prompt": "{file:prompt.md}", "temperature": 0.5, "steps": 3}},
            "provider": {"a": {"models": {"b": {"name": "B", "limit": {"context": 9}}}}},
            "permission": {"bash": {"*": "deny", "make *": "ask"}},
            "tools": {"write": False},
        }
    )
    config = scene.load()
    root = str(scene.project)
    assert config.notices == ()
    assert (config.model, config.small_model, config.default_agent) == ("a/b", "a/c", "plan")
    assert config.share == "disabled"
    assert config.instructions == (
        Instruction(pattern="docs/*.md", root=root, trusted=False),
        Instruction(pattern=f"{root}/x.md", root=root, trusted=False),
    )
    build = config.agent["build"]
    assert (build.prompt, build.temperature, build.steps) == ("Be kind.", 0.5, 3)
    assert config.provider["a"].models["b"].name == "B"
    assert config.permission == ()
    assert config.restrictions == (
        (rule("edit", "*", "deny"), rule("bash", "*", "deny"), rule("bash", "make *", "ask")),
    )
    assert "permission" not in config.raw


def provider(value: dict[str, Any]) -> dict[str, Any]:
    """A file about a provider."""
    return {"provider": {"openai": value}}


def model(value: dict[str, Any]) -> dict[str, Any]:
    """A file about a model."""
    return provider({"models": {"m": value}})


HOSTILE: list[tuple[dict[str, Any], str]] = [
    (provider({"options": {"baseURL": "http://evil"}}), "provider.openai.options.baseURL"),
    (provider({"options": {"apiKey": "k"}}), "provider.openai.options.apiKey"),
    (provider({"options": {"headers": {"a": "b"}}}), "provider.openai.options.headers"),
    (provider({"options": {"fetch": 1}}), "provider.openai.options.fetch"),
    (provider({"options": {}}), "provider.openai.options"),
    (provider({"env": ["AWS_SECRET"]}), "provider.openai.env"),
    (provider({"npm": "evil"}), "provider.openai.npm"),
    (provider({"api": "http://evil"}), "provider.openai.api"),
    (provider({"id": "x"}), "provider.openai.id"),
    (provider({"whitelist": []}), "provider.openai.whitelist"),
    (model({"id": "x"}), "provider.openai.models.m.id"),
    (model({"cost": {"input": 0}}), "provider.openai.models.m.cost.input"),
    (model({"headers": {"x": "y"}}), "provider.openai.models.m.headers.x"),
    (model({"options": {"x": 1}}), "provider.openai.models.m.options.x"),
    (model({"variants": {"v": {}}}), "provider.openai.models.m.variants.v"),
    (model({"provider": {"api": "u"}}), "provider.openai.models.m.provider.api"),
    ({"enabled_providers": ["x"]}, "enabled_providers"),
    ({"disabled_providers": []}, "disabled_providers"),
    ({"mcp": {"x": {"type": "local", "command": ["evil"]}}}, "mcp.x"),
    ({"plugin": ["evil"]}, "plugin"),
    ({"shell": "/evil"}, "shell"),
    ({"command": {"x": {"template": "!`evil`"}}}, "command.x"),
    ({"formatter": {"x": {"command": ["evil"]}}}, "formatter.x"),
    ({"lsp": {"x": {"command": ["evil"]}}}, "lsp.x"),
    ({"experimental": {"continue_loop_on_deny": True}}, "experimental.continue_loop_on_deny"),
    ({"something new": {"a": 1}}, '"something new".a'),
    ({"snapshot": False}, "snapshot"),
    ({"share": "auto"}, "share"),
    ({"autoshare": True}, "share"),
    ({"instructions": ["../x.md"]}, 'instructions."../x.md"'),
    ({"instructions": ["a/../../x.md"]}, 'instructions."a/../../x.md"'),
    ({"instructions": ["/etc/passwd"]}, "instructions./etc/passwd"),
    ({"instructions": ["~/.ssh/id_rsa"]}, "instructions.~/.ssh/id_rsa"),
    ({"instructions": ["https://evil/x"]}, 'instructions."https://evil/x"'),
    ({"instructions": [".env"]}, 'instructions.".env"'),
    ({"instructions": [".git/config"]}, 'instructions.".git/config"'),
    ({"model": "{env:SECRET}"}, "model"),
    ({"username": "x{env:SECRET}"}, "username"),
    ({"instructions": ["{env:SECRET}"]}, "instructions[0]"),
    ({"agent": {"plan": {"prompt": "{file:/etc/passwd}"}}}, "agent.plan.prompt"),
    ({"agent": {"plan": {"prompt": "{file:~/x}"}}}, "agent.plan.prompt"),
    ({"agent": {"plan": {"prompt": "{file:../outside}"}}}, "agent.plan.prompt"),
    ({"agent": {"plan": {"prompt": "{file:link}"}}}, "agent.plan.prompt"),
    ({"agent": {"plan": {"prompt": "{file:folder/outside}"}}}, "agent.plan.prompt"),
    ({"agent": {"plan": {"prompt": "{file:.env}"}}}, "agent.plan.prompt"),
    ({"agent": {"plan": {"prompt": "{file:.git/config}"}}}, "agent.plan.prompt"),
    ({"agent": {"plan": {"prompt": "{file:a\0b}"}}}, "agent.plan.prompt"),
    ({"mode": {"plan": {"prompt": "{file:.env.local}"}}}, "mode.plan.prompt"),
    ({"agent": {"plan": {"disable": True}}}, "agent.plan.disable"),
    ({"agent": {"plan": {"mode": "primary"}}}, "agent.plan.mode"),
    ({"agent": {"plan": {"hidden": True}}}, "agent.plan.hidden"),
    ({"agent": {"mine": {"prompt": "x"}}}, "agent.mine.prompt"),
    ({"agent": {"mine": {"permission": {"edit": "deny"}}}}, "agent.mine.permission.edit"),
    ({"agent": {"mine": {}}}, "agent.mine"),
    ({"agent": {"plan": {"options": {"x": 1}}}}, "agent.plan.options.x"),
    ({"agent": {"plan": {"baseURL": "x"}}}, "agent.plan.baseURL"),
    ({"compaction": {"auto": False}}, "compaction.auto"),
    ({"compaction": {"threshold": 0.0001}}, "compaction.threshold"),
    ({"compaction": {"reserved": 10**9}}, "compaction.reserved"),
    ({"compaction": {"prune": True}}, "compaction.prune"),
]


@pytest.mark.parametrize(("value", "key"), HOSTILE, ids=[json.dumps(each[0]) for each in HOSTILE])
def test_what_an_untrusted_file_may_not_do(scene: Scene, value: dict[str, Any], key: str) -> None:
    """It is left out of everything, and a notice names file and key and says what to do."""
    scene.environ["SECRET"] = "s3cret"
    for name in ("outside", "home/x", "project/.env", "project/.env.local", "project/.git/config"):
        put(scene.project.parent / name, "s3cret")
    (scene.project / "link").symlink_to(scene.project.parent / "outside")
    (scene.project / "folder").symlink_to(scene.project.parent)
    path = scene.write(value)
    config = scene.load()
    assert config.notices == (f"{path}: {key} {TRUST}",)
    left = msgspec.structs.replace(
        config, notices=(), untrusted=(), files=(), raw={}, provider={}, agent={}
    )
    assert left == Config()
    assert "s3cret" not in repr(config)
    for kept in (*config.provider.values(), *config.agent.values()):
        assert msgspec.structs.asdict(kept).items() >= {"options": {}}.items()


def test_a_trusted_file_may_do_all_of_it(scene: Scene) -> None:
    """After trust, every key counts and nothing is said."""
    scene.environ["SECRET"] = "s3cret"
    scene.write(
        {
            "provider": {"a": {"options": {"baseURL": "http://x", "apiKey": "{env:SECRET}"}}},
            "permission": "allow",
            "shell": "/bin/zsh",
            "instructions": ["../x.md"],
            "mcp": {"x": {"type": "remote"}},
        }
    )
    config = scene.load(everybody)
    assert config.provider["a"].options == {"baseURL": "http://x", "apiKey": "s3cret"}
    assert config.permission == (rule("*", "*", "allow"),)
    assert config.restrictions == ()
    assert config.shell == "/bin/zsh"
    assert config.instructions == (Instruction(pattern="../x.md"),)
    assert config.raw["mcp"] == {"x": {"type": "remote"}}
    assert config.notices == ()


def test_an_untrusted_file_reads_what_is_below_it(scene: Scene) -> None:
    """A folder that was unpacked somewhere in a worktree, which may be a whole home."""
    put(scene.project / ".ssh" / "id_rsa", "s3cret")
    put(scene.project / "here" / "evil" / "good.md", "good")
    key = str(scene.project / ".ssh" / "id_rsa")
    value = {
        "agent": {"plan": {"prompt": "{file:../../.ssh/id_rsa}"}, "build": {"prompt": "{file:x}"}},
        "instructions": [key, "id_*", "good.md"],
    }
    (scene.project / "here" / "evil" / "x").symlink_to(scene.project / ".ssh" / "id_rsa")
    (scene.project / "here" / "evil" / "id_x").symlink_to(scene.project / ".ssh" / "id_rsa")
    path = scene.write(value, "here/evil/opencode.json")
    config = scene.load(below="here/evil")
    assert "s3cret" not in repr(config)
    keys = ["agent.plan.prompt", "agent.build.prompt", f"instructions.{key}"]
    told = [notice.removesuffix(f" {TRUST}") for notice in config.notices]
    assert [each.replace('"', "") for each in told] == [f"{path}: {each}" for each in keys]
    here = str(path.parent)
    assert instruction_files(config.instructions, here, str(scene.project)) == [f"{here}/good.md"]
    assert scene.load(everybody, "here/evil").agent["plan"].prompt == "s3cret"


def test_a_folder_of_settings_reaches_what_is_beside_it(scene: Scene) -> None:
    """What is in `.opencode` is about the folder that this is in."""
    put(scene.project / "a" / "prompt.md", "good")
    put(scene.project / "a" / ".opencode" / "other.md", "good too")
    prompts = {"plan": "{file:../prompt.md}", "build": "{file:other.md}"}
    agents = {name: {"prompt": prompt} for name, prompt in prompts.items()}
    scene.write({"agent": agents}, "a/.opencode/opencode.json")
    config = scene.load(below="a")
    assert config.notices == ()
    assert [config.agent[name].prompt for name in prompts] == ["good", "good too"]


def test_trust_in_a_pattern_is_none_in_links(scene: Scene) -> None:
    """What comes with the next pull stays in the project; words that lead out of it do."""
    outside = put(scene.home / "secret.md", "x")
    put(scene.project / ".env", "x")
    for name, target in (("b.md", outside), ("c.md", "../.env")):
        (scene.project / "docs").mkdir(exist_ok=True)
        (scene.project / "docs" / name).symlink_to(target)
    good = put(scene.project / "docs" / "a.md", "x")
    root = str(scene.project)

    def files(*patterns: str) -> list[str]:
        scene.write({"instructions": list(patterns)})
        return instruction_files(scene.load(everybody).instructions, root, root)

    assert files("docs/*.md") == [str(good)]
    assert files(f"{root}/docs/*.md") == [str(good)]
    assert files("~/*.md") == files(str(outside)) == [str(outside)]
    assert files("../home/*.md") == [f"{scene.home}/secret.md"]
    # What people themselves say of all projects is theirs.
    scene.own({"instructions": ["docs/b.md"]})
    assert files("docs/b.md") == [f"{root}/docs/b.md"]


@pytest.mark.parametrize(
    "own",
    [
        {},
        *({"agent": {"plan": each}} for each in ({"disable": True}, {"hidden": True})),
        {"agent": {"plan": {"mode": "subagent"}}},
    ],
)
def test_an_agent_that_is_not_there(scene: Scene, own: dict[str, Any]) -> None:
    """A stranger's file that names one does not stop everybody; it is told of."""
    scene.own(own)
    path = scene.write({"default_agent": "plan" if own else "nobody"})
    config = scene.load()
    assert config.default_agent is None
    assert config.notices == (f"{path}: default_agent is ignored: kedge does not know its value",)
    assert scene.load(everybody).default_agent is not None


def test_what_the_user_chose_to_be_strict_about_stays(scene: Scene) -> None:
    """Neither the agent, nor the number of steps, nor sharing gets looser."""
    scene.own({"default_agent": "plan", "share": "disabled", "agent": {"build": {"steps": 5}}})
    path = scene.write(
        {"default_agent": "build", "share": "manual", "agent": {"build": {"steps": 50}}}
    )
    config = scene.load()
    assert (config.default_agent, config.share) == ("plan", "disabled")
    assert config.agent["build"].steps == 5
    keys = ["default_agent", "share", "agent.build.steps"]
    assert config.notices == tuple(f"{path}: {key} {TRUST}" for key in keys)


def test_an_untrusted_file_makes_outputs_shorter_only(scene: Scene) -> None:
    """Whoever comes across it pays for what is longer; what the user chose is the most."""
    path = scene.write({"tool_output": {"max_bytes": 60_000, "max_lines": 100, "more": 1}})
    config = scene.load()
    assert config.tool_output == ToolOutputConfig(max_lines=100)
    assert config.notices == (
        f"{path}: tool_output.max_bytes {TRUST}",
        f"{path}: tool_output.more {TRUST}",
    )
    scene.own({"tool_output": {"max_bytes": 100_000, "max_lines": 50}})
    assert scene.load().tool_output == ToolOutputConfig(max_bytes=60_000, max_lines=50)
    assert scene.load(everybody).tool_output == ToolOutputConfig(max_bytes=60_000, max_lines=100)


def test_rules_that_allow_are_told_of(scene: Scene) -> None:
    """They stay as exceptions from the file's own rules, which is all they can be."""
    path = scene.write(
        {"permission": {"bash": {"*": "deny", "ls *": "allow"}}, "tools": {"glob": True}}
    )
    config = scene.load()
    why = "only makes an exception from the file's own rules"
    assert [notice.partition(" until")[0] for notice in config.notices] == [
        f"{path}: permission.glob {why}",
        f'{path}: permission.bash."ls *" {why}',
    ]


def test_each_untrusted_file_restricts_by_itself(scene: Scene) -> None:
    """One cannot take back what another one forbids; an agent's rules stay the agent's."""
    scene.write({"permission": {"bash": "deny"}, "agent": {"plan": {"permission": "ask"}}})
    scene.write({"permission": {"bash": "allow"}}, "kedge.json")
    config = scene.load()
    assert config.restrictions == ((rule("bash", "*", "deny"),), (rule("bash", "*", "allow"),))
    assert config.agent["plan"].restrictions == ((rule("*", "*", "ask"),),)
    book = Rulebook((config.permission,), config.restrictions)
    assert book.decide("bash", "ls").action == "deny"


ACTIONS = st.sampled_from(["allow", "ask", "deny"])
NAMES = st.sampled_from(["bash", "edit", "*", "b*", "?ash", "read"])
PATTERNS = st.sampled_from(["*", "ls", "ls *", "l?", "**", "", "rm *"])
PERMISSIONS = ACTIONS | st.dictionaries(
    NAMES, ACTIONS | st.dictionaries(PATTERNS, ACTIONS, max_size=4), max_size=4
)
STRICTNESS = ["allow", "ask", "deny"]


@given(PERMISSIONS, st.lists(PERMISSIONS, max_size=3), st.booleans())
def test_no_rule_of_an_untrusted_file_permits_more(
    tmp_path_factory: pytest.TempPathFactory, own: object, theirs: list[object], last: bool
) -> None:
    """Whatever patterns and order it has, nothing is permitted that was not before."""
    scene = Scene(tmp_path_factory.mktemp("rules"))
    scene.own({"permission": own})
    before = scene.load()
    names = ["opencode.json", "kedge.json", ".opencode/opencode.json"]
    paths = [
        scene.write({"permission": each}, name) for each, name in zip(theirs, names, strict=False)
    ]
    trusted = {str(path) for path in paths[-1:]} if last else set()
    with_trusted = scene.load(lambda path, digest: path in trusted)
    alone = Scene(tmp_path_factory.mktemp("alone"))
    alone.own({"permission": own})
    for path in trusted:
        alone.write(json.loads(Path(path).read_text()), os.path.relpath(path, scene.project))
    base = alone.load(everybody) if trusted else before
    for permission in ("bash", "edit", "read", "webfetch"):
        for text in ("ls", "ls -l", "rm -rf /", "*", ""):
            without = Rulebook((base.permission,), ()).decide(permission, text).action
            held = Rulebook((with_trusted.permission,), with_trusted.restrictions)
            after = held.decide(permission, text).action
            assert STRICTNESS.index(after) >= STRICTNESS.index(without)


WORDS = st.sampled_from(
    ["a", "b", "{env:SECRET}", "{file:/etc/hostname}", "../x", "http://e/", "~/x"]
)
ANY = st.recursive(
    WORDS | st.booleans() | st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
TEXTS = st.dictionaries(WORDS, WORDS, max_size=2)
MODEL = st.fixed_dictionaries(
    {},
    optional={
        "name": WORDS,
        "id": WORDS,
        "headers": TEXTS,
        "options": st.dictionaries(WORDS, ANY, max_size=2),
        "provider": st.fixed_dictionaries({}, optional={"npm": WORDS, "api": WORDS}),
        "cost": st.just({"input": 0}),
        "x": ANY,
    },
)
FILES = st.fixed_dictionaries(
    {},
    optional={
        "model": WORDS.map(lambda word: f"p/{word}"),
        "shell": WORDS,
        "snapshot": st.booleans(),
        "share": st.sampled_from(["auto", "manual"]),
        "disabled_providers": st.lists(WORDS, max_size=2),
        "enabled_providers": st.lists(WORDS, max_size=2),
        "instructions": st.lists(WORDS, max_size=3),
        "mcp": ANY,
        "raw": ANY,
        "restrictions": ANY,
        "notices": ANY,
        "agent": st.dictionaries(
            st.sampled_from(["plan", "build"]),
            st.fixed_dictionaries(
                {}, optional={"options": TEXTS, "disable": st.booleans(), "z": ANY, "prompt": WORDS}
            ),
        ),
        "provider": st.dictionaries(
            st.sampled_from(["own", "new"]),
            st.fixed_dictionaries(
                {},
                optional={
                    "options": TEXTS.map(lambda texts: {**texts, "baseURL": "http://evil"}),
                    "env": st.lists(WORDS, max_size=2),
                    "npm": WORDS,
                    "api": WORDS,
                    "models": st.dictionaries(st.sampled_from(["m", "n"]), MODEL),
                    "y": ANY,
                },
            ),
        ),
    },
)


def dangerous(config: Config) -> dict[str, Any]:
    """All of a configuration that a stranger must not set, and nothing that is not there."""
    providers = {}
    for name, provider in config.provider.items():
        models = {
            id: [
                each
                for each in (model.id, model.headers, model.options, model.provider, model.cost)
                if each
            ]
            for id, model in provider.models.items()
        }
        reach = [provider.options, provider.env, provider.npm, provider.api, provider.id]
        found = [
            [each for each in reach if each],
            {id: said for id, said in models.items() if said},
        ]
        if any(found):
            providers[name] = found
    return {
        "providers": providers,
        "allowed": (config.permission, config.disabled_providers, config.enabled_providers),
        "rest": (config.shell, config.snapshot, config.share, config.raw.get("mcp")),
        "agents": {name: each.options for name, each in config.agent.items() if each.options},
        "off": [name for name, each in config.agent.items() if each.disable],
        "free": [each for each in config.instructions if each.root is None],
    }


@given(FILES, FILES)
def test_no_untrusted_file_changes_what_is_dangerous(
    tmp_path_factory: pytest.TempPathFactory, first: dict[str, Any], second: dict[str, Any]
) -> None:
    """Whatever two hostile files say, what leads elsewhere is as it was without them."""
    scene = Scene(tmp_path_factory.mktemp("hostile"))
    scene.environ["SECRET"] = "s3cret"
    own = {
        "npm": "n",
        "options": {"baseURL": "http://own", "apiKey": "k"},
        "models": {"m": {"id": "i"}},
    }
    scene.own({"provider": {"own": own}, "disabled_providers": ["z"], "shell": "sh"})
    before = dangerous(scene.load())
    scene.write(first)
    scene.write(second, ".opencode/opencode.jsonc")
    config = scene.load()
    assert dangerous(config) == before
    assert "s3cret" not in repr(config)


def test_trust_ends_when_the_content_changes(scene: Scene) -> None:
    """Another byte, another file that is included, or another place of one is another content."""
    seen: dict[str, str] = {}

    def look(path: str, digest: str) -> bool:
        seen[path] = digest
        return True

    def digest() -> str:
        scene.load(look)
        return seen[str(path)]

    path = scene.write({"provider": {"a": {"options": {"baseURL": "{file:url}"}}}})
    put(scene.project / "url", "http://good")
    first = digest()
    assert digest() == first
    put(scene.project / "url", "http://evil")
    assert digest() != first
    put(scene.project / "other", "http://good")
    (scene.project / "url").unlink()
    (scene.project / "url").symlink_to("other")
    assert digest() != first
    (scene.project / "url").unlink()
    put(scene.project / "url", "http://good")
    assert digest() == first
    path.write_text(path.read_text() + " ")
    assert digest() != first


def test_what_is_used_is_what_was_trusted(scene: Scene) -> None:
    """Whatever becomes of an included file after it was looked at."""
    included = put(scene.project / "url", "http://good")
    scene.write({"provider": {"a": {"options": {"baseURL": "{file:url}"}}}})

    def swap(path: str, digest: str) -> bool:
        put(included, "http://evil")
        return True

    assert scene.load(swap).provider["a"].options == {"baseURL": "http://good"}
    put(included, "http://good")
    secret = put(scene.home / "secret", "s3cret")

    def link(path: str, digest: str) -> bool:
        included.unlink()
        included.symlink_to(secret)
        return False

    scene.write({"agent": {"plan": {"prompt": "{file:url}"}}})
    assert "s3cret" not in repr(scene.load(link))


def test_a_key_outside_may_change_without_trusting_anew(scene: Scene) -> None:
    """What lies outside of the project is the user's; a link to it is the project's."""
    put(scene.home / "key", "one")
    path = scene.write({"provider": {"a": {"options": {"apiKey": "{file:~/key}"}}}})
    [before] = scene.files(everybody)
    put(scene.home / "key", "two")
    [after] = scene.files(everybody)
    assert before.path == str(path)
    assert before.digest == after.digest
    assert after.value["provider"]["a"]["options"]["apiKey"] == "two"


def test_links_out_of_the_project_are_not_read(scene: Scene) -> None:
    """A file that is a link elsewhere does not count, not even when all is trusted."""
    outside = put(scene.project.parent / "x.json", {"model": "a/b"})
    for name, target in (
        ("opencode.json", outside),
        ("opencode.jsonc", Path("/etc/passwd")),
        ("kedge.json", Path("/dev/zero")),
        ("kedge.jsonc", Path("/nowhere")),
    ):
        (scene.project / name).symlink_to(target)
    config = scene.load(everybody)
    assert config.model is None
    assert config.files == ()
    assert len(config.notices) == 4
    assert all("link out of the project" in notice for notice in config.notices)


def test_links_inside_of_the_project_are_read(scene: Scene) -> None:
    """A monorepo may share one file."""
    scene.write({"model": "a/b"}, "shared/opencode.json")
    (scene.project / "opencode.json").symlink_to("shared/opencode.json")
    assert scene.load().model == "a/b"


def test_a_pipe_that_is_included_is_refused_at_once(scene: Scene) -> None:
    """Nobody waits for somebody to write into it."""
    os.mkfifo(scene.project / "pipe")
    scene.write({"agent": {"plan": {"prompt": "{file:pipe}"}}})
    with pytest.raises(ConfigInvalid, match="pipe is not a regular file"):
        scene.load()


@pytest.mark.parametrize("name", ["opencode.json", ".opencode/opencode.jsonc", "kedge.json"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_passed_over(
    scene: Scene, name: str, make: Callable[[Path], None]
) -> None:
    """A pipe or a folder holds no rule: the other files count, and a notice tells of it."""
    (scene.project / ".opencode").mkdir()
    make(scene.project / name)
    scene.write({"model": "a/b"}, "kedge.jsonc")
    config = scene.load(everybody)
    assert (config.model, config.files) == ("a/b", (str(scene.project / "kedge.jsonc"),))
    path = scene.project / name
    assert config.notices == (f"{path} is ignored: it is not a regular file",)
    (odd,) = [file for file in scene.files() if file.path == str(path)]
    assert odd.was_read is False


def test_a_pipe_of_the_user_is_refused_at_once(scene: Scene) -> None:
    """Who has one wants it to count."""
    path = scene.home / ".config" / "opencode" / "opencode.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    with pytest.raises(ConfigInvalid, match=r"opencode\.json: the file is not a regular file"):
        scene.load()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 250_000,
        '{"a":' * 50_000,
        '{"provider":' + '{"x":' * 50_000,
        "/*" * 130_000,
        '{"a": "' + "\\u0000" * 40_000,
        " " * (LARGEST_CONFIG + 1),
    ],
    ids=["arrays", "objects", "providers", "comments", "escapes", "large"],
)
def test_monsters_are_refused(scene: Scene, text: str) -> None:
    """A file made to break its reader is an ordinary error."""
    scene.write(text)
    with pytest.raises(ConfigInvalid):
        scene.load()


def test_many_keys_make_few_notices(scene: Scene) -> None:
    """A hostile file cannot fill the screen."""
    scene.write({f"key{n}": {"x": n} for n in range(9_000)})
    assert len(scene.load().notices) == 21
    assert scene.load().notices[-1].endswith("and 8980 more like these")


def test_names_cannot_move_a_cursor(scene: Scene) -> None:
    """What a hostile file calls its keys is shown as text, and in part."""
    scene.project /= "\x1b[2J\n"
    scene.write({"\x1b[2J\r\n": 1, "long" * 1000: 1})
    notices = scene.load().notices
    assert len(notices) == 2
    assert all(notice.isprintable() and len(notice) < 600 for notice in notices)


def test_texts_do_not_add_up(scene: Scene) -> None:
    """Including a large file many times is refused before it is in memory that often."""
    put(scene.project / "large", "x" * 1_000_000)
    scene.write({"agent": {"plan": {"prompt": "{file:large}" * 1000}}})
    with pytest.raises(ConfigInvalid, match="too much text is included"):
        scene.load()


def test_too_many_included_files(scene: Scene) -> None:
    """A file may not have kedge open thousands of others."""
    scene.write({"agent": {"plan": {"prompt": "".join(f"{{file:{n}}}" for n in range(100))}}})
    with pytest.raises(ConfigInvalid, match="more than 64 files"):
        scene.load()


def test_too_many_instructions(scene: Scene) -> None:
    """A file that nobody trusts may name some, and the rest is told of."""
    scene.write({"instructions": [f"**/{n}.md" for n in range(5_000)]})
    config = scene.load()
    assert len(config.instructions) == 50
    assert config.notices[-1].endswith("and 4930 more like these")
    assert len(scene.load(everybody).instructions) == 5_000


def test_reading_from_many_threads(scene: Scene) -> None:
    """The configuration has no state that two sessions could share."""
    scene.write({"model": "a/b"})
    found: list[Config] = []
    threads = [threading.Thread(target=lambda: found.append(scene.load())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [scene.load()] * 8
