-- PostgreSQL's own queries. A transaction that changes a session locks its row first (session_lock), its lease second.
-- Rows that a statement reads beside a lock are as they were before the wait for it, unless they are locked too.

-- name: clock
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- The transaction survives the end of this process at once, and that of the server a little later.

-- name: commit_without_sync
SELECT set_config('synchronous_commit', 'off', true)

-- Advisory locks: the first number is "kedg", the second the purpose. 0 is used by migrations.

-- name: worktree_lock
SELECT project_id FROM worktree WHERE path = :path FOR SHARE

-- name: project_lock
SELECT 1 FROM pg_advisory_xact_lock(1801806951, 1)

-- name: index_lock
SELECT 1 FROM pg_advisory_xact_lock(1801806951, 2)

-- name: session_lock
SELECT project_id, directory, worktree, time_deleted, next_pos, last_created, data FROM session WHERE id = :id
FOR UPDATE

-- Writers of parts do not wait for each other, only for a transaction that locks the session. Not KEY SHARE: that one
-- accepts the old version of a row that was changed during the wait.

-- name: part_home
SELECT s.project_id, s.directory, m.pos, NULL
FROM session s JOIN message m ON m.session_id = s.id AND m.id = :message_id
WHERE s.id = :session_id AND s.time_deleted IS NULL
FOR UPDATE OF s FOR SHARE OF m

-- name: part_home_fenced
SELECT s.project_id, s.directory, m.pos, CASE WHEN l.owner IS NULL THEN NULL ELSE l.generation END
FROM session s
JOIN message m ON m.session_id = s.id AND m.id = :message_id
JOIN lease l ON l.session_id = s.id
WHERE s.id = :session_id AND s.time_deleted IS NULL
FOR UPDATE OF s FOR SHARE OF m, l

-- name: lease_owned
SELECT l.session_id, l.owner, l.time_expires, l.status, l.time_status, s.directory, s.project_id
FROM lease l JOIN session s ON s.id = l.session_id
WHERE l.owner IS NOT NULL AND l.session_id > :after ORDER BY l.session_id LIMIT :limit

-- name: lease_lock
SELECT generation, owner, time_expires, status, kind, first_pos FROM lease WHERE session_id = :session_id FOR UPDATE

-- Also writes the token: see `commit` in store/postgres/transactions.py.
-- name: event_append
WITH head AS (UPDATE event_head SET seq = seq + :count RETURNING seq),
token AS (
    INSERT INTO commit_token (writer, number) VALUES (:writer, :number)
    ON CONFLICT (writer) DO UPDATE SET time_used = excluded.time_used,
        number = CASE WHEN commit_token.number < excluded.number THEN excluded.number END
)
INSERT INTO event (seq, type, entity, session_id, project_id, directory, payload, progress)
SELECT head.seq - :count + e.n, e.type, e.entity, e.session_id, e.project_id, e.directory, e.payload, e.progress
FROM head, unnest(:types::text[], :entities::text[], :sessions::text[], :projects::text[], :directories::text[],
    :payloads::text[], :progress::bigint[])
    WITH ORDINALITY AS e (type, entity, session_id, project_id, directory, payload, progress, n)
RETURNING seq

-- name: event_head
SELECT seq FROM event_head

-- name: fork_messages
INSERT INTO message (session_id, pos, id, role, parent_id, awaiting, open, data)
SELECT :fork, pos, 'msg_' || lpad(to_hex(:base + row_number() OVER (ORDER BY pos) - 1), 12, '0') || :suffix,
    role, parent_id, CASE WHEN awaiting > 0 THEN -1 ELSE awaiting END, open, data
FROM message WHERE session_id = :origin AND pos < :pos

-- name: fork_parts
INSERT INTO part (session_id, message_pos, id, type, data)
SELECT :fork, message_pos,
    'prt_' || lpad(to_hex(:base + row_number() OVER (ORDER BY message_pos, id) - 1), 12, '0') || :suffix, type, data
