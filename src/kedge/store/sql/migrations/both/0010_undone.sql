-- Calls that were undone: the plan that took a change out of the files, while it is out.
ALTER TABLE change ADD COLUMN undone_by TEXT;
