"""Any calls of sessions are undone and redone in any order, while others work in the same files:
the result is what the edits that are left come to, or a conflict that is told."""

import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kedge.domain.parts import ToolPart
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.engine.steps import Step
from tests.engine.revert.scene import told
from tests.engine.undo.line_model import PERSON, Edit, Model

LONG = bool(os.environ.get("KEDGE_TORTURE"))
ROUNDS = 400 if LONG else 14
SESSIONS = ("first", "second")
FAILED = ("conflict", "skipped", "shared")


@pytest.fixture(scope="module")
def figures() -> Iterator[Counter[str]]:
    """Counts what the rounds came to."""
    counted: Counter[str] = Counter()
    yield counted
    sys.stdout.write(f"\n{dict(counted)}\n")


class Round:
    """One random program, carried out."""

    def __init__(self, engine: Engine, folder: Path, seed: int, figures: Counter[str]) -> None:
        self._engine = engine
        self._folder = folder
        self._choice = random.Random(seed)
        self._figures = figures
        names = [f"{seed} {name}.txt" for name in "ab"]
        self._model = Model({name: [f"{n}" for n in range(14)] for name in names})
        self._sessions: dict[str, Session] = {}
        self._parts: dict[int, tuple[str, str]] = {}
        """By the number of an edit, its message and its part."""

    async def run(self) -> None:
        """Edit, undo and redo; look at all files after each."""
        for name in self._model.now:
            self._write(name)
        for name in SESSIONS:
            self._sessions[name] = await self._engine.sessions.create()
        for _ in range(4):
            await self._work()
            for _ in range(self._choice.randint(1, 3)):
                await self._undo_or_redo()

    def _write(self, name: str) -> None:
        text = "".join(f"{line}\n" for line in self._model.now[name])
        (self._folder / name).write_text(text)

    async def _work(self) -> None:
        async with AsyncExitStack() as stack:
            steps: dict[str, Step] = {}
            for name, session in self._sessions.items():
                turn = await stack.enter_async_context(session.turn("Go on"))
                steps[name] = await stack.enter_async_context(turn.step())
            for _ in range(self._choice.randint(2, 5)):
                by = self._choice.choice([*SESSIONS, *SESSIONS, PERSON])
                edit = self._model.any_edit(self._choice, by)
                if by == PERSON:
                    self._model.make(edit)
                    self._write(edit.file)
                else:
                    await self._call(steps[by], edit)

    async def _call(self, step: Step, edit: Edit) -> None:
        path = self._folder / edit.file
        async with step.tool("edit", {}, reads=[path], writes=[path]) as call:
            number = self._model.make(edit)
            self._write(edit.file)
        self._parts[number] = call.part.messageID, call.part.id

    async def _undo_or_redo(self) -> None:
        by = self._choice.choice(SESSIONS)
        is_redo = self._choice.random() < 0.4
        of_session = [n for n in self._parts if self._model.edits[n].by == by]
        may_be = [n for n in of_session if (n in self._model.out) == is_redo]
        if not may_be:
            return
        chosen = set(self._choice.sample(may_be, self._choice.randint(1, min(3, len(may_be)))))
        session = self._sessions[by]
        act = session.redo if is_redo else session.undo
        parts = [self._parts[n][1] for n in sorted(chosen)]
        foretold = await act(parts=parts, dry_run=True)
        assert self._disk() == self._model.now
        receipt = await act(parts=parts)
        assert (receipt.files, receipt.notes) == (foretold.files, foretold.notes)
        outcomes = told(receipt)
        for name, outcome in outcomes.items():
            here = {n for n in chosen if self._model.edits[n].file == name}
            entry = next(each for each in receipt.files if each.path == name)
            if outcome in FAILED or entry.reason is not None:
                self._figures[f"{entry.reason}"] += 1
                continue
            self._figures[outcome] += 1
            out = self._model.out - here if is_redo else self._model.out | here
            expected = self._model.without(out, name)
            assert expected is not None, "an edit that is left cannot be done"
            self._model.now[name] = expected
            self._model.out = out
        assert self._disk() == self._model.now
        await self._check_marks()

    def _disk(self) -> dict[str, list[str]]:
        return {name: (self._folder / name).read_text().splitlines() for name in self._model.now}

    async def _check_marks(self) -> None:
        for n, (message, part) in self._parts.items():
            session = self._sessions[self._model.edits[n].by]
            found = await session.part(message, part)
            assert isinstance(found, ToolPart)
            assert (found.undone is not None) == (n in self._model.out)


async def test_what_is_left_is_what_the_other_edits_come_to(
    engine: Engine, folder: Path, figures: Counter[str]
) -> None:
    """Also when edits follow on undos, and where several calls go or come at once."""
    first = int(os.environ.get("KEDGE_SEED", "0"))
    for seed in range(first, first + ROUNDS):
        try:
            await Round(engine, folder, seed, figures).run()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
    done = sum(figures[word] for word in ("restored", "merged", "unchanged"))
    assert done > sum(figures.values()) / 3
