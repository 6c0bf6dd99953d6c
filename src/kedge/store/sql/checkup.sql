-- What the doctor asks, in both dialects. These queries look at whole tables; nothing else may use them.

-- name: checkup_sessions
SELECT id, next_pos FROM session WHERE id > :after ORDER BY id LIMIT :limit

-- name: checkup_session
SELECT project_id, time_deleted, data FROM session WHERE id = :id

-- name: checkup_size
SELECT count(*), COALESCE(sum(next_pos), 0) FROM session

-- Rows of a session that is not there.

-- name: checkup_orphans
SELECT 'message' AS kind, x.session_id, count(*) FROM message x
WHERE NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id)
    AND NOT EXISTS (SELECT 1 FROM tail t WHERE t.id = x.session_id) GROUP BY x.session_id
UNION ALL
SELECT 'part' AS kind, x.session_id, count(*) FROM part x
WHERE NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id)
    AND NOT EXISTS (SELECT 1 FROM tail t WHERE t.id = x.session_id) GROUP BY x.session_id
UNION ALL
SELECT 'todo' AS kind, x.session_id, count(*) FROM todo x
WHERE NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id) GROUP BY x.session_id
UNION ALL
SELECT 'lease' AS kind, x.session_id, count(*) FROM lease x
WHERE NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id) GROUP BY x.session_id
UNION ALL
SELECT 'request' AS kind, x.session_id, count(*) FROM request x
WHERE NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id) GROUP BY x.session_id
UNION ALL
SELECT 'change' AS kind, x.session_id, count(*) FROM change x
WHERE NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id) GROUP BY x.session_id
UNION ALL
SELECT 'call' AS kind, x.session_id, count(*) FROM call x
WHERE NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id) GROUP BY x.session_id
UNION ALL
SELECT 'seen' AS kind, x.session_id, count(*) FROM seen x
WHERE NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id) GROUP BY x.session_id
UNION ALL
SELECT 'step_head' AS kind, x.session_id, count(*) FROM step_head x
WHERE NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id) GROUP BY x.session_id
UNION ALL
SELECT 'plan' AS kind, x.session_id, count(*) FROM plan x
WHERE NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id) GROUP BY x.session_id
UNION ALL
SELECT 'tail' AS kind, x.session_id, count(*) FROM tail x
WHERE NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id) GROUP BY x.session_id
UNION ALL
SELECT 'ask' AS kind, x.session_id, count(*) FROM ask x
WHERE NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id) GROUP BY x.session_id
UNION ALL
SELECT 'process' AS kind, x.session_id, count(*) FROM process x
WHERE NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id) GROUP BY x.session_id
UNION ALL
SELECT 'piece' AS kind, x.session_id, count(*) FROM piece x
WHERE NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id) GROUP BY x.session_id
UNION ALL
SELECT 'session_place' AS kind, x.session_id, count(*) FROM session_place x
WHERE NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id) GROUP BY x.session_id
UNION ALL
SELECT 'event' AS kind, x.session_id, count(*) FROM event x
WHERE x.session_id IS NOT NULL AND x.type <> 'session.deleted'
    AND NOT EXISTS (SELECT 1 FROM session s WHERE s.id = x.session_id) GROUP BY x.session_id

-- name: checkup_steps_without_plan
SELECT plan_id, count(*) FROM plan_step x WHERE NOT EXISTS (SELECT 1 FROM plan p WHERE p.id = x.plan_id)
GROUP BY plan_id

-- name: checkup_drop_steps
DELETE FROM plan_step WHERE plan_id = :id

-- name: checkup_without_project
SELECT s.id, s.project_id FROM session s WHERE NOT EXISTS (SELECT 1 FROM project p WHERE p.id = s.project_id)
UNION ALL
SELECT w.path, w.project_id FROM worktree w WHERE NOT EXISTS (SELECT 1 FROM project p WHERE p.id = w.project_id)

-- name: checkup_project_events
SELECT seq, payload FROM event WHERE type = 'project.updated' AND seq > :seq ORDER BY seq LIMIT :limit

-- What only a run may leave open, each with the lease of its session.

-- name: checkup_open
SELECT 'message' AS kind, m.session_id, m.id, l.owner, l.time_expires
FROM message m JOIN session s ON s.id = m.session_id LEFT JOIN lease l ON l.session_id = m.session_id WHERE m.open = 1
UNION ALL
SELECT 'ask' AS kind, a.session_id, a.id, l.owner, l.time_expires
FROM ask a JOIN session s ON s.id = a.session_id LEFT JOIN lease l ON l.session_id = a.session_id
WHERE a.time_ended IS NULL
UNION ALL
SELECT 'call' AS kind, c.session_id, c.part_id, l.owner, l.time_expires
FROM call c JOIN session s ON s.id = c.session_id LEFT JOIN lease l ON l.session_id = c.session_id
WHERE c.ended IS NULL AND c.message_id <> ''
UNION ALL
SELECT 'call' AS kind, c.session_id, c.part_id, NULL, NULL
FROM call c JOIN session s ON s.id = c.session_id WHERE c.ended IS NULL AND c.message_id = ''
    AND NOT EXISTS (SELECT 1 FROM plan p WHERE p.session_id = c.session_id AND p.time_finished IS NULL)
