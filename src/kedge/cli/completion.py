"""`kedge completion`: prints the script with which a shell completes commands and options."""

import argparse
from collections.abc import Iterator

from kedge.cli.commands import COMMANDS
from kedge.cli.exit_codes import DONE
from kedge.cli.screen import output

ABOUT = """\
Print the script with which bash completes commands, options and sessions. To use it now and in
every new shell:

  kedge completion bash > ~/.local/share/bash-completion/completions/kedge
"""

_SCRIPT = """\
# Completes kedge's commands, options and sessions in bash; made by `kedge completion bash`.
_kedge() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} options= sessions=
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "{commands} help --help --version" -- "$cur"))
        return
    fi
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    case $prev in
        -s|--session) sessions=1 ;;
{choices}
    esac
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
    elif [[ $sessions ]]; then
        sessions=$(kedge sessions -n 50 2>/dev/null | cut -f1 | cut -c5-)
        COMPREPLY=($(compgen -W "last $sessions" -- "$cur"))
    else
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$cur"))
    fi
}}
complete -F _kedge kedge
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("shell", choices=("bash",), help="the shell")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    output().write(script())
    return DONE


def script() -> str:
    """The script for bash."""
    cases, choices = [], {}
    for name, actions in _commands():
        words = [word for action in actions for word in action.option_strings]
        words += [str(choice) for action in actions for choice in _choices_of_place(action)]
        takes = any(_is_session(action) for action in actions)
        cases.append(
            f'        {name}) options="{" ".join(words)}"{" sessions=1" if takes else ""} ;;'
        )
        for action in actions:
            if action.option_strings and action.choices:
                choices["|".join(action.option_strings)] = " ".join(map(str, action.choices))
    made = [
        f'        {names}) COMPREPLY=($(compgen -W "{words}" -- "$cur")); return ;;'
        for names, words in sorted(choices.items())
    ]
    names = " ".join(command.name for command in COMMANDS)
    return _SCRIPT.format(commands=names, cases="\n".join(cases), choices="\n".join(made))


def _commands() -> Iterator[tuple[str, list[argparse.Action]]]:
    from kedge.cli.main import module_of, parser_of

    for command in COMMANDS:
        yield command.name, list(_actions(parser_of(command, module_of(command))))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)


def _choices_of_place(action: argparse.Action) -> list[object]:
    return list(action.choices or ()) if not action.option_strings else []


def _is_session(action: argparse.Action) -> bool:
    return not action.option_strings and "SESSION" in str(action.metavar)
