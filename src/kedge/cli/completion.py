"""`kedge completion`: prints the script with which bash completes what can be typed."""

import argparse
from collections.abc import Iterator

from kedge.cli.commands import COMMANDS
from kedge.cli.exit_codes import DONE
from kedge.cli.screen import output

ABOUT = """\
Print the script with which bash completes commands, options, sessions, turns, files, models and all
else that has a name. To use it now and in every new shell:

  mkdir -p ~/.local/share/bash-completion/completions
  kedge completion bash > ~/.local/share/bash-completion/completions/kedge
"""

_SCRIPT = """\
# Completes what can be typed behind kedge, in bash; made by `kedge completion bash`.
_kedge_names() {{
    # What kedge itself lists, in the folder and with the data that the line names.
    case $1 in
        session) kedge sessions -n 50 "${{where[@]}}" | cut -f1; echo last ;;
        deleted)
            kedge sessions --deleted "${{where[@]}}" | cut -f1
            kedge tails "${{where[@]}}" | cut -f1 ;;
        turn) kedge log "${{where[@]}}" ${{session:+"$session"}} | cut -f1; echo last ;;
        model) kedge models "${{where[@]}}" | cut -f1 ;;
        provider) kedge models "${{where[@]}}" | cut -d/ -f1 | sort -u ;;
        agent) kedge agents "${{where[@]}}" | cut -f1 ;;
        request) kedge answer --list "${{where[@]}}" | cut -f1 ;;
        permission) kedge permissions "${{where[@]}}" | cut -f1 ;;
        command) printf '%s\n' {commands} ;;
    esac 2>/dev/null | grep -E '^[-A-Za-z0-9_./:@+]+$' # compgen would run what is in $( )
}}
_kedge() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
    local command= options= rest= kind= session= place=1 word where=()
    COMPREPLY=()
    # Bash takes `--option=value` apart.
    if [[ $cur == "=" ]]; then cur=
    elif [[ $prev == "=" ]]; then prev=${{COMP_WORDS[COMP_CWORD-2]}}; fi
    while ((place < COMP_CWORD)); do
        word=${{COMP_WORDS[place]}}
        case $word in
            -C|--directory|--data|--database)
                [[ ${{COMP_WORDS[place+1]}} == "=" ]] && ((place++))
                ((place + 1 < COMP_CWORD)) && where+=("$word" "${{COMP_WORDS[place+1]}}")
                ((place++)) ;;
            -s|--session) session=${{COMP_WORDS[place+1]}}; ((place++)) ;;
            *) [[ $command || $word == -* ]] || command=$word ;;
        esac
        ((place++))
    done
    case $command in
        "") options="-C --directory --data --database --json --help --version" rest=command ;;
        help) rest=command ;;
{cases}
    esac
    kind=$rest
    case $command:$prev in
{values}
    esac
    if [[ $kind != none && $cur == -* && $prev != --* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
        return
    fi
    case $kind in
        none) ;;
        file|folder)
            local IFS=$'\n' what=f
            [[ $kind == folder ]] && what=d
            compopt -o filenames 2>/dev/null
            COMPREPLY=($(compgen -$what -- "$cur")) ;;
        =*) COMPREPLY=($(compgen -W "${{kind#=}}" -- "$cur")) ;;
        session|deleted)
            # With and without the `ses_` that may be left out.
            local ids=$(_kedge_names $kind)
            [[ $cur == ses* ]] || ids=${{ids//ses_/}}
            COMPREPLY=($(compgen -W "$ids" -- "$cur")) ;;
        *) COMPREPLY=($(compgen -W "$(_kedge_names $kind)" -- "$cur")) ;;
    esac
}}
complete -F _kedge kedge
"""

_KINDS = {
    "SESSION": "session",
    "SESSION|TAIL": "deleted",
    "TURN": "turn",
    "PROVIDER/MODEL": "model",
    "PROVIDER": "provider",
    "PATH": "file",
    "FILE": "file",
    "FILE|URL": "file",
    "FILE-OR-FOLDER": "file",
    "FROM": "file",
    "DIR": "folder",
    "FOLDER": "folder",
    "DIRECTORY": "folder",
}
"""What stands for values in help, and how they are completed; what is not here is free text."""
_OPTIONS = {"--agent": "agent", "--revoke": "permission", "--forget": "permission"}
_PLACES = {"answer": "request"}


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("shell", choices=("bash",), help="the shell")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    output().write(script())
    return DONE


def script() -> str:
    """The script for bash."""
    cases, values = [], []
    for name, actions in _commands():
        words = dict.fromkeys(word for action in actions for word in action.option_strings)
        places = [action for action in actions if not action.option_strings]
        rest = _PLACES.get(name) or (_kind(places[0]) if places else "none")
        cases.append(f'        {name}) options="{" ".join(words)}" rest={_quoted(rest)} ;;')
        for action in actions:
            if action.option_strings and action.nargs != 0:
                names = "|".join(f"{name}:{word}" for word in action.option_strings)
                values.append(f"        {names}) kind={_quoted(_kind(action))} ;;")
            if isinstance(action, argparse._SubParsersAction):
                values += [
                    f"        {name}:{word}) kind={_quoted(_kind(_place(below)))} ;;"
                    for word, below in action.choices.items()
                ]
    common = "|".join(f":{word}" for word in ("-C", "--directory", "--data"))
    values.append(f"        {common}) kind=folder ;;")
    return _SCRIPT.format(
        commands=" ".join(command.name for command in COMMANDS) + " help",
        cases="\n".join(cases),
        values="\n".join(values),
    )


def _quoted(kind: str) -> str:
    return f'"{kind}"' if " " in kind else kind


def _commands() -> Iterator[tuple[str, list[argparse.Action]]]:
    from kedge.cli.main import module_of, parser_of

    for command in COMMANDS:
        yield command.name, list(_actions(parser_of(command, module_of(command))))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from (each for each in _actions(below) if each.option_strings)


def _place(parser: argparse.ArgumentParser) -> argparse.Action:
    """What stands behind a command without an option."""
    return next(action for action in parser._actions if not action.option_strings)


def _kind(action: argparse.Action) -> str:
    if action.choices:
        return f"={' '.join(map(str, action.choices))}"
    for word in action.option_strings:
        if word in _OPTIONS:
            return _OPTIONS[word]
    return _KINDS.get(str(action.metavar), "none")
