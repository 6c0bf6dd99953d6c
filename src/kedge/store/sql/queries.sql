-- Queries that read the same in SQLite and PostgreSQL. See queries.py for the form.

-- name: meta_get
SELECT value FROM meta WHERE key = :key

-- name: meta_set
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- ---- projects

-- name: project_get
SELECT data FROM project WHERE id = :id

-- name: project_all
SELECT data FROM project WHERE id > :after ORDER BY id LIMIT :limit

-- name: project_put
INSERT INTO project (id, data) VALUES (:id, :data) ON CONFLICT (id) DO UPDATE SET data = excluded.data

-- name: project_by_alias
SELECT project_id FROM project_alias WHERE alias = :alias

-- name: alias_add
INSERT INTO project_alias (alias, project_id) VALUES (:alias, :project_id)
ON CONFLICT (alias) DO NOTHING

-- name: alias_hand_on
UPDATE project_alias SET project_id = :to_project WHERE project_id = :from_project

-- name: alias_list
SELECT alias FROM project_alias WHERE project_id = :project_id ORDER BY alias

-- name: worktree_get
SELECT project_id, fingerprint, identity FROM worktree WHERE path = :path

-- name: worktree_put
INSERT INTO worktree (path, project_id, fingerprint, identity, time_seen)
VALUES (:path, :project_id, :fingerprint, :identity, :now)
ON CONFLICT (path) DO UPDATE SET project_id = excluded.project_id, fingerprint = excluded.fingerprint,
    identity = excluded.identity, time_seen = excluded.time_seen

-- name: worktree_list
SELECT path FROM worktree WHERE project_id = :project_id ORDER BY path

-- name: session_of_directory
SELECT id FROM session WHERE directory = :directory AND worktree <> :worktree LIMIT :limit

-- name: session_set_worktree
UPDATE session SET worktree = :worktree WHERE id = :id

-- name: session_of_worktree
SELECT id FROM session WHERE worktree = :worktree AND project_id = :project_id

-- ---- sessions

-- name: session_insert
INSERT INTO session (id, project_id, worktree, directory, parent_id, fork_session_id, time_updated, time_deleted,
    next_pos, last_created, data)
VALUES (:id, :project_id, :worktree, :directory, :parent_id, :fork_session_id, :time_updated, NULL, 0, 0, :data)

-- name: session_get
SELECT data FROM session WHERE id = :id AND time_deleted IS NULL

-- name: session_put
UPDATE session SET data = :data, time_updated = :time_updated, project_id = :project_id WHERE id = :id

-- name: session_set_deleted
UPDATE session SET time_deleted = :time_deleted WHERE id = :id

-- name: session_advance
UPDATE session SET next_pos = :next_pos, last_created = :last_created WHERE id = :id

-- name: session_children
SELECT data FROM session WHERE parent_id = :id AND time_deleted IS NULL ORDER BY id

-- name: session_child_ids
SELECT id FROM session WHERE parent_id = :id AND time_deleted IS NULL ORDER BY id

-- name: session_deleted_child_ids
SELECT id FROM session WHERE parent_id = :id AND time_deleted = :time_deleted ORDER BY id

-- name: session_forks
SELECT data FROM session WHERE fork_session_id = :id AND time_deleted IS NULL ORDER BY id

-- name: session_deleted_list
SELECT data, time_deleted FROM session WHERE time_deleted IS NOT NULL AND (time_deleted, id) > (:time, :id)
ORDER BY time_deleted, id LIMIT :limit

-- name: session_expired
SELECT id FROM session WHERE time_deleted IS NOT NULL AND time_deleted <= :before ORDER BY time_deleted, id LIMIT :limit

-- name: place_add
INSERT INTO session_place (place, bucket, time_updated, session_id) VALUES (:place, :bucket, :time_updated, :session_id)

-- name: place_touch
UPDATE session_place SET bucket = :bucket, time_updated = :time_updated WHERE session_id = :session_id

-- name: place_drop
DELETE FROM session_place WHERE session_id = :session_id

-- name: place_page
SELECT s.data, p.time_updated, p.session_id
FROM session_place p JOIN session s ON s.id = p.session_id
WHERE p.place = :place AND p.bucket = :bucket AND p.time_updated >= :start
    AND (p.time_updated, p.session_id) < (:time, :id)
