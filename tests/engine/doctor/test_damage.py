"""Real damage to real files and rows: the doctor finds each kind, and tells nothing else."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.engine.doctor.findings import KINDS, Severity
from kedge.engine.doctor.repairs import planned, repair
from kedge.snapshot.objects.formats import BLOB, object_id
from kedge.snapshot.objects.journal import OpenJournal
from kedge.snapshot.objects.keeps import new_hold
from tests.engine.doctor.clinic import Clinic, used

DAMAGE: dict[str, Callable[[Clinic], set[str]]] = {}
"""Each way to damage the data, with the codes that the doctor has to tell."""


def damage(*codes: str) -> Callable[[Callable[[Clinic], None]], Callable[[Clinic], None]]:
    """Register a way to damage the data."""

    def register(plant: Callable[[Clinic], None]) -> Callable[[Clinic], None]:
        def planted(clinic: Clinic) -> set[str]:
            plant(clinic)
            return set(codes)

        DAMAGE[plant.__name__] = planted
        return plant

    return register


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the data is made that every test damages a copy of."""
    return tmp_path_factory.mktemp("whole")


@pytest.fixture
async def clinic(whole: Path, tmp_path: Path) -> Clinic:
    """A copy of used data."""
    made = Clinic(whole)
    if not made.data.exists():
        made = await used(whole)
    return made.copy(tmp_path)


def session(clinic: Clinic) -> str:
    """The session with the most messages that nothing was copied from."""
    found: str = clinic.value("SELECT id FROM session WHERE data LIKE '%\"Work\"%'")
    return found


def run(clinic: Clinic, sql: str, *args: object) -> None:
    """Change rows behind kedge's back."""
    with clinic.rows() as rows:
        assert rows.execute(sql, args).rowcount > 0


def flip(path: Path, at: int) -> None:
    """Change one byte of a file."""
    path.chmod(0o600)
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


# The database


@damage("database-unusable")
def no_database(clinic: Clinic) -> None:
    """The file is no database."""
    clinic.database.write_bytes(b"These are not the rows you are looking for. " * 100)


@damage("database-damaged")
def damaged_page(clinic: Clinic) -> None:
    """A page of a table is damaged."""
    root: int = clinic.value("SELECT rootpage FROM sqlite_schema WHERE name = 'message'")
    flip(clinic.database, (root - 1) * 4096 + 3)
    flip(clinic.database, (root - 1) * 4096 + 9)


@damage("database-newer")
def newer_schema(clinic: Clinic) -> None:
    """A later kedge has migrated the database."""
    with clinic.rows() as rows:
        rows.execute("PRAGMA user_version = 99")


@damage("database-older")
def older_schema(clinic: Clinic) -> None:
    """An earlier kedge wrote the database."""
    with clinic.rows() as rows:
        rows.execute("PRAGMA user_version = 7")


@damage("replay-differs")
def changed_text(clinic: Clinic) -> None:
    """A part is not what was announced."""
    run(
        clinic,
        "UPDATE part SET data = replace(data, 'write a1.txt 1', 'write a1.txt 9')"
        " WHERE session_id = ? AND type = 'text' AND data LIKE '%a1.txt 1%'",
        session(clinic),
    )


@damage("rows-lost")
def lost_message(clinic: Clinic) -> None:
    """The last message is gone, its parts are there."""
    run(
        clinic,
        "DELETE FROM message WHERE session_id = ? AND pos ="
        " (SELECT max(pos) FROM message WHERE session_id = ?)",
        *[session(clinic)] * 2,
    )


@damage("replay-differs")
def lost_events(clinic: Clinic) -> None:
    """The events of messages are gone."""
    run(
        clinic,
        "DELETE FROM event WHERE session_id = ? AND type LIKE 'message%'",
        clinic.value("SELECT id FROM session WHERE data LIKE '%\"More\"%'"),
    )


@damage("row-damaged")
def damaged_row(clinic: Clinic) -> None:
    """A message is cut off."""
    run(
        clinic,
        "UPDATE message SET data = substr(data, 1, 20) WHERE session_id = ? AND pos = 0",
        session(clinic),
    )


@damage("project-missing", "project-differs")
def lost_project(clinic: Clinic) -> None:
    """The project is gone."""
    run(clinic, "DELETE FROM project")


@damage("lists-differ")
def unlisted(clinic: Clinic) -> None:
    """A session stands in no list."""
    run(clinic, "DELETE FROM session_place WHERE session_id = ?", session(clinic))


@damage("lists-differ")
def wrongly_ranked(clinic: Clinic) -> None:
    """A session stands at a wrong place."""
    run(clinic, "UPDATE session_place SET time_updated = 5 WHERE session_id = ?", session(clinic))


@damage("rows-orphaned")
def orphans(clinic: Clinic) -> None:
    """There are rows of a session and of a plan that do not exist."""
    run(clinic, "INSERT INTO todo VALUES ('ses_gone', 1, NULL, 0, 0, '[]')")
    run(clinic, "INSERT INTO plan_step VALUES ('pln_gone', 1, x'61', NULL, NULL, NULL, NULL, NULL)")


