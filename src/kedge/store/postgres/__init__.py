"""The adapter for several servers that share the work: one database or schema of PostgreSQL.

Its driver, psycopg, is an extra. `store` can be imported without it; opening a store then says what
to install.
"""
