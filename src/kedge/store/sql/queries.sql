-- Queries that are the same in SQLite and PostgreSQL. See named_sql.py for the format.

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

-- name: session_from
SELECT data FROM session WHERE id >= :lowest AND id < :beyond AND time_deleted IS NULL ORDER BY id LIMIT :limit

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

-- name: session_deleted_times
SELECT time_deleted FROM session WHERE parent_id = :id AND time_deleted IS NOT NULL

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

-- name: title_put
INSERT INTO session_title (session_id, folded) VALUES (:session_id, :folded)
ON CONFLICT (session_id) DO UPDATE SET folded = excluded.folded WHERE session_title.folded <> excluded.folded

-- name: title_drop
DELETE FROM session_title WHERE session_id = :session_id

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

-- name: message_growth
SELECT id, role, parent_id, data, pos, awaiting FROM message
WHERE session_id = :session_id AND pos > :pos ORDER BY pos LIMIT :limit

-- name: message_parents
SELECT parent_id FROM message WHERE session_id = :session_id AND pos > :pos AND role = 'assistant'

-- name: message_answers
SELECT pos FROM message WHERE session_id = :session_id AND pos > :pos AND parent_id = :parent_id ORDER BY pos

-- name: message_next_answer
SELECT pos FROM message WHERE session_id = :session_id AND pos > :pos AND role = 'assistant' ORDER BY pos LIMIT 1

-- Answers to older prompts may come after a prompt; they are not its answers.

-- name: message_answers_after
SELECT a.id, a.role, a.parent_id, a.data, a.pos
FROM message asked
JOIN message a ON a.session_id = asked.session_id AND a.pos > asked.pos
JOIN message p ON p.session_id = a.session_id AND p.id = a.parent_id AND p.pos >= asked.pos
WHERE asked.session_id = :session_id AND asked.id = :id AND a.role = 'assistant'
ORDER BY a.pos

-- name: message_newest_answer
SELECT id, role, parent_id, data, pos FROM message
WHERE session_id = :session_id AND role = 'assistant' AND pos >= :first_pos ORDER BY pos DESC LIMIT 1

-- The values of `awaiting` are listed in `kedge.store.queries.unanswered.PromptState`.

-- name: message_failed
SELECT id FROM message WHERE session_id = :session_id AND id = :id AND awaiting = -1

-- name: message_unanswered
SELECT id, role, parent_id, data, pos, awaiting FROM message
WHERE session_id = :session_id AND awaiting > 0 ORDER BY pos

-- name: message_unanswered_sessions
SELECT DISTINCT m.session_id FROM message m JOIN session s ON s.id = m.session_id
WHERE m.awaiting > 0 AND s.time_deleted IS NULL ORDER BY m.session_id

-- name: message_set_awaiting
UPDATE message SET awaiting = :awaiting WHERE session_id = :session_id AND id = :id

-- name: message_leave
UPDATE message SET awaiting = CASE WHEN awaiting IN (1, 2) THEN 3 WHEN awaiting IN (4, 6) THEN 5 ELSE awaiting END
WHERE session_id = :session_id AND awaiting > 0

-- name: message_take
UPDATE message SET awaiting = CASE WHEN awaiting = 1 THEN 2 WHEN awaiting IN (3, 6) THEN 4 ELSE awaiting END
WHERE session_id = :session_id AND awaiting > 0

-- name: message_settle_taken
UPDATE message SET awaiting = 0 WHERE session_id = :session_id AND awaiting > 0 AND awaiting IN (2, 4)

-- name: message_settle_answered
UPDATE message SET awaiting = CASE WHEN id = :id THEN 0 ELSE -3 - COALESCE(
    (SELECT p.pos FROM message p WHERE p.session_id = :session_id AND p.id = :id), 0
) END
WHERE session_id = :session_id AND awaiting > 0 AND awaiting IN (2, 4)

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

-- name: part_steps
SELECT type, data FROM part
WHERE session_id = :session_id AND message_pos = :pos AND type IN ('step-start', 'step-finish') ORDER BY id

-- name: part_calls_like
SELECT message_pos, id, data FROM part WHERE session_id = :session_id AND type = 'tool' AND data LIKE :pattern
ORDER BY message_pos, id

