"""Replaces `{env:NAME}` and `{file:path}` in the strings of a configuration file."""

import os
import re
from collections.abc import Mapping
from typing import Any

from kedge.config.file_reader import UnreadableFile, lies_below
from kedge.config.jsonc import KeyPath
from kedge.config.sources import TOKEN, ConfigSource

_MOST_TEXT = 4 * 1024 * 1024
_SECRET_NAME = re.compile(r"\.env(?!\.(?:example|sample|template)$)(\..*)?|.*\.(pem|key)")


def keeps_secrets(path: str, root: str) -> bool:
    """Whether a file of a project usually contains secrets."""
    parts = os.path.relpath(os.path.realpath(path), os.path.realpath(root)).split(os.sep)
    return ".git" in parts or _SECRET_NAME.fullmatch(parts[-1]) is not None


class Substitution:
    """Replaces the tokens of one file."""

    def __init__(self, source: ConfigSource, environ: Mapping[str, str], *, trusted: bool) -> None:
        self._source = source
        self._environ = environ
        self._trusted = trusted
        self._texts: dict[str, str] = {}
        self._room = _MOST_TEXT
        self.ignored: list[KeyPath] = []
        self.key_variables: list[str] = []
        """Variables from which a value of a provider was taken."""

    def replaced(self, value: Any, path: KeyPath = ()) -> Any:  # noqa: ANN401 - any JSON
        """The value with its tokens replaced; keys that may not have tokens go to `ignored`."""
        if isinstance(value, str):
            return self._string(value, path)
        if isinstance(value, dict):
            return {key: self.replaced(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.replaced(item, (*path, n)) for n, item in enumerate(value)]
        return value

    def _string(self, text: str, path: KeyPath) -> str:
        found = list(TOKEN.finditer(text))
        if not all(self._may(token) for token in found):
            self.ignored.append(path)
            return ""
        pieces = []
        end = 0
        for token in found:
            pieces += [text[end : token.start()], self._value(token, path)]
            end = token.end()
        return "".join([*pieces, text[end:]])

    def _may(self, token: re.Match[str]) -> bool:
        if self._trusted:
            return True
        reach = self._source.reach
        if token[1] == "env" or reach is None or "\0" in token[2]:
            return False
        found = self._source.included(token[2].strip())
        return (
            not found.is_elsewhere
            and lies_below(found.where, reach)
            and not keeps_secrets(found.where, reach)
        )

    def _value(self, token: re.Match[str], path: KeyPath) -> str:
        if token[1] == "env":
            name = token[2].strip()
            made = self._environ.get(name, "")
            if path[0] == "provider":
                self.key_variables.append(name)
        else:
            made = self._file(token[2].strip(), path)
        self._room -= len(made)
        if self._room < 0:
            raise self._source.invalid(path, "too much text is included")
        return made

    def _file(self, name: str, path: KeyPath) -> str:
        if name not in self._texts:
            where = self._source.locate(name)
            try:
                text = self._source.included_text(name)
            except UnreadableFile as error:
                raise self._source.invalid(path, f"the file {where} {error}") from error
            if text is None:
                raise self._source.invalid(path, f"there is no file {where}")
            self._texts[name] = text.removeprefix("\ufeff").strip()
        return self._texts[name]
