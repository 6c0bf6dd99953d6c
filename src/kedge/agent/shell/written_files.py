"""The files that a command certainly writes, moves or deletes, for the rules about `edit`.

Programs write files in more ways than are known here; only those visible in the command's words
count.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kedge.agent.shell.options import TAR_VALUED, has, leading, operands, tar_words, values
from kedge.agent.shell.parser import SimpleCommand
from kedge.agent.shell.scripts import awk_does_more, sed_commands
from kedge.agent.shell.words import ShellWord

Words: TypeAlias = Sequence[ShellWord]

UNKNOWN = ShellWord("…", "…", is_fixed=False)
"""A written file whose name is unknown."""

_ASKING_FOR_HELP = ("--help", "--version")
_VALUED: Mapping[str, str] = {
    "chgrp": "",
    "chmod": "",
    "chown": "",
    "mkdir": "m",
    "mkfifo": "m",
    "mknod": "m",
    "mv": "tS",
    "rm": "",
    "rmdir": "",
    "shred": "ns",
    "tee": "",
    "touch": "drt",
    "truncate": "rs",
    "unlink": "",
}
"""Programs that change every file they name, with the letters of options that take a value."""
_CHANGING_RIGHTS = ("chgrp", "chmod", "chown")
_COPYING: Mapping[str, str] = {"cp": "tS", "install": "gmoStT", "ln": "tS", "rsync": "efMT"}
_PACKING = re.compile(r"g(?:un)?zip|b(?:un)?zip2|(?:un)?(?:xz|lzma|zstd)|compress|uncompress")
SED = re.compile(r"[gs]?sed")
AWK = re.compile(r"[gmn]?awk")
_DISCARDED = ("-", "/dev/stdout", "/dev/stderr", "/dev/null")


def written(command: SimpleCommand) -> list[ShellWord]:
    """The words that name what a command writes, and `UNKNOWN` for what no word names."""
    found = list(command.written)
    words = command.words[1:]
    if command.words and not any(word.value in _ASKING_FOR_HELP for word in words):
        found += _by_name(command.name, words)
    return [word for word in found if word.value not in _DISCARDED]


def _by_name(name: str, words: Words) -> Iterator[ShellWord]:
    if name in _VALUED:
        named = operands(words, _VALUED[name])[name in _CHANGING_RIGHTS :]
        yield from [*named, *values(words, "--target-directory")] or [UNKNOWN]
    elif name in _COPYING:
        yield from _copied(name, words)
    elif SED.fullmatch(name):
        yield from sed(words).written
    elif AWK.fullmatch(name):
        if any("inplace" in word.value for word in words) or "writes" in _awk_deeds(words):
            yield UNKNOWN
    elif _PACKING.fullmatch(name):
        if not has(words, "clt", "--stdout", "--to-stdout", "--list", "--test"):
            yield from operands(words)
    else:
        yield from _OTHERS.get(name, _nothing)(words)


def _copied(name: str, words: Words) -> Iterator[ShellWord]:
    """The targets of a copy; in a folder, under their own names."""
    looks = ("n", "--list-only", "--dry-run") if name == "rsync" else ("", "--dry-run")
    if has(words, *looks, valued=_COPYING[name]):
        return
    letters = "t" if name in ("cp", "install", "ln") else ""
    asked = ("--target-directory", *(f"-{letter}" for letter in letters))
    given = list(values(words, *asked, valued=_COPYING[name]))
    named = operands(words, _COPYING[name])
    if name == "install" and has(words, "d", valued=_COPYING[name]):
        yield from named
        return
    targets = given or named[-1:] or [UNKNOWN]
    sources = named if given else named[:-1]
    for target in targets:
        yield target
        for source in sources:
            inside = os.path.join(target.value, os.path.basename(source.value.rstrip("/")))
            if target.is_told and source.is_told and os.path.basename(inside):
                yield ShellWord(inside, inside, True)


_SED_VALUED = "efl"
_AWK_VALUED = "FvfileEW"


class Sed(NamedTuple):
    """The effects of a call of sed."""

    written: list[ShellWord]
    runs: bool
    """Whether it runs, or may run, commands."""
    named: list[str]
    """The files that the script names."""


def sed(words: Words) -> Sed:
    """The effects of sed with these words."""
    others = [each for each in words if not _is_in_place(each)]
    is_in_place = len(others) < len(words)
    scripts = list(values(others, "-e", "--expression", valued=_SED_VALUED))
    named = operands(others, _SED_VALUED, ("--expression", "--file", "--line-length"))
    is_elsewhere = any(True for _ in values(others, "-f", "--file", valued=_SED_VALUED))
    if not scripts:
        scripts, named = named[:1], named[1:]
        if is_in_place and scripts and not scripts[0].source.strip("'\""):
            # BSD's sed takes the empty word for the suffix of backups, GNU's for the script.
            scripts, named = named[:1], named[1:]
    is_told = not is_elsewhere and all(word.is_told for word in scripts)
    read = sed_commands("\n".join(word.value for word in scripts)) if is_told else None
    files = [each.argument for each in read or () if each.letter in "rRwW"]
    written = [
        ShellWord(each.argument, each.argument, True) for each in read or () if each.letter in "wW"
    ]
    runs = any(each.letter == "e" for each in read or ())
    written += [UNKNOWN] * runs
    if is_in_place:
        written += named or [UNKNOWN]
    return Sed(written, runs or read is None, files)


def _is_in_place(word: ShellWord) -> bool:
    name = word.value.partition("=")[0]
    is_long = len(name) > len("--i") and "--in-place".startswith(name)
    return is_long or has([word], "i", valued=_SED_VALUED)


def _awk_deeds(words: Words) -> set[str]:
    program = operands(words, _AWK_VALUED, ("--field-separator", "--assign", "--file"))[:1]
    return {deed for word in program for deed in awk_does_more(word.value)}


def awk_runs(words: Words) -> bool:
    """Whether an awk program runs, or may run, commands."""
    is_told = all(word.is_told for word in words)
    longer = ("--file", "--exec", "--source", "--include", "--load")
    is_elsewhere = has(words, "feEilW", valued=_AWK_VALUED) or any(
        True for _ in values(words, *longer, valued=None)
    )
    return not is_told or is_elsewhere or "runs" in _awk_deeds(words)


def _of_find(words: Words) -> Iterator[ShellWord]:
    for at, word in enumerate(words):
        if word.value in ("-fprint", "-fprint0", "-fprintf", "-fls"):
            yield from words[at + 1 : at + 2]
        elif word.value == "-delete":
            roots = []
            for root in words:
                if root.value[:1] in ("-", "(", "!"):
                    break
                roots.append(root)
            yield from roots or [ShellWord(".", ".", True)]


def _of_git(words: Words) -> Iterator[ShellWord]:
    """What git's commands write besides git's own files, leaving aside those that switch
    branches."""
    rest = operands(words, "cC", ("--git-dir", "--work-tree", "--namespace"))
    yield from values(words, "--output")
    if not rest or has(words, "", *_GIT_LOOKS.get(rest[0].value, ())):
        return
    verb, named = rest[0].value, rest[1:]
    everything = ShellWord(".", ".", True)
    if verb in ("am", "apply", "format-patch"):
        yield UNKNOWN
    elif verb == "archive":
        yield from values(words, "-o", "--output")
    elif verb == "clean" and not has(words, "n"):
        yield from named or [everything]
    elif verb in ("mv", "restore", "rm") or (verb == "checkout" and has(words, "", "--")):
        yield from named
    elif verb == "reset" and has(words, "", "--hard", "--merge", "--keep"):
        yield everything
    else:
        yield from _of_rarer_git(verb, words[words.index(rest[0]) + 1 :])


def _of_rarer_git(verb: str, words: Words) -> Iterator[ShellWord]:
    named = operands(words, "bB", ("--depth", "--branch", "--origin", "--reason"))
    if verb == "checkout" and len(named) > 1 and not has(words, "bB", "--orphan", valued="bB"):
        yield from named[1:]
    elif verb == "config":
        yield from values(words, "-f", "--file", valued="f")
    elif verb == "merge-file" and not has(words, "p", "--stdout", valued="L"):
        yield from operands(words, "L")[:1]
    elif verb == "interpret-trailers" and has(words, "", "--in-place"):
        yield from named
    elif verb == "worktree" and [word.value for word in named[:1]] == ["add"]:
        yield from named[1:2]
    elif verb == "clone":
        yield from _cloned(named)


def _cloned(named: Words) -> Iterator[ShellWord]:
    """The folder of a clone: the one that is named, or the last part of its source."""
    if len(named) == 1 and named[0].is_told:
        name = re.split(r"[/:]", named[0].value.rstrip("/"))[-1].removesuffix(".git")
        yield ShellWord(name, name, True) if name else UNKNOWN
    else:
        yield from named[-1:] or [UNKNOWN]


_GIT_LOOKS: Mapping[str, tuple[str, ...]] = {
    "apply": ("--check", "--stat", "--numstat", "--summary", "--cached"),
    "clean": ("--dry-run",),
    "format-patch": ("--stdout",),
    "mv": ("-n", "--dry-run"),
    "restore": ("-S", "--staged"),
    "rm": ("-n", "--dry-run", "--cached"),
}
"""Options with which git's commands change no file."""


