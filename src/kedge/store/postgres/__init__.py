"""The adapter for several servers that share the work: one PostgreSQL database or schema, through psycopg.

psycopg is an extra. `store` can be imported without it; opening a store without it says what to install.
"""