-- name: part_beginnings
SELECT message_pos, id, substr(data, 1, 1000) FROM part WHERE session_id = :session_id AND type = 'tool'
ORDER BY message_pos, id

-- name: part_tools_like
SELECT data FROM part WHERE session_id = :session_id AND type = 'tool' AND data LIKE :pattern

-- name: part_last_finish
SELECT data FROM part WHERE session_id = :session_id AND message_pos < :pos AND type = 'step-finish'
ORDER BY message_pos DESC, id DESC LIMIT 1

-- name: piece_add
INSERT INTO piece (session_id, part_id, start, data)
SELECT :session_id, :part_id, :start, :data FROM lease
WHERE session_id = :session_id AND generation = :generation AND owner IS NOT NULL
ON CONFLICT (session_id, part_id, start) DO UPDATE SET data = excluded.data

-- name: piece_copy
INSERT INTO piece (session_id, part_id, start, data)
SELECT :fork, :id, start, data FROM piece WHERE session_id = :origin AND part_id = :old_id

-- name: piece_parts
SELECT DISTINCT part_id FROM piece WHERE session_id = :session_id

-- name: piece_drop
DELETE FROM piece WHERE session_id = :session_id AND part_id = :part_id

-- name: piece_take
DELETE FROM piece WHERE session_id = :session_id RETURNING part_id, start, data

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
INSERT INTO lease (session_id, generation, owner, time_acquired, time_expires, status, time_status, kind, first_pos)
VALUES (:session_id, :generation, :owner, :now, :time_expires, :status, :now, :kind, :first_pos)
ON CONFLICT (session_id) DO UPDATE SET generation = excluded.generation, owner = excluded.owner,
    time_acquired = excluded.time_acquired, time_expires = excluded.time_expires, status = excluded.status,
    time_status = excluded.time_status, kind = excluded.kind, first_pos = excluded.first_pos

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

-- name: event_head_of_session
SELECT max(seq) FROM event WHERE session_id = :session_id

-- name: event_touched
SELECT entity, type FROM event WHERE session_id = :session_id AND seq > :seq

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

-- name: purge_piece
DELETE FROM piece WHERE session_id = :session_id

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

-- Copies have the positions of their originals, so that each finds its parent's copy by an index.

-- name: fork_parents
UPDATE message SET parent_id = COALESCE((
    SELECT copy.id FROM message origin JOIN message copy ON copy.session_id = :fork AND copy.pos = origin.pos
    WHERE origin.session_id = :origin AND origin.id = message.parent_id
), parent_id)
WHERE session_id = :fork AND parent_id IS NOT NULL

-- name: part_compactions
SELECT message_pos, id, data FROM part WHERE session_id = :session_id AND type = 'compaction'

-- name: message_at
SELECT id, role, parent_id, data, pos FROM message WHERE session_id = :session_id AND pos = :pos

-- name: message_answer_rows
SELECT id, role, parent_id, data, pos FROM message
WHERE session_id = :session_id AND pos > :pos AND parent_id = :parent_id ORDER BY pos

-- name: message_answers_back
SELECT id, role, parent_id, data, pos FROM message
WHERE session_id = :session_id AND role = 'assistant' AND pos < :pos ORDER BY pos DESC LIMIT :limit

-- name: part_pruned
SELECT m.id, p.message_pos, p.id, p.type, p.data
FROM part p JOIN message m ON m.session_id = p.session_id AND m.pos = p.message_pos
WHERE p.session_id = :session_id AND p.message_pos < :pos AND p.type = 'tool' AND p.data LIKE :pattern
ORDER BY p.message_pos, p.id

-- name: message_ids_before
SELECT id FROM message WHERE session_id = :session_id AND pos < :pos ORDER BY pos

-- name: lease_get
SELECT generation, owner, time_expires, status FROM lease WHERE session_id = :session_id

-- name: session_all_forks
SELECT id FROM session WHERE fork_session_id = :id ORDER BY id

-- name: event_of_copy
SELECT seq, payload FROM event WHERE session_id = :session_id AND type = 'session.created' ORDER BY seq LIMIT 1

-- name: event_of_deletion
SELECT seq FROM event WHERE session_id = :session_id AND type = 'session.deleted' ORDER BY seq LIMIT 1