_TAR_WRITES = ("--create", "--append", "--update", "--catenate", "--concatenate", "--delete")


def _of_tar(given: Words) -> Iterator[ShellWord]:
    words = tar_words(given)
    if has(words, "", "--remove-files"):
        yield from operands(words, TAR_VALUED) or [UNKNOWN]
    if has(words, "x", "--extract", "--get", valued=TAR_VALUED):
        if not has(words, "O", "--to-stdout", valued=TAR_VALUED):
            folders = list(values(words, "-C", "--directory", valued=TAR_VALUED))
            yield from folders or [UNKNOWN]
    elif has(words, "cruA", *_TAR_WRITES, valued=TAR_VALUED):
        yield from values(words, "-f", "--file", valued=TAR_VALUED)


_CURL_VALUED = "AbcCdDeEFhHKmoPQrtTuUwxXyYz"
_WGET_VALUED = "oaieBtTOQwPUlADRIX"


def _of_curl(words: Words) -> Iterator[ShellWord]:
    short = ("-o", "-D", "-c")
    yield from values(
        words, *short, "--output", "--dump-header", "--cookie-jar", valued=_CURL_VALUED
    )
    yield from values(words, "--trace", "--trace-ascii", "--stderr", "--etag-save")
    if has(words, "O", "--remote-name", "--remote-name-all", valued=_CURL_VALUED):
        yield UNKNOWN


