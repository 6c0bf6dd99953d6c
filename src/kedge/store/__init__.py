"""The store of sessions: a small port, its SQLite and PostgreSQL adapters, and the queries that run
on both.

Nothing here knows about turns, files or models; it stores values and the events that announce them.
"""
