"""The embedded adapter: one SQLite file in WAL mode, shared by any number of processes on one
machine."""