@damage("search-ahead")
def index_ahead(clinic: Clinic) -> None:
    """The search index claims to be further than the log."""
    run(clinic, "UPDATE meta SET value = '999999' WHERE key = 'search_mark'")


# What is stuck


@damage("message-open", "replay-differs")
def open_message(clinic: Clinic) -> None:
    """A message is open without a run."""
    run(
        clinic,
        "UPDATE message SET open = 1, data = replace(data, '\"completed\"', '\"was\"')"
        " WHERE session_id = ? AND role = 'assistant' AND pos = 1",
        session(clinic),
    )


@damage("tool-running", "replay-differs")
def running_call(clinic: Clinic) -> None:
    """A call runs in a message that has ended."""
    run(
        clinic,
        'UPDATE part SET data = replace(data, \'"status":"completed"\', \'"status":"running"\')'
        " WHERE session_id = ? AND type = 'tool' AND message_pos = 1",
        session(clinic),
    )


@damage("run-cut-off", "replay-differs")
def dead_owner(clinic: Clinic) -> None:
    """The process that holds a session is gone."""
    owner = (
        '{"machine":"m","boot":"b","namespace":"n","pid":1,"start":"1","engine":"0123456789abcdef"}'
    )
    run(
        clinic,
        'UPDATE lease SET owner = ?, time_expires = 1, status = \'{"type":"busy"}\''
        " WHERE session_id = ?",
        owner,
        session(clinic),
    )


@damage("revert-unfinished")
def unfinished_revert(clinic: Clinic) -> None:
    """A revert was not completed."""
    run(
        clinic,
        "UPDATE plan SET state = 'planned', time_finished = NULL WHERE session_id = ?",
        session(clinic),
    )


@damage("ask-open", "replay-differs")
def open_ask(clinic: Clinic) -> None:
    """A request waits for an answer without a run."""
    id = session(clinic)
    ask = json.dumps(
        {"id": "per_1", "sessionID": id, "permission": "bash", "patterns": ["x"], "always": []}
        | {"metadata": {}}
    )
    run(clinic, "INSERT INTO ask VALUES ('per_1', ?, 'permission', ?, 1, NULL, NULL)", id, ask)


@damage("call-open")
def open_call(clinic: Clinic) -> None:
    """The timeline has a call without a run."""
    run(
        clinic,
        "INSERT INTO call VALUES (?, 'prt_1', 'msg_1', '/w', 'm', 'unknown', 1, 2, NULL, '{}')",
        session(clinic),
    )


@damage("process-left")
def left_process(clinic: Clinic) -> None:
    """A process is recorded without a run."""
    run(clinic, "INSERT INTO process VALUES (?, 'prt_1', 'm', 'b', 1, 1, 1)", session(clinic))


@damage("request-open")
def open_request(clinic: Clinic) -> None:
    """A request to stop has no run."""
    run(clinic, "INSERT INTO request VALUES ('r', ?, 'stop', '{}', 1, NULL)", session(clinic))


@damage("text-left")
def left_text(clinic: Clinic) -> None:
    """There is text of a part that no run grows."""
    run(clinic, "INSERT INTO piece VALUES (?, 'prt_1', 0, '\"abc\"')", session(clinic))


@damage("prompt-waits")
def waiting_prompt(clinic: Clinic) -> None:
    """A prompt waits in an idle session."""
    run(
        clinic,
        "UPDATE message SET awaiting = 3 WHERE session_id = ? AND pos = 0",
        session(clinic),
    )


@damage("rule-left")
def left_rule(clinic: Clinic) -> None:
    """A rule of a dead server is there."""
    owner = '{"machine":"m","boot":"b","namespace":"n","pid":1,"start":"1","engine":"e"}'
    run(clinic, "INSERT INTO permission_rule VALUES ('p', 'bash', 'x', ?, 1, 1)", owner)


# Snapshots


def packs(clinic: Clinic) -> list[Path]:
    """The packs, largest first."""
    found = (clinic.store / "objects/pack").glob("*.pack")
    return sorted(found, key=lambda path: -path.stat().st_size)


@damage("pack-damaged", "objects-missing", "reference-lost")
def damaged_pack(clinic: Clinic) -> None:
    """Many bytes of the packs are wrong."""
    for pack in packs(clinic):
        for at in range(40, pack.stat().st_size - 40, 60):
            flip(pack, at)


@damage("index-without-pack", "objects-missing", "reference-lost")
def lost_packs(clinic: Clinic) -> None:
    """The packs are gone."""
    for pack in packs(clinic):
        pack.unlink()


@damage("pack-without-index", "objects-missing", "reference-lost")
def lost_indexes(clinic: Clinic) -> None:
    """The indexes are gone."""
    for pack in packs(clinic):
        pack.with_suffix(".idx").unlink()


@damage("ref-damaged", "reference-not-kept")
def damaged_ref(clinic: Clinic) -> None:
    """The refs do not name commits."""
    for ref in (clinic.store / "refs/kedge/session").glob("ses*"):
        ref.write_text("zzz\n")


