"""The changes of sessions, counted and as text, and their files as they were; nothing is
written."""