ORDER BY p.time_updated DESC, p.session_id DESC
LIMIT :limit

-- ---- messages and parts

-- name: message_get
SELECT id, role, parent_id, data, pos FROM message WHERE session_id = :session_id AND id = :id

-- name: message_insert
INSERT INTO message (session_id, pos, id, role, parent_id, awaiting, open, data)
VALUES (:session_id, :pos, :id, :role, :parent_id, :awaiting, :open, :data)

-- name: message_update
UPDATE message SET role = :role, parent_id = :parent_id, open = :open, data = :data
WHERE session_id = :session_id AND id = :id

-- name: message_delete
DELETE FROM message WHERE session_id = :session_id AND id = :id

-- name: message_page_back
SELECT id, role, parent_id, data, pos FROM message
WHERE session_id = :session_id AND pos < :pos ORDER BY pos DESC LIMIT :limit

-- name: message_page_forth
SELECT id, role, parent_id, data, pos FROM message
WHERE session_id = :session_id AND pos > :pos ORDER BY pos LIMIT :limit

-- name: message_first_awaiting
SELECT id FROM message WHERE session_id = :session_id AND awaiting = 1 ORDER BY pos LIMIT 1

-- name: message_answered
UPDATE message SET awaiting = 0 WHERE session_id = :session_id AND id = :id

-- name: message_open_list
SELECT id, role, parent_id, data, pos FROM message WHERE session_id = :session_id AND open = 1 ORDER BY pos

-- name: part_get
SELECT p.id, p.type, p.data FROM part p
WHERE p.session_id = :session_id AND p.message_pos = :message_pos AND p.id = :id

-- name: part_put
INSERT INTO part (session_id, message_pos, id, type, data) VALUES (:session_id, :message_pos, :id, :type, :data)
ON CONFLICT (session_id, message_pos, id) DO UPDATE SET data = excluded.data WHERE part.type = excluded.type

-- name: part_set_data
UPDATE part SET data = :data WHERE session_id = :session_id AND message_pos = :message_pos AND id = :id

-- name: part_delete
DELETE FROM part WHERE session_id = :session_id AND message_pos = :message_pos AND id = :id

-- name: part_delete_of_message
DELETE FROM part WHERE session_id = :session_id AND message_pos = :message_pos

-- name: part_range
SELECT message_pos, id, type, data FROM part
WHERE session_id = :session_id AND message_pos BETWEEN :first AND :last ORDER BY message_pos, id

-- name: part_finishes
SELECT data FROM part
WHERE session_id = :session_id AND message_pos BETWEEN :first AND :last AND type = 'step-finish'

-- ---- todos

-- name: todo_newest
SELECT version, data FROM todo WHERE session_id = :session_id ORDER BY version DESC LIMIT 1

-- name: todo_before
SELECT version, data FROM todo WHERE session_id = :session_id AND pos < :pos ORDER BY version DESC LIMIT 1

-- name: todo_versions
SELECT version, message_id, time_created, data FROM todo WHERE session_id = :session_id ORDER BY version

-- name: todo_add
INSERT INTO todo (session_id, version, message_id, pos, time_created, data)
VALUES (:session_id, :version, :message_id, :pos, :now, :data)

-- ---- leases and requests

-- name: lease_take
INSERT INTO lease (session_id, generation, owner, time_acquired, time_expires, status, time_status)
VALUES (:session_id, :generation, :owner, :now, :time_expires, :status, :now)
ON CONFLICT (session_id) DO UPDATE SET generation = excluded.generation, owner = excluded.owner,
    time_acquired = excluded.time_acquired, time_expires = excluded.time_expires, status = excluded.status,
    time_status = excluded.time_status

-- name: lease_release
UPDATE lease SET owner = NULL, status = :status, time_status = :now WHERE session_id = :session_id

-- name: lease_status
UPDATE lease SET status = :status, time_status = :now WHERE session_id = :session_id

-- name: lease_renew
UPDATE lease SET time_expires = :time_expires WHERE owner = :owner

-- name: request_add
INSERT INTO request (id, session_id, kind, data, time_created, time_handled)
VALUES (:id, :session_id, :kind, :data, :now, NULL)