-- name: event_sessions
SELECT DISTINCT session_id FROM event WHERE seq > :seq AND seq <= :until AND session_id IS NOT NULL

-- ---- the timeline: changes, calls, samples

-- name: timeline_head
SELECT number FROM timeline WHERE one = 1

-- name: timeline_next
UPDATE timeline SET number = number + 1 WHERE one = 1 RETURNING number

-- name: call_begin
INSERT INTO call (session_id, part_id, message_id, worktree, machine, kind, asked, began, ended, data)
VALUES (:session_id, :part_id, :message_id, :worktree, :machine, :kind, :asked, :began, NULL, :data)

-- name: call_end
UPDATE call SET ended = :ended, data = :data WHERE session_id = :session_id AND part_id = :part_id AND ended IS NULL

-- name: call_open
SELECT session_id, part_id, message_id, worktree, machine, kind, asked, began, ended, data FROM call
WHERE session_id = :session_id AND ended IS NULL

-- name: call_list
SELECT session_id, part_id, message_id, worktree, machine, kind, asked, began, ended, data FROM call
WHERE machine = :machine ORDER BY began

-- A call that is over and still has steps left temporary files that were not cleaned up yet.

-- name: call_leftovers
SELECT session_id, part_id, message_id, worktree, machine, kind, asked, began, ended, data FROM call
WHERE machine = :machine AND ended IS NOT NULL AND data LIKE '%"steps"%' ORDER BY began

-- name: call_cleaned_up
UPDATE call SET data = :data WHERE session_id = :session_id AND part_id = :part_id AND ended IS NOT NULL

-- name: call_oldest
SELECT began FROM call WHERE machine = :machine AND kind <> 'declared' AND ended IS NULL ORDER BY began LIMIT 1

-- name: call_open_up
UPDATE call SET kind = 'unknown', asked = :asked, began = :began
WHERE session_id = :session_id AND part_id = :part_id AND ended IS NULL

-- name: call_forget
DELETE FROM call WHERE machine = :machine AND ended < :before AND data NOT LIKE '%"steps"%'

-- The call of a revert belongs to no message, and ends when the revert is completed.

-- name: call_abandon
UPDATE call SET ended = :ended WHERE session_id = :session_id AND ended IS NULL AND message_id <> ''

-- name: sample_add
INSERT INTO sample (machine, worktree, number, asked, data)
VALUES (:machine, :worktree, :number, :asked, :data)

-- name: sample_list
SELECT number, asked, data FROM sample
WHERE machine = :machine AND worktree = :worktree AND number >= :since ORDER BY number

-- name: sample_forget
DELETE FROM sample WHERE machine = :machine AND number < :before

-- name: change_add
INSERT INTO change (
    session_id, pos, part_id, n, message_id, worktree, path, timeline, source,
    before_blob, before_mode, after_blob, after_mode, reason, plan_id, time
) VALUES (
    :session_id, :pos, :part_id, :n, :message_id, :worktree, :path, :timeline, :source,
    :before_blob, :before_mode, :after_blob, :after_mode, :reason, :plan_id, :time
)

-- name: change_range
SELECT session_id, pos, part_id, n, message_id, worktree, path, timeline, source,
    before_blob, before_mode, after_blob, after_mode, reason, plan_id, undone_by
FROM change WHERE session_id = :session_id AND pos BETWEEN :first AND :last AND tail_id IS NULL
    AND source <> 'call'
ORDER BY pos, part_id, n

-- name: change_of_part
SELECT session_id, pos, part_id, n, message_id, worktree, path, timeline, source,
    before_blob, before_mode, after_blob, after_mode, reason, plan_id, undone_by
FROM change WHERE session_id = :session_id AND pos = :pos AND part_id = :part_id AND tail_id IS NULL
    AND source <> 'call'
ORDER BY n

-- name: change_one
SELECT session_id, pos, part_id, n, message_id, worktree, path, timeline, source,
    before_blob, before_mode, after_blob, after_mode, reason, plan_id, undone_by
FROM change WHERE session_id = :session_id AND pos = :pos AND part_id = :part_id AND n = :n AND tail_id IS NULL

-- PostgreSQL indexes only the beginning of a path, so that is compared too, here and below.