def _of_wget(words: Words) -> Iterator[ShellWord]:
    logs = ("-o", "-a", "--output-file", "--append-output")
    yield from values(words, *logs, valued=_WGET_VALUED)
    if not has(words, "", "--spider"):
        places = ("-O", "-P", "--output-document", "--directory-prefix")
        yield from [*values(words, *places, valued=_WGET_VALUED)] or [UNKNOWN]


def _of_dd(words: Words) -> Iterator[ShellWord]:
    for word in words:
        if word.value.startswith("of="):
            yield word._replace(value=word.value[3:], source=word.source[3:])


def _of_sort(words: Words) -> Iterator[ShellWord]:
    return values(words, "-o", "--output", valued="kotST")


_PERL_VALUED = "eEIMmFCDxVrKT"


def _of_perl(words: Words) -> Iterator[ShellWord]:
    if has(leading(words, _PERL_VALUED), "i", valued=_PERL_VALUED):
        yield from operands(words, "eEIMm")
        yield UNKNOWN


def _of_output_option(words: Words) -> Iterator[ShellWord]:
    return values(words, "-o", "--output", valued="befhijkntoPOpTxyz")


def _of_timed(words: Words) -> Iterator[ShellWord]:
    """The output files of programs such as `time` that run another one, whose options are its
    own."""
    return values(leading(words, "abeEfoOpPsSuUX"), "-o", "--output", valued="abeEfoOpPsSuUX")


def _of_openssl(words: Words) -> Iterator[ShellWord]:
    return values(words, *_OPENSSL_WRITES, valued=None)


_OPENSSL_WRITES = ("-out", "-keyout", "-writerand", "-sess_out", "-keylogfile", "-msgfile")


def _of_second(words: Words) -> Iterator[ShellWord]:
    """The second file, for programs that read the first and write the second."""
    return iter(operands(words, "cfgklopsw")[1:2])


def _of_copy(words: Words) -> Iterator[ShellWord]:
    return (word for word in operands(words, "cFiJloPS")[-1:] if ":" not in word.value)


def _of_mktemp(words: Words) -> Iterator[ShellWord]:
    yield from values(words, "-p", valued="p")
    if not has(words, "tu", "--dry-run", valued="p"):
        yield from operands(words, "p")


def _of_script(words: Words) -> Iterator[ShellWord]:
    return iter(operands(words, "cEIOoBTtm")[:1] or [UNKNOWN])


def _of_yq(words: Words) -> Iterator[ShellWord]:
    if has(words, "i", "--inplace", "--in-place"):
        yield from operands(words)[1:] or [UNKNOWN]


def _of_sd(words: Words) -> Iterator[ShellWord]:
    return iter([] if has(words, "p", "--preview") else operands(words, "fn")[2:])


_CPIO_VALUED = "CDEFHIMORW"


