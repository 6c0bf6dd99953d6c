-- SQLite's own queries: the writer is alone in its transaction, so nothing needs a row lock.

-- name: clock
SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)

-- name: project_lock
SELECT 1

-- name: session_lock
SELECT project_id, directory, worktree, time_deleted, next_pos, last_created, data FROM session WHERE id = :id

-- name: part_home
SELECT s.project_id, s.directory, m.pos, NULL
FROM session s JOIN message m ON m.session_id = s.id AND m.id = :message_id
WHERE s.id = :session_id AND s.time_deleted IS NULL

-- name: part_home_fenced
SELECT s.project_id, s.directory, m.pos, l.generation
FROM session s
JOIN message m ON m.session_id = s.id AND m.id = :message_id
JOIN lease l ON l.session_id = s.id
WHERE s.id = :session_id AND s.time_deleted IS NULL

-- name: lease_lock
SELECT generation, owner, time_expires, status FROM lease WHERE session_id = :session_id

-- name: event_append
INSERT INTO event (type, entity, session_id, project_id, directory, payload, progress)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: event_head
SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0)

-- name: fork_messages
INSERT INTO message (session_id, pos, id, role, parent_id, awaiting, open, data)
WITH origin AS MATERIALIZED (
    SELECT pos, id, role, parent_id, open, data, row_number() OVER (ORDER BY pos) - 1 AS n
    FROM message WHERE session_id = :origin AND pos < :pos
)
SELECT :fork, o.n, 'msg_' || printf('%012x', :base + o.n) || :suffix, o.role,
    CASE WHEN p.n IS NULL THEN o.parent_id ELSE 'msg_' || printf('%012x', :base + p.n) || :suffix END,
    0, o.open, o.data
FROM origin o LEFT JOIN origin p ON p.id = o.parent_id
ORDER BY o.n

-- name: fork_parts
INSERT INTO part (session_id, message_pos, id, type, data)
SELECT :fork, o.n,
    'prt_' || printf('%012x', :base + row_number() OVER (ORDER BY p.message_pos, p.id) - 1) || :suffix, p.type, p.data
FROM (
    SELECT pos, row_number() OVER (ORDER BY pos) - 1 AS n FROM message WHERE session_id = :origin AND pos < :pos
) o JOIN part p ON p.session_id = :origin AND p.message_pos = o.pos
ORDER BY p.message_pos, p.id

-- name: fork_size
SELECT (SELECT count(*) FROM message WHERE session_id = :origin AND pos < :pos),
    (SELECT count(*) FROM part WHERE session_id = :origin AND message_pos < :pos)

-- name: index_lock
SELECT 1

-- name: search_doc_add
INSERT INTO search_doc (session_id, message_id, part_id, kind) VALUES (:session_id, :message_id, :part_id, :kind)
RETURNING id

-- name: search_text_add
INSERT INTO search_text (rowid, kind, body) VALUES (:id, :kind, :body)

-- name: search_text_put
UPDATE search_text SET body = :body WHERE rowid = :id

-- name: search_text_drop
DELETE FROM search_text WHERE rowid = :id

-- name: search_doc_drop
DELETE FROM search_doc WHERE id = :id

-- name: search_sessions
SELECT s.data, m.titled, p.time_updated, p.session_id
FROM (
    SELECT d.session_id, max(d.kind = 'title') AS titled
    FROM search_text JOIN search_doc d ON d.id = search_text.rowid
    WHERE search_text MATCH :fts GROUP BY d.session_id
) m
JOIN session_place p ON p.session_id = m.session_id AND p.place = :place
JOIN session s ON s.id = p.session_id
WHERE (:buckets >> p.bucket) & 1 = 1 AND p.time_updated >= :start
    AND (m.titled, p.time_updated, p.session_id) < (:titled, :time, :id)
ORDER BY m.titled DESC, p.time_updated DESC, p.session_id DESC
LIMIT :limit

-- name: search_hits
SELECT d.id, d.session_id, d.message_id, d.part_id, d.kind, snippet(search_text, 1, '', '', '…', 16), s.data
FROM search_text JOIN search_doc d ON d.id = search_text.rowid
JOIN session s ON s.id = d.session_id AND s.time_deleted IS NULL
WHERE search_text MATCH :fts AND search_text.rowid < :before
ORDER BY search_text.rowid DESC LIMIT :limit
