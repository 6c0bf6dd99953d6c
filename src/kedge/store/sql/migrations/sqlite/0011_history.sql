-- What happened to a path and to a worktree, also what was taken out of a conversation since. `time` is when a change
-- was recorded, in milliseconds since 1970; changes of earlier versions have none.
ALTER TABLE change ADD COLUMN time BIGINT;
CREATE INDEX change_history_path ON change (worktree, path, timeline);
CREATE INDEX change_history ON change (worktree, timeline, session_id, part_id, source, n);
-- Calls that may have done anything, and could not be watched.
CREATE INDEX change_unwatched ON change (worktree, timeline) WHERE source = 'call' AND reason IS NOT NULL;
CREATE INDEX plan_step_path ON plan_step (path, plan_id);
CREATE INDEX plan_history ON plan (worktree, timeline);