def _of_cpio(words: Words) -> Iterator[ShellWord]:
    if has(words, "ip", "--extract", "--pass-through", valued=_CPIO_VALUED) and not has(
        words, "t", "--list", valued=_CPIO_VALUED
    ):
        yield UNKNOWN


def _of_7z(words: Words) -> Iterator[ShellWord]:
    if any(word.value in ("a", "d", "e", "rn", "u", "x") for word in words[:1]):
        yield UNKNOWN


def _of_first(words: Words) -> Iterator[ShellWord]:
    return iter(operands(words)[:1])


def _of_patch(words: Words) -> Iterator[ShellWord]:
    if not has(words, "", "--dry-run"):
        yield from values(words, "-o", "--output")
        yield UNKNOWN


def _of_unzip(words: Words) -> Iterator[ShellWord]:
    if not has(words, "lptvZz"):
        yield from [*values(words, "-d")] or [UNKNOWN]


def _of_zip(words: Words) -> Iterator[ShellWord]:
    is_shown = has(words, "", "-sf", "--show-files")
    return iter([] if is_shown else operands(words, "bintxP")[:1])


def _of_editor(words: Words) -> Iterator[ShellWord]:
    if not has(words, "R", valued="cpSTtuUwWis"):
        yield from operands(words, "cpS") or [UNKNOWN]


def _unknown(words: Words) -> Iterator[ShellWord]:
    yield UNKNOWN


def _nothing(words: Words) -> Iterator[ShellWord]:
    return iter(())


def _of_python(words: Words) -> Iterator[ShellWord]:
    """The files that Python modules write when run as programs."""
    module = [word.value for word in values(words, "-m", valued="WXcm")][:1]
    named = operands(words, "WXm")
    if module == ["json.tool"]:
        yield from named[1:2]
    elif module in (["zipfile"], ["tarfile"]):
        if has(words, "ce", "--create", "--extract", valued="WXm"):
            yield UNKNOWN
    elif module == ["gzip"]:
        yield UNKNOWN


def _of_ar(words: Words) -> Iterator[ShellWord]:
    letters = {letter for word in words[:1] for letter in word.value}
    if letters & set("dmqrs"):
        yield from operands(words[1:])[:1] or [UNKNOWN]
    elif "x" in letters:
        yield UNKNOWN


def _of_history(words: Words) -> Iterator[ShellWord]:
    if has(words, "wa"):
        yield from operands(words)


def _of_fallocate(words: Words) -> Iterator[ShellWord]:
    return iter(operands(words, "lo")[-1:])


def _of_rename(words: Words) -> Iterator[ShellWord]:
    if not has(words, "n", "--no-act"):
        yield UNKNOWN


_CMAKE_LOOKS = frozenset(
    {"capabilities", "cat", "compare_files", "echo", "environment", "md5sum", "sha256sum"}
)


def _of_cmake(words: Words) -> Iterator[ShellWord]:
    if any(word.value not in _CMAKE_LOOKS for word in values(words[:2], "-E", valued=None)):
        yield UNKNOWN


_OTHERS: Mapping[str, Callable[[Words], Iterator[ShellWord]]] = {
    "7z": _of_7z,
    "ar": _of_ar,
    "cmake": _of_cmake,
    "fallocate": _of_fallocate,
    "gzexe": lambda words: iter(operands(words)),
    "history": _of_history,
    "python": _of_python,
    "python3": _of_python,
    "rename": _of_rename,
    "rename.ul": _of_rename,
    "cpio": _of_cpio,
    "csplit": _unknown,
    "ctags": lambda words: values(words, "-f", "-o"),
    "curl": _of_curl,
    "dd": _of_dd,
    "ditto": _of_copy,
    "ed": _of_editor,
    "ex": _of_editor,
    "nvim": _of_editor,
    "find": _of_find,
    "git": _of_git,
    "iconv": _of_output_option,
    "less": _of_output_option,
    "link": _of_second,
    "logsave": _of_first,
    "mktemp": _of_mktemp,
    "openssl": _of_openssl,
    "patch": _of_patch,
    "perl": _of_perl,
    "ruby": _of_perl,
    "scp": _of_copy,
    "script": _of_script,
    "sd": _of_sd,
    "shuf": _of_output_option,
    "sort": _of_sort,
    "split": _unknown,
    "sponge": _of_first,
    "strace": _of_timed,
    "tar": _of_tar,
    "time": _of_timed,
    "uniq": _of_second,
    "unzip": _of_unzip,
    "vi": _of_editor,
    "vim": _of_editor,
    "wget": _of_wget,
    "xxd": _of_second,
    "yq": _of_yq,
    "zip": _of_zip,
}