@damage("reference-not-kept")
def lost_refs(clinic: Clinic) -> None:
    """The refs are gone."""
    for ref in (clinic.store / "refs/kedge/session").glob("ses*"):
        ref.unlink()


@damage("reference-lost")
def no_snapshots(clinic: Clinic) -> None:
    """All snapshots of the project are gone."""
    clinic.store.rename(clinic.root / "elsewhere")


@damage("journal-damaged")
def damaged_journal(clinic: Clinic) -> None:
    """A journal is damaged in its middle."""
    journal = OpenJournal.create(clinic.store / "journals")
    for content in (b"one", b"two", b"three"):
        new = (BLOB, object_id(BLOB, content), content)
        journal.append_durably([new], {})
        keep, objects = new_hold([new[1]], [], 0)
        journal.append_durably(objects, {"refs/kedge/taken/x": keep})
    journal.close()
    flip(journal.path, 50)


@damage("store-incomplete")
def no_head(clinic: Clinic) -> None:
    """A file is missing that git needs."""
    (clinic.store / "HEAD").unlink()


@damage("store-incomplete", "reference-lost")
def no_folders(clinic: Clinic) -> None:
    """The folder of the objects is gone."""
    (clinic.store / "objects").rename(clinic.root / "objects")


@damage("restore-damaged")
def damaged_restore(clinic: Clinic) -> None:
    """A note about a restore cannot be read."""
    (clinic.store / "plans" / "x").mkdir(parents=True)
    (clinic.store / "plans" / "x" / "y.damaged").write_bytes(b"?")


@damage("files-left")
def left_files(clinic: Clinic) -> None:
    """A pack was never finished."""
    left = clinic.store / "objects/pack/tmp_kedge_1_pack"
    left.write_bytes(b"?")
    os.utime(left, (1, 1))


# The machine


@damage("folder-open")
def open_folder(clinic: Clinic) -> None:
    """Others may read the folder."""
    clinic.data.chmod(0o755)


@damage("folder-open")
def open_database(clinic: Clinic) -> None:
    """Others may read the database."""
    clinic.database.chmod(0o644)


REPAIRED = {
    "message-open",
    "tool-running",
    "run-cut-off",
    "revert-unfinished",
    "ask-open",
    "call-open",
    "process-left",
    "request-open",
    "text-left",
    "rule-left",
    "replay-differs",
    "lists-differ",
    "rows-orphaned",
    "search-ahead",
    "reference-not-kept",
    "folder-open",
}
"""What can be repaired where nothing else is found."""


@pytest.mark.parametrize("name", DAMAGE)
async def test_each_kind_of_damage_is_found_and_repaired(name: str, clinic: Clinic) -> None:
    """What was planted is told, and nothing else. What can be repaired is healthy afterwards; rows
    that were changed are saved, and objects are there as before."""
    expected = DAMAGE[name](clinic)
    objects = {path for path in clinic.data.rglob("objects/pack/pack-*") if path.is_file()}
    report = await clinic.examine()
    told = {each.code for each in report.findings}
    assert told == expected, [each.what for each in report.findings]
    serious = any(KINDS[code].severity is not Severity.NOTICE for code in expected)
    assert report.is_healthy is not serious
    if not (plan := planned(report)):
        return
    outcome = await repair(plan, data_dir=clinic.data)
    assert all(path.exists() for path in objects)
    if expected <= REPAIRED:
        assert (outcome.failed, (await clinic.examine()).findings) == ([], [])
    if outcome.saved is not None:
        assert outcome.saved.parent == clinic.data / "repairs"
        assert outcome.saved.stat().st_mode & 0o777 == 0o600


def test_every_repair_is_tried() -> None:
    """The kinds with a repair are those that the tests above repair, and one that needs git."""
    assert {code for code, kind in KINDS.items() if kind.repair} == REPAIRED | {"store-incomplete"}


async def test_rows_are_saved_before_they_are_removed(clinic: Clinic) -> None:
    """The file has the rows of the tables as they were."""
    orphans(clinic)
    outcome = await repair(planned(await clinic.examine()), data_dir=clinic.data)
    assert outcome.saved is not None
    lines = [json.loads(line) for line in outcome.saved.read_text().splitlines()]
    assert lines == [
        {"table": "plan_step", "owner": "pln_gone", "row": ["pln_gone", 1, "a", *[None] * 5]},
        {"table": "todo", "owner": "ses_gone", "row": ["ses_gone", 1, None, 0, 0, "[]"]},
    ]


async def test_used_data_is_healthy(clinic: Clinic) -> None:
    """Ordinary work leaves nothing to find, and examining changes nothing."""
    before = {path: path.read_bytes() for path in clinic.data.rglob("*") if path.is_file()}
    report = await clinic.examine()
    assert (report.findings, report.unchecked) == ([], [])
    after = {path: path.read_bytes() for path in clinic.data.rglob("*") if path.is_file()}
    assert {path for path in before | after if before.get(path) != after.get(path)} <= {
        clinic.database,
        clinic.store / "lock",
    }
