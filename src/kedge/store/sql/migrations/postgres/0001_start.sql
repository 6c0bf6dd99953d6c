-- The first schema, the same tables as SQLite's. Times are milliseconds since 1970; `data` is JSON text: jsonb
-- refuses \u0000. Text that is compared or sorted is COLLATE "C", so that its order is that of its bytes everywhere.

CREATE TABLE meta (
    key TEXT COLLATE "C" PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE project (
    id TEXT COLLATE "C" PRIMARY KEY,
    data TEXT NOT NULL
);

-- Every identity a project ever had: root commit hashes and `dir_` ids.
CREATE TABLE project_alias (
    alias TEXT COLLATE "C" PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL
);
CREATE INDEX project_alias_project ON project_alias (project_id, alias);

CREATE TABLE worktree (
    path TEXT COLLATE "C" PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL,
    fingerprint TEXT NOT NULL,
    identity TEXT NOT NULL,
    time_seen BIGINT NOT NULL
);
CREATE INDEX worktree_project ON worktree (project_id, path);

CREATE TABLE session (
    id TEXT COLLATE "C" PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL,
    worktree TEXT COLLATE "C" NOT NULL,
    directory TEXT COLLATE "C" NOT NULL,
    parent_id TEXT COLLATE "C",
    fork_session_id TEXT COLLATE "C",
    time_updated BIGINT NOT NULL,
    time_deleted BIGINT,
    next_pos BIGINT NOT NULL,
    last_created BIGINT NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX session_parent ON session (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX session_fork ON session (fork_session_id, id) WHERE fork_session_id IS NOT NULL;
CREATE INDEX session_directory ON session (directory, worktree);
CREATE INDEX session_worktree ON session (worktree, project_id);
CREATE INDEX session_deleted ON session (time_deleted, id) WHERE time_deleted IS NOT NULL;

-- One row for every list a session stands in: 'all', 'dir:<directory>', and 'path:<project>/<path>' for its
-- path and each folder above it. `bucket` is 0 live root, 1 live child, 2 archived root, 3 archived child; a
-- deleted session stands in no list.
CREATE TABLE session_place (
    place TEXT COLLATE "C" NOT NULL,
    bucket BIGINT NOT NULL,
    time_updated BIGINT NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (place, bucket, time_updated, session_id)
);
CREATE INDEX session_place_session ON session_place (session_id, place);

-- Ids of the entity itself are in columns and not in `data`, so that a fork copies rows without reading them.
CREATE TABLE message (
    session_id TEXT COLLATE "C" NOT NULL,
    pos BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    role TEXT NOT NULL,
    parent_id TEXT COLLATE "C",
    awaiting BIGINT NOT NULL,
    open BIGINT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (session_id, pos)
);
CREATE UNIQUE INDEX message_id ON message (session_id, id);
CREATE INDEX message_awaiting ON message (session_id, pos) WHERE awaiting = 1;
CREATE INDEX message_open ON message (session_id, pos) WHERE open = 1;

CREATE TABLE part (
    session_id TEXT COLLATE "C" NOT NULL,
    message_pos BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    type TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (session_id, message_pos, id)
);

-- Every version of the todo list, with the place in the conversation where it was written.
CREATE TABLE todo (
    session_id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    message_id TEXT COLLATE "C",
    pos BIGINT NOT NULL,
    time_created BIGINT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (session_id, version)
);

CREATE TABLE share (
    session_id TEXT COLLATE "C" PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    secret TEXT NOT NULL,
    url TEXT NOT NULL,
    time_created BIGINT NOT NULL
);

-- The row stays when the lease is released: the generation must never go back.
CREATE TABLE lease (
    session_id TEXT COLLATE "C" PRIMARY KEY,
    generation BIGINT NOT NULL,
    owner TEXT COLLATE "C",
    time_acquired BIGINT NOT NULL,
    time_expires BIGINT NOT NULL,
    status TEXT NOT NULL,
    time_status BIGINT NOT NULL
);
CREATE INDEX lease_owner ON lease (owner) WHERE owner IS NOT NULL;
CREATE INDEX lease_held ON lease (session_id) WHERE owner IS NOT NULL;

-- What was asked of a running session by somebody else than its owner.
CREATE TABLE request (
    id TEXT COLLATE "C" PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    time_created BIGINT NOT NULL,
    time_handled BIGINT
);
CREATE INDEX request_open ON request (session_id, time_created, id) WHERE time_handled IS NULL;
CREATE INDEX request_session ON request (session_id);

-- The last number given to an event. Its row stays locked from the append to the end of the commit, which is what
-- makes the order of numbers the order of commits; a sequence does not. Rewritten by every transaction, hence
-- the room for versions of the row in its page.
CREATE TABLE event_head (
    one BIGINT PRIMARY KEY CHECK (one = 1),
    seq BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO event_head (one, seq) VALUES (1, 0);

CREATE TABLE event (
    seq BIGINT PRIMARY KEY,
    type TEXT NOT NULL,
    entity TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C",
    project_id TEXT COLLATE "C",
    directory TEXT COLLATE "C",
    payload TEXT NOT NULL,
    progress BIGINT NOT NULL
);
CREATE INDEX event_session ON event (session_id, seq);
CREATE INDEX event_progress ON event (session_id, entity) WHERE progress = 1;

-- `words` holds the words of `body`, and `=<kind>`, which is no word, so that one index look-up answers both.
CREATE TABLE search_doc (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL,
    message_id TEXT COLLATE "C" NOT NULL,
    part_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    body TEXT NOT NULL DEFAULT '',
    words TSVECTOR NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX search_doc_part ON search_doc (session_id, message_id, part_id, kind);
CREATE INDEX search_doc_words ON search_doc USING gin (words);

-- What a revert needs: what each call did to each path, the plans that are being carried out, and the messages
-- that a finished revert took out of a session.
CREATE TABLE change (
    session_id TEXT COLLATE "C" NOT NULL,
    message_id TEXT COLLATE "C" NOT NULL,
    part_id TEXT COLLATE "C" NOT NULL,
    path BYTEA NOT NULL,
    worktree TEXT COLLATE "C" NOT NULL,
    timeline BIGINT NOT NULL,
    source TEXT NOT NULL,
    before_blob TEXT,
    before_mode BIGINT,
    after_blob TEXT,
    after_mode BIGINT
);
-- PostgreSQL takes no index entry over 2.7 kB, and a path may be longer: its hash stands for it.
CREATE UNIQUE INDEX change_path ON change (session_id, message_id, part_id, sha256(path));
CREATE INDEX change_timeline ON change (worktree, timeline);

CREATE TABLE plan (
    id TEXT COLLATE "C" PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    receipt TEXT,
    time_created BIGINT NOT NULL,
    time_finished BIGINT
);
CREATE INDEX plan_session ON plan (session_id, time_created, id);
CREATE INDEX plan_unfinished ON plan (time_created, id) WHERE time_finished IS NULL;

CREATE TABLE plan_step (
    plan_id TEXT COLLATE "C" NOT NULL,
    n BIGINT NOT NULL,
    path BYTEA NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (plan_id, n)
);

CREATE TABLE tail (
    id TEXT COLLATE "C" PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL,
    message_id TEXT COLLATE "C" NOT NULL,
    time_created BIGINT NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX tail_session ON tail (session_id, time_created, id);
