"""Takes a session's changes out of the worktree, puts them back, and completes what a crash
interrupted."""
