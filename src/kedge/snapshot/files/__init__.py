"""Reads and writes single paths of a worktree without following symlinks."""