-- name: change_at_path
SELECT session_id, pos, part_id, n, message_id, worktree, path, timeline, source,
    before_blob, before_mode, after_blob, after_mode, reason, plan_id, undone_by
FROM change WHERE worktree = :worktree AND path = :path AND tail_id IS NULL
    AND substr(path, 1, 500) = substr(:path, 1, 500) AND source NOT IN ('call', 'folder', 'uncovered')

-- name: change_undone
SELECT session_id, pos, part_id, n, message_id, worktree, path, timeline, source,
    before_blob, before_mode, after_blob, after_mode, reason, plan_id, undone_by
FROM change WHERE session_id = :session_id AND undone_by IS NOT NULL AND tail_id IS NULL

-- name: change_with_blob
SELECT worktree, path FROM change WHERE session_id = :session_id AND tail_id IS NULL
    AND (before_blob = :blob OR after_blob = :blob) AND source NOT IN ('call', 'folder', 'uncovered')

-- name: change_set_undone
UPDATE change SET undone_by = :plan_id
WHERE session_id = :session_id AND pos = :pos AND part_id = :part_id AND n = :n

-- name: change_call_of_part
SELECT reason FROM change
WHERE session_id = :session_id AND pos = :pos AND part_id = :part_id AND source = 'call' AND tail_id IS NULL

-- name: change_calls
SELECT session_id, pos, part_id, n, message_id, timeline, reason FROM change
WHERE session_id = :session_id AND pos BETWEEN :first AND :last AND tail_id IS NULL AND source = 'call'

-- name: head_at
SELECT ref, commit_id FROM step_head WHERE session_id = :session_id AND pos <= :pos ORDER BY pos DESC LIMIT 1

-- name: head_add
INSERT INTO step_head (session_id, pos, ref, commit_id) VALUES (:session_id, :pos, :ref, :commit_id)
ON CONFLICT (session_id, pos) DO NOTHING

-- name: purge_head
DELETE FROM step_head WHERE session_id = :session_id

-- name: change_count
SELECT COALESCE(max(n), -1) FROM change WHERE session_id = :session_id AND pos = :pos AND part_id = :part_id

-- name: worktree_paths
SELECT path FROM worktree

-- name: change_later
SELECT path, session_id, timeline FROM change
WHERE worktree = :worktree AND timeline > :after AND tail_id IS NULL ORDER BY timeline

-- name: task_turn_add
INSERT INTO task_turn (session_id, pos, parent_id, parent_pos, parent_part_id)
VALUES (:session_id, :pos, :parent_id, :parent_pos, :parent_part_id)

-- name: task_turns_of
SELECT session_id, pos, parent_pos, parent_part_id FROM task_turn
WHERE parent_id = :parent_id AND parent_pos >= :pos

-- name: task_turn_at
SELECT parent_id, parent_pos, parent_part_id FROM task_turn
WHERE session_id = :session_id AND pos <= :pos ORDER BY pos DESC LIMIT 1

-- name: task_turns_of_part
SELECT session_id, pos FROM task_turn
WHERE parent_id = :parent_id AND parent_pos = :parent_pos AND parent_part_id = :parent_part_id ORDER BY session_id, pos

-- name: task_children
SELECT session_id FROM task_turn WHERE parent_id = :parent_id

-- name: task_turn_next
SELECT pos FROM task_turn WHERE session_id = :session_id AND pos > :pos ORDER BY pos LIMIT 1

-- name: part_newest
SELECT message_pos, id FROM part WHERE session_id = :session_id ORDER BY message_pos DESC, id DESC LIMIT 1

-- name: purge_call
DELETE FROM call WHERE session_id = :session_id

-- name: purge_seen
DELETE FROM seen WHERE session_id = :session_id

-- name: purge_task_turn
DELETE FROM task_turn WHERE session_id = :session_id

-- name: purge_task_parent
DELETE FROM task_turn WHERE parent_id = :session_id

-- name: background_task_add
INSERT INTO background_task (session_id, parent_id, prompt_id, title, owner, time_expires)
VALUES (:session_id, :parent_id, :prompt_id, :title, :owner, :time_expires)

-- name: background_task_get
SELECT owner FROM background_task WHERE session_id = :session_id

