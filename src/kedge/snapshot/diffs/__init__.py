"""Differences between two snapshots: the paths, and their patch texts."""
