"""The worktree in memory, and the ways to know what changed in it."""
