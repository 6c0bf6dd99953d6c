-- PostgreSQL's own queries. Whoever changes a session locks its row first (session_lock), its lease second. Rows that
-- a statement reads beside a lock are those of before the wait for it, unless they are locked too.

-- name: clock
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- Advisory locks: the first number is "kedg", the second says what for. 0 is taken by migrations.

-- name: project_lock
SELECT 1 FROM pg_advisory_xact_lock(1801806951, 1)

-- name: index_lock
SELECT 1 FROM pg_advisory_xact_lock(1801806951, 2)

-- name: session_lock
SELECT project_id, directory, worktree, time_deleted, next_pos, last_created, data FROM session WHERE id = :id
FOR UPDATE

-- Parts do not wait for each other, only for whoever holds the session; nor does a lease's renewal wait for them.

-- name: part_home
SELECT s.project_id, s.directory, m.pos, NULL
FROM session s JOIN message m ON m.session_id = s.id AND m.id = :message_id
WHERE s.id = :session_id AND s.time_deleted IS NULL
FOR KEY SHARE OF s, m

-- name: part_home_fenced
SELECT s.project_id, s.directory, m.pos, l.generation
FROM session s
JOIN message m ON m.session_id = s.id AND m.id = :message_id
JOIN lease l ON l.session_id = s.id
WHERE s.id = :session_id AND s.time_deleted IS NULL
FOR KEY SHARE OF s, m, l

-- name: lease_lock
SELECT generation, owner, time_expires, status FROM lease WHERE session_id = :session_id FOR UPDATE

-- name: event_append
WITH head AS (UPDATE event_head SET seq = seq + :count RETURNING seq)
INSERT INTO event (seq, type, entity, session_id, project_id, directory, payload)
SELECT head.seq - :count + e.n, e.type, e.entity, e.session_id, e.project_id, e.directory, e.payload
FROM head, unnest(:types::text[], :entities::text[], :sessions::text[], :projects::text[], :directories::text[],
    :payloads::text[]) WITH ORDINALITY AS e (type, entity, session_id, project_id, directory, payload, n)
RETURNING seq

-- name: event_head
SELECT seq FROM event_head

-- name: fork_messages
INSERT INTO message (session_id, pos, id, role, parent_id, awaiting, open, data)
WITH origin AS MATERIALIZED (
    SELECT pos, id, row_number() OVER (ORDER BY pos) - 1 AS n
    FROM message WHERE session_id = :origin AND pos < :pos
)
SELECT :fork, o.n, 'msg_' || lpad(to_hex(:base + o.n), 12, '0') || :suffix, m.role,
    CASE WHEN p.n IS NULL THEN m.parent_id ELSE 'msg_' || lpad(to_hex(:base + p.n), 12, '0') || :suffix END,
    0, m.open, m.data
FROM origin o JOIN message m ON m.session_id = :origin AND m.pos = o.pos LEFT JOIN origin p ON p.id = m.parent_id

-- name: fork_parts
INSERT INTO part (session_id, message_pos, id, type, data)
SELECT :fork, o.n,
    'prt_' || lpad(to_hex(:base + row_number() OVER (ORDER BY p.message_pos, p.id) - 1), 12, '0') || :suffix,
    p.type, p.data
FROM (
    SELECT pos, row_number() OVER (ORDER BY pos) - 1 AS n FROM message WHERE session_id = :origin AND pos < :pos
) o JOIN part p ON p.session_id = :origin AND p.message_pos = o.pos

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

-- One row holds both: whichever is dropped first takes the other along.

-- name: search_text_drop
DELETE FROM search_doc WHERE id = :id

-- name: search_doc_drop
DELETE FROM search_doc WHERE id = :id

-- The hits are found first, all of them and by the words alone: else a planner that hopes for an early hit walks
-- through every document by id.

-- name: search_hits
WITH hit AS MATERIALIZED (
    SELECT id FROM search_doc WHERE words @@ (:tsquery::tsquery && ('''=' || :kind || '''')::tsquery)
)
SELECT d.id, d.session_id, d.message_id, d.part_id, d.kind,
    CASE WHEN at.start > 1 THEN '…' ELSE '' END || substr(d.body, at.start, 160)
        || CASE WHEN length(d.body) >= at.start + 160 THEN '…' ELSE '' END,
    s.data
FROM (SELECT id FROM hit WHERE id < :before ORDER BY id DESC) h
JOIN search_doc d ON d.id = h.id
JOIN session s ON s.id = d.session_id AND s.time_deleted IS NULL
CROSS JOIN LATERAL (
    SELECT greatest(strpos(lower(d.body), split_part(:tsquery, ':', 1)) - 40, 1) AS start
) at
ORDER BY h.id DESC LIMIT :limit