UNION ALL
SELECT 'process' AS kind, p.session_id, p.part_id, l.owner, l.time_expires
FROM process p JOIN session s ON s.id = p.session_id LEFT JOIN lease l ON l.session_id = p.session_id
UNION ALL
SELECT 'request' AS kind, r.session_id, r.id, l.owner, l.time_expires
FROM request r JOIN session s ON s.id = r.session_id LEFT JOIN lease l ON l.session_id = r.session_id
WHERE r.time_handled IS NULL
UNION ALL
SELECT DISTINCT 'piece' AS kind, p.session_id, p.part_id, l.owner, l.time_expires
FROM piece p JOIN session s ON s.id = p.session_id LEFT JOIN lease l ON l.session_id = p.session_id
UNION ALL
SELECT 'prompt' AS kind, m.session_id, m.id, l.owner, l.time_expires
FROM message m JOIN session s ON s.id = m.session_id LEFT JOIN lease l ON l.session_id = m.session_id
WHERE m.awaiting > 0 AND s.time_deleted IS NULL
UNION ALL
SELECT 'plan' AS kind, p.session_id, p.id, l.owner, l.time_expires
FROM plan p JOIN session s ON s.id = p.session_id LEFT JOIN lease l ON l.session_id = p.session_id
WHERE p.time_finished IS NULL
UNION ALL
SELECT 'lease' AS kind, l.session_id, '', l.owner, l.time_expires
FROM lease l JOIN session s ON s.id = l.session_id WHERE l.owner IS NOT NULL

-- name: checkup_rules
SELECT project_id, permission, pattern, owner, time_expires FROM permission_rule WHERE owner <> ''

-- name: checkup_places
SELECT place, bucket, time_updated FROM session_place WHERE session_id = :session_id ORDER BY place

-- What refers to objects.

-- name: checkup_changes
SELECT DISTINCT before_blob, after_blob FROM change WHERE session_id = :session_id

-- name: checkup_plans
SELECT id, data FROM plan WHERE session_id = :session_id

-- name: checkup_plan_steps
SELECT s.expect_blob, s.want_blob FROM plan_step s JOIN plan p ON p.id = s.plan_id WHERE p.session_id = :session_id

-- name: checkup_calls
SELECT kind, machine, data FROM call WHERE session_id = :session_id

-- name: checkup_tail_parts
SELECT p.data FROM tail t JOIN part p ON p.session_id = t.id
WHERE t.session_id = :session_id AND p.type IN ('step-start', 'step-finish', 'patch')

-- name: checkup_tails
SELECT data FROM tail WHERE session_id = :session_id

-- Rows that a repair is about to change or remove, as they are.

-- name: checkup_save_message
SELECT * FROM message WHERE session_id = :session_id

-- name: checkup_save_part
SELECT * FROM part WHERE session_id = :session_id

-- name: checkup_save_todo
SELECT * FROM todo WHERE session_id = :session_id

-- name: checkup_save_lease
SELECT * FROM lease WHERE session_id = :session_id

-- name: checkup_save_request
SELECT * FROM request WHERE session_id = :session_id

-- name: checkup_save_change
SELECT * FROM change WHERE session_id = :session_id

-- name: checkup_save_call
SELECT * FROM call WHERE session_id = :session_id

-- name: checkup_save_seen
SELECT * FROM seen WHERE session_id = :session_id

-- name: checkup_save_head
SELECT * FROM step_head WHERE session_id = :session_id

-- name: checkup_save_plan
SELECT * FROM plan WHERE session_id = :session_id

-- name: checkup_save_step
SELECT * FROM plan_step WHERE plan_id = :session_id

-- name: checkup_save_tail
SELECT * FROM tail WHERE session_id = :session_id

-- name: checkup_save_ask
SELECT * FROM ask WHERE session_id = :session_id

-- name: checkup_save_process
SELECT * FROM process WHERE session_id = :session_id

-- name: checkup_save_piece
SELECT * FROM piece WHERE session_id = :session_id

-- name: checkup_save_place
SELECT * FROM session_place WHERE session_id = :session_id

-- name: checkup_save_event
SELECT * FROM event WHERE session_id = :session_id

-- name: checkup_save_session
SELECT * FROM session WHERE id = :session_id

-- name: checkup_save_rules
SELECT * FROM permission_rule WHERE owner = :session_id

-- name: checkup_save_meta
SELECT * FROM meta WHERE key = :session_id

-- A call that belongs to no message: that of a revert which is over.

-- name: checkup_end_call
UPDATE call SET ended = :ended WHERE session_id = :session_id AND ended IS NULL AND message_id = ''
    AND NOT EXISTS (SELECT 1 FROM plan p WHERE p.session_id = call.session_id AND p.time_finished IS NULL)

-- What a restored database must not go on with.

-- name: checkup_live_leases
SELECT session_id FROM lease WHERE owner IS NOT NULL AND time_expires > :now LIMIT 1

-- name: checkup_forget_processes
DELETE FROM process

-- name: checkup_forget_samples
DELETE FROM sample

-- name: checkup_forget_machine
UPDATE call SET machine = 'restored'

-- name: checkup_forget_rules
DELETE FROM permission_rule WHERE owner <> ''
