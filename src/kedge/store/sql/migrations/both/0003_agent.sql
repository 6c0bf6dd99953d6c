-- What an agent needs: what it asks people, what they allowed for good, which configuration they trust, and
-- the processes that its commands started.

-- `kind` is 'permission' or 'question', `data` the request as on the wire. An ask that has ended keeps its answer.
CREATE TABLE ask (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    time_created BIGINT NOT NULL,
    time_ended BIGINT,
    answer TEXT
);
CREATE INDEX ask_open ON ask (session_id, time_created, id) WHERE time_ended IS NULL;
CREATE INDEX ask_session ON ask (session_id);

CREATE TABLE permission_rule (
    project_id TEXT NOT NULL,
    permission TEXT NOT NULL,
    pattern TEXT NOT NULL,
    time_created BIGINT NOT NULL,
    PRIMARY KEY (project_id, permission, pattern)
);

-- A file is trusted for as long as its content has this digest.
CREATE TABLE trust (
    path TEXT NOT NULL,
    digest TEXT NOT NULL,
    time_created BIGINT NOT NULL,
    PRIMARY KEY (path, digest)
);

CREATE TABLE process (
    session_id TEXT NOT NULL,
    part_id TEXT NOT NULL,
    machine TEXT NOT NULL,
    boot TEXT NOT NULL,
    pid BIGINT NOT NULL,
    pgid BIGINT NOT NULL,
    started BIGINT NOT NULL,
    PRIMARY KEY (session_id, part_id, pid)
);

-- What the owner does with the session: a turn takes up prompts that come meanwhile, a revert does not.
ALTER TABLE lease ADD COLUMN kind TEXT NOT NULL DEFAULT 'turn';