-- name: background_task_list
SELECT session_id, parent_id, prompt_id, title, owner, time_expires FROM background_task ORDER BY session_id

-- name: background_task_renew
UPDATE background_task SET time_expires = :time_expires WHERE owner = :owner

-- name: background_task_defer
UPDATE background_task SET owner = '' WHERE session_id = :session_id

-- name: background_task_drop
DELETE FROM background_task WHERE session_id = :session_id

-- name: purge_background_task
DELETE FROM background_task WHERE session_id = :session_id OR parent_id = :session_id

-- ---- reverts: boundaries, plans, tails

-- name: message_last_prompt
SELECT id, pos FROM message WHERE session_id = :session_id AND pos <= :pos AND role = 'user' ORDER BY pos DESC LIMIT 1

-- name: message_next_prompt
SELECT id, pos FROM message WHERE session_id = :session_id AND pos > :pos AND role = 'user' ORDER BY pos LIMIT 1

-- name: part_homes
SELECT m.pos, m.id FROM part p JOIN message m ON m.session_id = p.session_id AND m.pos = p.message_pos
WHERE p.session_id = :session_id AND p.id = :id ORDER BY p.message_pos

-- name: plan_add
INSERT INTO plan (id, session_id, worktree, kind, state, timeline, data, time_created, time_finished)
VALUES (:id, :session_id, :worktree, :kind, 'planned', :timeline, :data, :now, NULL)

-- name: plan_step_add
INSERT INTO plan_step (plan_id, n, path, expect_blob, expect_mode, want_blob, want_mode, outcome)
VALUES (:plan_id, :n, :path, :expect_blob, :expect_mode, :want_blob, :want_mode, NULL)

-- name: plan_get
SELECT id, session_id, worktree, kind, state, timeline, data, time_created FROM plan WHERE id = :id

-- name: plan_open
SELECT id, session_id, worktree, kind, state, timeline, data, time_created FROM plan
WHERE session_id = :session_id AND state IN ('planned', 'pending') ORDER BY timeline

-- name: plan_unfinished
SELECT id, session_id, worktree, kind, state, timeline, data, time_created FROM plan
WHERE time_finished IS NULL ORDER BY time_created, id

-- name: plan_steps
SELECT n, path, expect_blob, expect_mode, want_blob, want_mode, outcome FROM plan_step
WHERE plan_id = :plan_id ORDER BY n

-- name: plan_writes_at
SELECT p.id, p.kind, p.timeline, p.worktree, s.n, s.expect_blob, s.expect_mode, s.want_blob, s.want_mode, s.outcome
FROM plan p JOIN plan_step s ON s.plan_id = p.id AND s.path = :path
WHERE p.session_id = :session_id AND p.state <> 'planned' AND substr(s.path, 1, 500) = substr(:path, 1, 500)

-- name: plan_move_at
SELECT p.id, p.kind, p.timeline, p.worktree, s.n, s.expect_blob, s.expect_mode, s.want_blob, s.want_mode, s.outcome
FROM plan p JOIN plan_step s ON s.plan_id = p.id AND s.path = :path
WHERE p.id = :plan_id AND substr(s.path, 1, 500) = substr(:path, 1, 500)

-- name: plan_moved_paths
SELECT s.path FROM plan p JOIN plan_step s ON s.plan_id = p.id
WHERE p.session_id = :session_id AND p.worktree = :worktree AND p.kind IN ('undo', 'redo') AND p.state = 'final'

-- name: plan_of_path
SELECT 1 FROM plan p JOIN plan_step s ON s.plan_id = p.id AND s.path = :path
WHERE p.session_id = :session_id AND p.kind IN ('undo', 'redo') AND p.timeline > :after
    AND substr(s.path, 1, 500) = substr(:path, 1, 500) LIMIT 1

-- name: plan_step_close
UPDATE plan_step SET outcome = :outcome WHERE plan_id = :plan_id AND n = :n

-- name: plan_close
UPDATE plan SET state = :state, data = :data, time_finished = :now WHERE id = :id

-- name: plan_set_state
UPDATE plan SET state = :state WHERE id = :id

-- name: plan_set_kind
UPDATE plan SET kind = :kind WHERE id = :id

-- name: change_drop_of_plan
DELETE FROM change WHERE session_id = :session_id AND plan_id = :plan_id

