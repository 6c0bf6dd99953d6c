-- Calls that were undone: the plan that took a change out of the files, while it is out.
ALTER TABLE change ADD COLUMN undone_by TEXT;

-- What happened at one path, whoever did it: undoing one call must not read everything that came later. An entry of an
-- index has room for 2,700 bytes, and a path may be longer.
CREATE INDEX change_path ON change (worktree, substr(path, 1, 500), timeline) WHERE tail_id IS NULL;
