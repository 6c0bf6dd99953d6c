"""Single paths of a worktree, read and written without following a symlink."""