FROM part WHERE session_id = :origin AND message_pos < :pos

-- name: fork_size
SELECT (SELECT count(*) FROM message WHERE session_id = :origin AND pos < :pos),
    (SELECT count(*) FROM part WHERE session_id = :origin AND message_pos < :pos)

-- name: search_doc_add
INSERT INTO search_doc (session_id, message_id, part_id, kind) VALUES (:session_id, :message_id, :part_id, :kind)
RETURNING id

-- The words come from kedge and not from PostgreSQL's parser, whose idea of a letter depends on the database's locale.
-- A lexeme has at most 2,046 bytes and all of a text at most 1 MiB.

-- name: search_text_add
UPDATE search_doc SET body = :body, words = array_to_tsvector(
    ARRAY(SELECT DISTINCT left(word, 128) FROM unnest(string_to_array(left(:words, 250000), ' ')) AS word) || ('=' || kind)
) WHERE id = :id AND kind = :kind

-- name: search_text_put
UPDATE search_doc SET body = :body, words = array_to_tsvector(
    ARRAY(SELECT DISTINCT left(word, 128) FROM unnest(string_to_array(left(:words, 250000), ' ')) AS word) || ('=' || kind)
) WHERE id = :id

-- One row holds both: dropping the first removes the other as well.

-- name: search_text_drop
DELETE FROM search_doc WHERE id = :id

-- name: search_doc_drop
DELETE FROM search_doc WHERE id = :id

-- All hits are found first, by the words alone: otherwise a planner that expects an early hit walks
-- through every document by id.

-- name: search_hits
WITH hit AS MATERIALIZED (
    SELECT id FROM search_doc WHERE words @@ (
        regexp_replace(:tsquery, '([^ :&]{128})[^ :&]+', '\1', 'g')::tsquery && ('''=' || :kind || '''')::tsquery
    )
)
SELECT d.id, d.session_id, d.message_id, d.part_id, d.kind,
    CASE WHEN at.start > 1 THEN '…' ELSE '' END || substr(d.body, at.start, 160)
        || CASE WHEN length(d.body) >= at.start + 160 THEN '…' ELSE '' END,
    s.data
FROM (SELECT id FROM hit WHERE id < :before ORDER BY id DESC) h
JOIN search_doc d ON d.id = h.id
JOIN session_place p ON p.session_id = d.session_id AND p.place = :place
JOIN session s ON s.id = d.session_id
CROSS JOIN LATERAL (
    SELECT greatest(strpos(lower(d.body), split_part(:tsquery, ':', 1)) - 40, 1) AS start
) at
ORDER BY h.id DESC LIMIT :limit

-- name: search_sessions
WITH hit AS MATERIALIZED (
    SELECT session_id FROM session_title WHERE strpos(folded, :title) > 0
    UNION
    SELECT session_id FROM search_doc
    WHERE words @@ regexp_replace(:tsquery, '([^ :&]{128})[^ :&]+', '\1', 'g')::tsquery
)
SELECT s.data, p.time_updated, p.session_id
FROM hit m
JOIN session_place p ON p.session_id = m.session_id AND p.place = :place
JOIN session s ON s.id = p.session_id
WHERE (:buckets >> p.bucket::int) & 1 = 1 AND p.time_updated >= :start AND p.time_updated < :before
    AND (p.time_updated, p.session_id) < (:time, :id)
ORDER BY p.time_updated DESC, p.session_id DESC
LIMIT :limit

-- name: seen_put
INSERT INTO seen (session_id, path, blob) VALUES (:session_id, :path, :blob)
ON CONFLICT (session_id, sha256(path)) DO UPDATE SET blob = excluded.blob

-- name: seen_get
SELECT blob FROM seen WHERE session_id = :session_id AND sha256(path) = sha256(:path)

-- name: seen_drop
DELETE FROM seen WHERE session_id = :session_id AND sha256(path) = sha256(:path)
