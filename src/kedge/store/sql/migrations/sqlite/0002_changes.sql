-- Whose change is it: what each call did to each path, which calls run, and what a revert did and took away.
-- The tables of the first schema that were meant for it were never written to.

DROP TABLE change;
DROP TABLE plan;
DROP TABLE plan_step;
DROP TABLE tail;

-- One stretch of a path's history that belongs to a session. No blob: there was nothing at the path. `pos` is the
-- place of the message in the conversation; it stays when the message goes. `timeline` orders changes of all sessions.
-- A folder that a declared call made has the source 'folder'; what could not be looked at has 'uncovered' and a reason;
-- 'call' says that a call of unknown effect ran, whatever it did.
CREATE TABLE change (
    session_id TEXT NOT NULL,
    pos BIGINT NOT NULL,
    part_id TEXT NOT NULL,
    n BIGINT NOT NULL,
    message_id TEXT NOT NULL,
    worktree TEXT NOT NULL,
    path BLOB NOT NULL,
    timeline BIGINT NOT NULL,
    source TEXT NOT NULL,
    before_blob TEXT,
    before_mode BIGINT,
    after_blob TEXT,
    after_mode BIGINT,
    reason TEXT,
    plan_id TEXT,
    tail_id TEXT,
    PRIMARY KEY (session_id, pos, part_id, n)
) WITHOUT ROWID;
CREATE INDEX change_timeline ON change (worktree, timeline) WHERE tail_id IS NULL;

-- The newest number of the timeline, which is the order of all changes, snapshots and calls of the database.
CREATE TABLE timeline (
    one BIGINT PRIMARY KEY CHECK (one = 1),
    number BIGINT NOT NULL
);
INSERT INTO timeline (one, number) VALUES (1, 0);

-- Calls that run, and those that ended while others of the machine did. `asked` is the newest number of the timeline
-- before the call looked at anything; it was at work from `began` to `ended`.
CREATE TABLE call (
    session_id TEXT NOT NULL,
    part_id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    worktree TEXT NOT NULL,
    machine TEXT NOT NULL,
    kind TEXT NOT NULL,
    asked BIGINT NOT NULL,
    began BIGINT NOT NULL,
    ended BIGINT,
    data TEXT NOT NULL,
    PRIMARY KEY (session_id, part_id)
) WITHOUT ROWID;
CREATE INDEX call_machine ON call (machine, began);

-- Snapshots taken while some call of unknown effect ran on the machine, in the order of the timeline.
CREATE TABLE sample (
    machine TEXT NOT NULL,
    worktree TEXT NOT NULL,
    number BIGINT NOT NULL,
    asked BIGINT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (machine, worktree, number)
) WITHOUT ROWID;

-- What a session last read or wrote at a path: an edit of anything else is refused.
CREATE TABLE seen (
    session_id TEXT NOT NULL,
    path BLOB NOT NULL,
    blob TEXT,
    PRIMARY KEY (session_id, path)
) WITHOUT ROWID;

-- Where the user's repository stood when a step began; one row where it was not as at the step before.
CREATE TABLE step_head (
    session_id TEXT NOT NULL,
    pos BIGINT NOT NULL,
    ref TEXT,
    commit_id TEXT,
    PRIMARY KEY (session_id, pos)
) WITHOUT ROWID;

-- For each turn of a subtask, the part of its parent that it worked for.
CREATE TABLE task_turn (
    session_id TEXT NOT NULL,
    pos BIGINT NOT NULL,
    parent_id TEXT NOT NULL,
    parent_pos BIGINT NOT NULL,
    parent_part_id TEXT,
    PRIMARY KEY (session_id, pos)
) WITHOUT ROWID;
CREATE INDEX task_turn_parent ON task_turn (parent_id, parent_pos);

-- What a revert or unrevert writes, before it does. `state`: planned (to be carried through), pending (done; the next
-- prompt makes it final), undone, final.
CREATE TABLE plan (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    worktree TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    timeline BIGINT NOT NULL,
    data TEXT NOT NULL,
    time_created BIGINT NOT NULL,
    time_finished BIGINT
);
CREATE INDEX plan_session ON plan (session_id, timeline);
CREATE INDEX plan_unfinished ON plan (time_created, id) WHERE time_finished IS NULL;

CREATE TABLE plan_step (
    plan_id TEXT NOT NULL,
    n BIGINT NOT NULL,
    path BLOB NOT NULL,
    expect_blob TEXT,
    expect_mode BIGINT,
    want_blob TEXT,
    want_mode BIGINT,
    outcome TEXT,
    PRIMARY KEY (plan_id, n)
) WITHOUT ROWID;

-- Messages that a finished revert took out of a session. Their rows stay in `message` and `part`, with the tail's id
-- in place of the session's.
CREATE TABLE tail (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    part_id TEXT,
    pos BIGINT NOT NULL,
    time_created BIGINT NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX tail_session ON tail (session_id, time_created, id);
