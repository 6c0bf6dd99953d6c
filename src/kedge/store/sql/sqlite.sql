-- SQLite's own queries: the writer is alone in its transaction, so nothing needs a row lock.

-- name: clock
SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)

-- name: commit_without_sync
SELECT 1

-- name: project_lock
SELECT 1

-- name: worktree_lock
SELECT project_id FROM worktree WHERE path = :path

-- name: session_lock
SELECT project_id, directory, worktree, time_deleted, next_pos, last_created, data FROM session WHERE id = :id

-- name: part_home
SELECT s.project_id, s.directory, m.pos, NULL
FROM session s JOIN message m ON m.session_id = s.id AND m.id = :message_id
WHERE s.id = :session_id AND s.time_deleted IS NULL

-- name: part_home_fenced
SELECT s.project_id, s.directory, m.pos, CASE WHEN l.owner IS NULL THEN NULL ELSE l.generation END
FROM session s
JOIN message m ON m.session_id = s.id AND m.id = :message_id
JOIN lease l ON l.session_id = s.id
WHERE s.id = :session_id AND s.time_deleted IS NULL

-- name: lease_owned
SELECT l.session_id, l.owner, l.time_expires, l.status, l.time_status, s.directory, s.project_id
FROM lease l INDEXED BY lease_held JOIN session s ON s.id = l.session_id
WHERE l.owner IS NOT NULL AND l.session_id > :after ORDER BY l.session_id LIMIT :limit

-- name: lease_lock
SELECT generation, owner, time_expires, status, kind, first_pos FROM lease WHERE session_id = :session_id

-- name: event_append
INSERT INTO event (seq, type, entity, session_id, project_id, directory, payload, progress)
VALUES (
    1 + max(
        COALESCE((SELECT max(seq) FROM event), 0),
        COALESCE((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'event_number'), 0)
    ),
    ?, ?, ?, ?, ?, ?, ?
)

-- name: event_head
SELECT max(
    COALESCE((SELECT max(seq) FROM event), 0),
    COALESCE((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'event_number'), 0)
)

-- name: fork_messages
INSERT INTO message (session_id, pos, id, role, parent_id, awaiting, open, data)
SELECT :fork, pos, 'msg_' || printf('%012x', :base + row_number() OVER (ORDER BY pos) - 1) || :suffix,
    role, parent_id, CASE WHEN awaiting > 0 THEN -1 ELSE awaiting END, open, data
FROM message WHERE session_id = :origin AND pos < :pos

-- name: fork_parts
INSERT INTO part (session_id, message_pos, id, type, data)
SELECT :fork, message_pos,
    'prt_' || printf('%012x', :base + row_number() OVER (ORDER BY message_pos, id) - 1) || :suffix, type, data
FROM part WHERE session_id = :origin AND message_pos < :pos

-- name: fork_size
SELECT (SELECT count(*) FROM message WHERE session_id = :origin AND pos < :pos),
    (SELECT count(*) FROM part WHERE session_id = :origin AND message_pos < :pos)

-- name: index_lock
SELECT 1

-- name: search_doc_add
INSERT INTO search_doc (session_id, message_id, part_id, kind) VALUES (:session_id, :message_id, :part_id, :kind)
RETURNING id

-- name: search_text_add
INSERT INTO search_text (rowid, kind, words, body) VALUES (:id, :kind, :words, :body)

-- name: search_text_put
UPDATE search_text SET words = :words, body = :body WHERE rowid = :id

-- name: search_text_drop
DELETE FROM search_text WHERE rowid = :id

-- name: search_doc_drop
DELETE FROM search_doc WHERE id = :id

-- name: search_sessions
SELECT s.data, p.time_updated, p.session_id
FROM (
    SELECT session_id FROM session_title WHERE instr(folded, :title) > 0
    UNION
    SELECT d.session_id FROM search_text JOIN search_doc d ON d.id = search_text.rowid WHERE search_text MATCH :fts
) m
-- Not the other way round: a place may list every session there is.
CROSS JOIN session_place p ON p.session_id = m.session_id AND p.place = :place
JOIN session s ON s.id = p.session_id
WHERE (:buckets >> p.bucket) & 1 = 1 AND p.time_updated >= :start AND p.time_updated < :before
    AND (p.time_updated, p.session_id) < (:time, :id)
ORDER BY p.time_updated DESC, p.session_id DESC
LIMIT :limit

-- name: search_hits
SELECT h.id, h.session_id, h.message_id, h.part_id, h.kind,
    CASE WHEN h.start > 1 THEN '…' ELSE '' END || substr(h.body, h.start, 160)
        || CASE WHEN length(h.body) >= h.start + 160 THEN '…' ELSE '' END,
    h.data
FROM (
    SELECT d.id, d.session_id, d.message_id, d.part_id, d.kind, s.data, search_text.body AS body,
        max(instr(lower(search_text.body), :word) - 40, 1) AS start
    FROM search_text JOIN search_doc d ON d.id = search_text.rowid
    JOIN session_place p ON p.session_id = d.session_id AND p.place = :place
    JOIN session s ON s.id = d.session_id
    WHERE search_text MATCH :fts AND search_text.rowid < :before
    ORDER BY search_text.rowid DESC LIMIT :limit
) h
ORDER BY h.id DESC

-- name: seen_put
INSERT INTO seen (session_id, path, blob) VALUES (:session_id, :path, :blob)
ON CONFLICT (session_id, path) DO UPDATE SET blob = excluded.blob

-- name: seen_get
SELECT blob FROM seen WHERE session_id = :session_id AND path = :path

-- name: seen_drop
DELETE FROM seen WHERE session_id = :session_id AND path = :path