-- name: request_open
SELECT id, kind, data FROM request WHERE session_id = :session_id AND time_handled IS NULL ORDER BY time_created, id

-- name: request_handle_all
UPDATE request SET time_handled = :now WHERE session_id = :session_id AND time_handled IS NULL

-- ---- the event log

-- name: event_after
SELECT seq, type, session_id, project_id, directory, payload FROM event WHERE seq > :seq ORDER BY seq LIMIT :limit

-- name: event_after_in_directory
SELECT seq, type, session_id, project_id, directory, payload FROM event
WHERE seq > :seq AND seq <= :until AND directory = :directory ORDER BY seq LIMIT :limit

-- name: event_after_in_session
SELECT seq, type, session_id, project_id, directory, payload FROM event
WHERE session_id = :session_id AND seq > :seq ORDER BY seq LIMIT :limit

-- name: event_drop
DELETE FROM event WHERE seq = :seq

-- name: event_drop_progress
DELETE FROM event WHERE progress = 1 AND session_id = :session_id AND entity = :entity

-- name: event_rewrite
UPDATE event SET payload = :payload WHERE seq = :seq

-- Progress is left alone: the next event about the part drops it, and the one before must then still be there.

-- name: event_entities
SELECT seq, entity, type FROM event
WHERE session_id = :session_id AND seq > :seq AND seq <= :until AND progress = 0 ORDER BY seq LIMIT :limit

-- ---- search

-- name: search_doc_get
SELECT id FROM search_doc
WHERE session_id = :session_id AND message_id = :message_id AND part_id = :part_id AND kind = :kind

-- name: search_doc_of_message
SELECT id FROM search_doc WHERE session_id = :session_id AND message_id = :message_id

-- name: search_doc_of_part
SELECT id FROM search_doc WHERE session_id = :session_id AND message_id = :message_id AND part_id = :part_id

-- name: search_doc_of_session
SELECT id FROM search_doc WHERE session_id = :session_id LIMIT :limit

-- ---- retention

-- name: purge_part
DELETE FROM part WHERE session_id = :session_id

-- name: purge_message
DELETE FROM message WHERE session_id = :session_id

-- name: purge_todo
DELETE FROM todo WHERE session_id = :session_id

-- name: purge_share
DELETE FROM share WHERE session_id = :session_id

-- name: purge_lease
DELETE FROM lease WHERE session_id = :session_id

-- name: purge_request
DELETE FROM request WHERE session_id = :session_id

-- name: purge_event
DELETE FROM event WHERE session_id = :session_id AND type <> 'session.deleted'

-- name: purge_tail
DELETE FROM tail WHERE session_id = :session_id

-- name: purge_change
DELETE FROM change WHERE session_id = :session_id

-- name: purge_plan_step
DELETE FROM plan_step WHERE plan_id IN (SELECT id FROM plan WHERE session_id = :session_id)

-- name: purge_plan
DELETE FROM plan WHERE session_id = :session_id

-- name: purge_session
DELETE FROM session WHERE id = :id

-- ---- forks

-- Copies stand where their originals do, so that each finds its parent's copy by an index.

-- name: fork_parents
UPDATE message SET parent_id = COALESCE((
    SELECT copy.id FROM message origin JOIN message copy ON copy.session_id = :fork AND copy.pos = origin.pos
    WHERE origin.session_id = :origin AND origin.id = message.parent_id
), parent_id)
WHERE session_id = :fork AND parent_id IS NOT NULL

-- name: part_compactions
SELECT message_pos, id, data FROM part WHERE session_id = :session_id AND type = 'compaction'

-- name: message_ids_before
SELECT id FROM message WHERE session_id = :session_id AND pos < :pos ORDER BY pos

-- name: lease_get
SELECT generation, owner, time_expires, status FROM lease WHERE session_id = :session_id

-- name: session_all_forks
SELECT id FROM session WHERE fork_session_id = :id ORDER BY id

-- name: event_of_copy
SELECT seq, payload FROM event WHERE session_id = :session_id AND type = 'session.created' ORDER BY seq LIMIT 1

-- name: event_sessions
SELECT DISTINCT session_id FROM event WHERE seq > :seq AND seq <= :until AND session_id IS NOT NULL
