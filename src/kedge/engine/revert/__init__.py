"""Takes a session's changes out of the worktree, restores them, and completes what a crash
interrupted."""
