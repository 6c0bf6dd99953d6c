"""The in-memory state of a worktree, and the ways to detect changes."""