-- name: change_set_tail
UPDATE change SET tail_id = :tail_id
WHERE session_id = :session_id AND pos = :pos AND part_id = :part_id AND n = :n

-- name: change_move
UPDATE change SET pos = :to_pos, message_id = :to_message, n = :to_n
WHERE session_id = :session_id AND pos = :pos AND part_id = :part_id AND n = :n

-- name: message_from
SELECT id, pos FROM message WHERE session_id = :session_id AND pos >= :pos ORDER BY pos

-- name: message_newest
SELECT id, pos FROM message WHERE session_id = :session_id AND pos < :pos ORDER BY pos DESC LIMIT 1

-- name: message_to_tail
UPDATE message SET session_id = :tail_id WHERE session_id = :session_id AND pos >= :pos

-- name: part_to_tail
UPDATE part SET session_id = :tail_id WHERE session_id = :session_id AND message_pos >= :pos

-- name: part_to_tail_from
UPDATE part SET session_id = :tail_id WHERE session_id = :session_id AND message_pos = :pos AND id >= :part_id

-- name: tail_add
INSERT INTO tail (id, session_id, message_id, part_id, pos, time_created, data)
VALUES (:id, :session_id, :message_id, :part_id, :pos, :now, :data)

-- name: tail_list
SELECT id, message_id, part_id, pos, time_created, data FROM tail
WHERE session_id = :session_id ORDER BY time_created, id

-- name: part_in_tail
SELECT p.id, p.type, p.data FROM tail t JOIN part p ON p.session_id = t.id
WHERE t.session_id = :session_id AND p.id = :id

-- name: copy_sources
SELECT id, pos, parent_id FROM message WHERE session_id = :session_id AND pos < :pos ORDER BY pos

-- name: copy_part_sources
SELECT message_pos, id FROM part WHERE session_id = :session_id AND message_pos <= :pos ORDER BY message_pos, id

-- name: copy_message
INSERT INTO message (session_id, pos, id, role, parent_id, awaiting, open, data)
SELECT :fork, pos, :id, role, :parent_id, CASE WHEN awaiting > 0 THEN -1 ELSE awaiting END, open, data
FROM message WHERE session_id = :source AND pos = :pos

-- name: copy_part
INSERT INTO part (session_id, message_pos, id, type, data)
SELECT :fork, message_pos, :id, type, data FROM part
WHERE session_id = :source AND message_pos = :pos AND id = :old_id

-- name: todo_before_time
SELECT version, data FROM todo
WHERE session_id = :session_id AND (pos < :pos OR (pos = :pos AND time_created < :time)) ORDER BY version DESC LIMIT 1

-- name: purge_tail_part
DELETE FROM part WHERE session_id IN (SELECT id FROM tail WHERE session_id = :session_id)

-- name: purge_tail_message
DELETE FROM message WHERE session_id IN (SELECT id FROM tail WHERE session_id = :session_id)

-- name: session_project
SELECT project_id FROM session WHERE id = :id

-- name: tail_of_message
SELECT id FROM tail WHERE session_id = :session_id AND message_id = :id AND part_id IS NOT NULL

-- ---- asks and grants

-- name: ask_add
INSERT INTO ask (id, session_id, kind, data, time_created, time_ended, answer)
VALUES (:id, :session_id, :kind, :data, :now, NULL, NULL)

-- name: ask_get
SELECT session_id, kind, data, answer FROM ask WHERE id = :id

-- name: ask_end
UPDATE ask SET time_ended = :now, answer = :answer WHERE id = :id AND time_ended IS NULL

-- name: ask_open_of_session
SELECT a.id, a.kind, a.data, a.time_created, s.directory FROM ask a JOIN session s ON s.id = a.session_id
WHERE a.session_id = :session_id AND a.time_ended IS NULL ORDER BY a.time_created, a.id

-- name: ask_ended_of_session
SELECT kind, data, answer FROM ask WHERE session_id = :session_id AND time_ended IS NOT NULL
ORDER BY time_ended DESC, id DESC LIMIT :limit

-- name: ask_open_all
SELECT a.id, a.kind, a.data, a.time_created, s.directory FROM ask a JOIN session s ON s.id = a.session_id
WHERE a.time_ended IS NULL AND s.time_deleted IS NULL

