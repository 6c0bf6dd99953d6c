"""Full-text search among many parts, and how fast the index is filled."""

import random
import sqlite3
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import product

import kedge
from bench import bare
from bench.figures import Figure, figure_of, ratio
from bench.filled_database import new_message, new_part, store_all
from bench.rounds import WARM_UP, Candidate, Work, side_by_side, steady
from bench.scratch import Scratch
from kedge.store.queries.parts import put_part

_SYLLABLES = ("ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti")
_VOCABULARY = ["".join(each) for each in product(_SYLLABLES, repeat=3)]
_WORDS = 60
_COMMON, _RARE = "everywhere", "seldom"
_RARE_TEXTS = 10
_FEW = 1_000
_SCHEMA = 'CREATE VIRTUAL TABLE words USING fts5 (body, tokenize = "unicode61 remove_diacritics 2")'
_INSERT = "INSERT INTO words (body) VALUES (?)"


class Corpus:
    """Endless texts whose words are as uneven as those of a language; the same in every run."""

    def __init__(self) -> None:
        self._random = random.Random(1)
        self._weights = [1 / rank for rank in range(1, len(_VOCABULARY) + 1)]
        self._made = 0

    def texts(self, count: int) -> list[str]:
        """The next texts."""
        return [self._text() for _ in range(count)]

    def _text(self) -> str:
        self._made += 1
        words = self._random.choices(_VOCABULARY, self._weights, k=_WORDS)
        marks = [_COMMON] + [_RARE] * (self._made <= _RARE_TEXTS)
        return " ".join(words + marks)


async def search(scratch: Scratch) -> AsyncIterator[Figure]:
    """Fill the index step by step, then look for words in it."""
    rounds = scratch.size(8, 2)
    chunk = scratch.size(100_000, 400) // (rounds + WARM_UP)
    async with scratch.engine() as large, scratch.engine() as small:
        await large.upkeep.index()
        with bare.database(scratch.path("bare.db"), _SCHEMA) as table:
            scratch.say(f"indexing {rounds + WARM_UP} times {chunk} parts")
            candidates = [_indexing(large, chunk), _bare_indexing(table, chunk)]
            filled, baseline = await side_by_side(candidates, rounds)
        yield ratio("index a part, compared with bare FTS5", filled, baseline)
        yield figure_of("parts of 400 B indexed", [1 / each for each in filled], "/s")
        index = await _indexing(small, _FEW).prepare()
        await index()
        total = chunk * (rounds + WARM_UP)
        async for figure in _searching(scratch, large, small, total):
            yield figure


async def _searching(
    scratch: Scratch, large: kedge.Engine, small: kedge.Engine, total: int
) -> AsyncIterator[Figure]:
    ways: dict[str, Callable[[kedge.Engine], Candidate]] = {
        "rare word": partial(_hits, words=_RARE),
        "word of every part": partial(_hits, words=_COMMON),
        "two words": partial(_hits, words=f"{_VOCABULARY[0]} {_VOCABULARY[1]}"),
        "sessions with a word": _sessions,
    }
    for name, way in ways.items():
        scratch.say(f"searching: {name}")
        found = await side_by_side([way(large), way(small)], scratch.size(15, 2))
        yield figure_of(f"search {total:,} parts: {name}", [e * 1e3 for e in found[0]], "ms")
        yield ratio(f"search {total:,} parts / {_FEW:,}: {name}", *found)


def _hits(engine: kedge.Engine, words: str) -> Candidate:
    return steady(lambda: engine.sessions.search(words))


def _sessions(engine: kedge.Engine) -> Candidate:
    return steady(lambda: engine.sessions.list(search=_COMMON, limit=40))


def _indexing(engine: kedge.Engine, count: int) -> Candidate:
    corpus = Corpus()

    async def prepare() -> Work:
        session = await engine.sessions.create()
        message = new_message(engine, session)
        await session.put_message(message)
        made = [new_part(engine, message, text) for text in corpus.texts(count)]
        await store_all(engine, (partial(put_part, part, now=0) for part in made))
        return engine.upkeep.index

    return Candidate(prepare, count)


def _bare_indexing(table: sqlite3.Connection, count: int) -> Candidate:
    corpus = Corpus()

    async def prepare() -> Work:
        rows = [(text,) for text in corpus.texts(count)]

        async def work() -> None:
            bare.insert_at_once(table, (_INSERT, rows))

        return work

    return Candidate(prepare, count)
