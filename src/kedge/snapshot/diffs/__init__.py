"""Two snapshots compared: which paths differ, and their patch texts."""