-- name: ask_open_of_project
SELECT a.time_created, a.id, a.data, s.data FROM ask a JOIN session s ON s.id = a.session_id
WHERE a.time_ended IS NULL AND a.kind = 'permission' AND s.project_id = :project_id AND s.time_deleted IS NULL

-- name: permission_rule_add
INSERT INTO permission_rule (project_id, permission, pattern, owner, time_created, time_expires)
VALUES (:project_id, :permission, :pattern, :owner, :now, :time_expires)
ON CONFLICT (project_id, permission, pattern, owner) DO NOTHING

-- name: permission_rule_list
SELECT permission, pattern, owner, time_created, time_expires FROM permission_rule
WHERE project_id = :project_id ORDER BY permission, pattern, owner

-- name: permission_rule_drop
DELETE FROM permission_rule
WHERE project_id = :project_id AND permission = :permission AND pattern = :pattern AND owner = :owner

-- name: permission_rule_renew
UPDATE permission_rule SET time_expires = :time_expires WHERE owner = :owner

-- name: permission_rule_end
DELETE FROM permission_rule WHERE owner = :owner

-- name: purge_ask
DELETE FROM ask WHERE session_id = :session_id

-- name: process_put
INSERT INTO process (session_id, part_id, machine, boot, pid, pgid, started)
VALUES (:session_id, :part_id, :machine, :boot, :pid, :pgid, :started)
ON CONFLICT (session_id, part_id, pid) DO UPDATE SET machine = excluded.machine, boot = excluded.boot,
    pgid = excluded.pgid, started = excluded.started

-- name: process_drop
DELETE FROM process WHERE session_id = :session_id AND part_id = :part_id AND pid = :pid

-- name: process_list
SELECT part_id, machine, boot, pid, pgid, started FROM process
WHERE session_id = :session_id ORDER BY part_id, pid

-- name: process_of
SELECT part_id, started FROM process WHERE machine = :machine AND boot = :boot AND pid = :pid

-- name: part_anywhere
SELECT 1 FROM part WHERE id = :id LIMIT 1

-- name: purge_process
DELETE FROM process WHERE session_id = :session_id

-- name: trust_add
INSERT INTO trust (path, digest, time_created) VALUES (:path, :digest, :now) ON CONFLICT (path, digest) DO NOTHING

-- name: trust_get
SELECT time_created FROM trust WHERE path = :path AND digest = :digest

-- name: trust_drop
DELETE FROM trust WHERE path = :path

-- name: trust_list
SELECT path, digest, time_created FROM trust ORDER BY path, digest

-- ---- history

-- name: history_of_path
SELECT session_id, pos, part_id, n, message_id, timeline, source,
    before_blob, before_mode, after_blob, after_mode, time
FROM change WHERE worktree = :worktree AND path = :path AND substr(path, 1, 500) = substr(:path, 1, 500)

-- name: history_of_plans
SELECT p.session_id, p.kind, p.timeline, p.data, p.time_created, s.n,
    s.expect_blob, s.expect_mode, s.want_blob, s.want_mode, s.outcome
FROM plan_step s JOIN plan p ON p.id = s.plan_id WHERE s.path = :path AND p.worktree = :worktree
    AND substr(s.path, 1, 500) = substr(:path, 1, 500)

-- name: history_gone_with
SELECT path, before_blob FROM change
WHERE worktree = :worktree AND timeline = :timeline AND session_id = :session_id AND part_id = :part_id
    AND after_blob IS NULL AND before_blob IS NOT NULL AND source NOT IN ('folder', 'uncovered', 'call')

-- name: history_unwatched
SELECT timeline FROM change WHERE worktree = :worktree AND source = 'call' AND reason IS NOT NULL
ORDER BY timeline

-- name: history_unwatched_between
SELECT 1 FROM change WHERE worktree = :worktree AND source = 'call' AND reason IS NOT NULL
    AND timeline > :first AND timeline <= :last LIMIT 1

-- name: history_first
SELECT session_id, pos, part_id, timeline FROM change WHERE worktree = :worktree ORDER BY timeline LIMIT 1

