-- The last commit of each writer of each process, written in the same transaction: who loses the connection while it
-- commits can see whether it did. A process has few writers, and each replaces its own row.
CREATE TABLE commit_token (
    writer TEXT PRIMARY KEY,
    number BIGINT NOT NULL,
    time_used TIMESTAMPTZ NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
