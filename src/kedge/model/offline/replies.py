"""The offline model's own messages."""

from collections.abc import Mapping, Sequence
from typing import Any

from kedge.model.offline.parser import VERBS, Problem, Scanner, near_command
from kedge.model.port import ToolResult

_MOST_SHOWN = 10_000
_TITLE_LENGTH = 50
_TITLE_WORDS = 7
_SUMMARY_LINE = 100
_SUMMARY_PROMPTS = 3

REAL_MODEL = (
    "For a real one set a key, for example `ANTHROPIC_API_KEY` or `OPENAI_API_KEY`, or name a "
    "model in `kedge.json`: docs/configuration.md tells how."
)

INTRODUCTION = f"""\
I am `kedge/offline`, a small model that comes with kedge. I need no key and no network, I do not \
understand language, and I do exactly what commands tell me, so that you can try everything else.

{REAL_MODEL}

One command a line, for example:

    think A greeting is wanted.
    write hello.txt Hello, world
    edit hello.txt world kedge
    bash cat hello.txt
    and todo [x] greet | [~] look around | [ ] sleep
    ask Which colour? | red | blue
    slow 20 100ms say All of this was me.

Say `help` for all commands; docs/offline.md explains them."""

CHAT = "I only follow commands; say `help` for a list of them."


def chat(prompt: str, *, is_first: bool) -> str:
    """The answer to a prompt without commands."""
    if is_first:
        return INTRODUCTION
    near = near_command(prompt)
    return f"{CHAT} Perhaps `{near}` is meant." if near else CHAT


def complaint(problems: Sequence[Problem], *, is_first: bool) -> str:
    """The answer to a script that cannot be read."""
    lines = "\n".join(f"- line {each.line}: {each.text}." for each in problems)
    rest = INTRODUCTION if is_first else "Say `help` for all commands."
    return f"I did nothing, because I could not read all of the commands:\n\n{lines}\n\n{rest}"


def manual() -> str:
    """Every command on a line of its own."""
    width = max(len(verb.usage) for verb in VERBS.values())
    commands = "\n".join(f"    {v.usage.ljust(width)}  {v.meaning}" for v in VERBS.values())
    return f"""\
One command a line; `#` begins a comment.

{commands}

Before a command:

    and COMMAND                 in the same step as the line before
    try COMMAND                 go on though it fails
    repeat 3 COMMAND            in so many steps, or `forever`; {{n}} is the number of the step
    slow 20 100ms COMMAND       in 20 pieces with a pause between them

A TEXT is the rest of the line, a "text in quotes" with \\n and \\", or `<<END` and then lines up \
to one that is just END. docs/offline.md has the details."""


def closing(tools: Sequence[str], *, is_first: bool) -> str:
    """The answer when nothing is left to do."""
    names = ", ".join(dict.fromkeys(tools))
    done = f"Done: {names}." if names else "Done."
    return f"{done}\n\nThis was `kedge/offline`. {REAL_MODEL}" if is_first else done


def report(failed: Sequence[ToolResult], left: int) -> str:
    """The message about calls that failed, and the steps that are skipped because of that."""
    lines = "\n".join(f"- {each.name}: {_first_line(each.output)}" for each in failed)
    said = f"I stop here, because this failed:\n\n{lines}"
    if not left:
        return said
    steps = "1 more step is" if left == 1 else f"{left} more steps are"
    return f"{said}\n\n{steps} not done."


def _first_line(output: str) -> str:
    return output[:500].strip().partition("\n")[0] or "(it did not say why)"


def shown(results: Sequence[ToolResult]) -> str:
    """The results of calls, shortened if they are long."""
    return "\n\n".join(_shortened(each.output) for each in results) or "(nothing)"


def _shortened(output: str) -> str:
    left = len(output) - _MOST_SHOWN
    return f"{output[:_MOST_SHOWN]}\n(and {left} more characters)" if left > 0 else output


def not_offered(tool: str) -> str:
    """The message instead of a call that the model may not make."""
    return f"I cannot do that here: the tool `{tool}` is not offered to me."


def title(prompt: str) -> str:
    """A short title for a prompt."""
    line = (Scanner(prompt).line() or "")[:1000]
    words = [word for word in line.split()[:_TITLE_WORDS] if not word.startswith("<<")]
    found = " ".join(words)[:_TITLE_LENGTH].strip()
    return found[:1].upper() + found[1:] or "Nothing yet"


def summary(request: str) -> str:
    """A summary of the conversation in a request for one: its prompts and files, shortened. It does
    not grow with the conversation."""
    told = request.partition("<conversation>")[2].partition("</conversation>")[0].splitlines()
    prior = request.partition("<prior-summary>")[2].partition("</prior-summary>")[0]
    asked = _starting(told, "[User]: ")
    called = _starting(told, "[Assistant tool call]: ")
    first = _starting(prior.splitlines(), "- first: ") or asked
    before = sum(int(each) for each in _starting(prior.splitlines(), "- prompts: "))
    newest = "\n".join(f"- {each[:_SUMMARY_LINE]}" for each in asked[-_SUMMARY_PROMPTS:])
    return f"""\
## Objective
- first: {first[0][:_SUMMARY_LINE] if first else "(none)"}

## Important Details
- prompts: {before + len(asked)}

## Work State
### Completed
{newest or "(none)"}
### Active
(none)
### Blocked
(none)

## Next Move
{called[-1][:_SUMMARY_LINE] if called else "(none)"}

## Relevant Files
(none)"""


def _starting(lines: Sequence[str], start: str) -> list[str]:
    return [line.removeprefix(start) for line in lines if line.startswith(start)]


_EXAMPLES: Mapping[str, Any] = {
    "null": None,
    "boolean": True,
    "integer": 1,
    "number": 1,
    "string": "example",
    "array": [],
}
_VALUES = ("const", "default")
_CHOICES = ("enum", "examples")
_COMBINED = ("anyOf", "oneOf", "allOf")
_DEEPEST = 8


def example(schema: Any, depth: int = 0) -> Any:  # noqa: ANN401 - any JSON schema
    """A value that fits a schema of the usual kind; what is not required is left out."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return "example"
    for key in _VALUES:
        if key in schema:
            return schema[key]
    for key in (*_CHOICES, *_COMBINED):
        if isinstance(schema.get(key), list) and schema[key]:
            first = schema[key][0]
            return first if key in _CHOICES else example(first, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema or not depth else "string")
    return _example_of(kind[0] if isinstance(kind, list) and kind else kind, schema, depth)


def _example_of(kind: object, schema: Mapping[str, Any], depth: int) -> Any:  # noqa: ANN401
    if kind == "object":
        return _example_object(schema, depth)
    if kind == "array" and isinstance(schema.get("minItems"), int):
        return [example(schema.get("items"), depth + 1)] * min(schema["minItems"], 100)
    if kind in ("integer", "number") and isinstance(schema.get("minimum"), int | float):
        return schema["minimum"]
    return _EXAMPLES.get(str(kind), "example")


def _example_object(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties, required = schema.get("properties"), schema.get("required")
    known = properties if isinstance(properties, Mapping) else {}
    names = required if isinstance(required, list) else []
    return {str(name): example(known.get(name, {"type": "string"}), depth + 1) for name in names}