-- name: history_tool
SELECT p.id, p.type, p.data, m.id, m.parent_id, m.role, p.session_id, p.message_pos FROM part p
LEFT JOIN message m ON m.session_id = p.session_id AND m.pos = p.message_pos
WHERE p.session_id = :session_id AND p.message_pos = :pos AND p.id = :id

-- A part whose message stayed has none in the tail.

-- name: history_tool_in_tail
SELECT p.id, p.type, p.data, m.id, m.parent_id, m.role, p.session_id, p.message_pos FROM tail t JOIN part p ON p.session_id = t.id
LEFT JOIN message m ON m.session_id = p.session_id AND m.pos = p.message_pos
WHERE t.session_id = :session_id AND p.id = :id

-- The timeline of a worktree: what was recorded at a number, newest first. `path` or what is between `low` and `high`.

-- name: timeline_numbers
SELECT DISTINCT timeline FROM change
WHERE worktree = :worktree AND timeline < :before AND source IN ('declared', 'observed', 'shared', 'uncovered')
    AND (path = :path OR (path >= :low AND path < :high)) AND (:session_id = '' OR session_id = :session_id)
    AND COALESCE(time, 0) >= :since AND COALESCE(time, 0) < :until
ORDER BY timeline DESC LIMIT :limit

-- name: timeline_groups
SELECT session_id, part_id, source, min(pos), min(message_id), max(time), count(*) FROM change
WHERE worktree = :worktree AND timeline = :number AND source IN ('declared', 'observed', 'shared', 'uncovered')
    AND (path = :path OR (path >= :low AND path < :high)) AND (:session_id = '' OR session_id = :session_id)
    AND COALESCE(time, 0) >= :since AND COALESCE(time, 0) < :until
GROUP BY session_id, part_id, source

-- name: timeline_files
SELECT path, before_blob, before_mode, after_blob, after_mode, reason FROM change
WHERE worktree = :worktree AND timeline = :number AND session_id = :session_id AND part_id = :part_id AND source = :source
    AND (path = :path OR (path >= :low AND path < :high))
ORDER BY n LIMIT :limit

-- name: timeline_plan_numbers
SELECT timeline FROM plan
WHERE worktree = :worktree AND timeline < :before AND state <> 'planned'
    AND (:session_id = '' OR session_id = :session_id) AND time_created >= :since AND time_created < :until
    AND (:any = 1 OR EXISTS (
        SELECT 1 FROM plan_step s WHERE s.plan_id = plan.id AND s.outcome IN ('done', 'undone', 'unsure')
            AND (s.path = :path OR (s.path >= :low AND s.path < :high))))
ORDER BY timeline DESC LIMIT :limit

-- name: timeline_plans
SELECT id, session_id, kind, time_created FROM plan
WHERE worktree = :worktree AND timeline = :number AND state <> 'planned'
    AND (:session_id = '' OR session_id = :session_id) AND time_created >= :since AND time_created < :until

-- name: timeline_plan_count
SELECT count(*) FROM plan_step
WHERE plan_id = :plan_id AND outcome IN ('done', 'undone', 'unsure') AND (path = :path OR (path >= :low AND path < :high))

-- name: timeline_plan_files
SELECT path, expect_blob, expect_mode, want_blob, want_mode FROM plan_step
WHERE plan_id = :plan_id AND outcome IN ('done', 'undone', 'unsure') AND (path = :path OR (path >= :low AND path < :high))
ORDER BY n LIMIT :limit

-- name: timeline_write_before
SELECT timeline, after_blob, after_mode, source FROM change
WHERE worktree = :worktree AND path = :path AND timeline < :number
    AND substr(path, 1, 500) = substr(:path, 1, 500) AND source IN ('declared', 'observed', 'shared', 'uncovered')
ORDER BY timeline DESC LIMIT 1

-- SQLite keeps the order of a CROSS JOIN: the path first, and not all steps of all plans.

-- name: timeline_plans_before
SELECT p.timeline, s.want_blob, s.want_mode, p.kind FROM plan_step s CROSS JOIN plan p
WHERE s.path = :path AND p.id = s.plan_id AND p.worktree = :worktree AND p.timeline < :number
    AND substr(s.path, 1, 500) = substr(:path, 1, 500) AND s.outcome IN ('done', 'undone', 'unsure')
