-- Titles as `kedge.store.verbs.search.folded` has them, apart from the sessions: a search for a part of a title reads
-- all of them. Filled from the event log, as the index of words is.
CREATE TABLE session_title (
    session_id TEXT PRIMARY KEY,
    folded TEXT NOT NULL
) WITHOUT ROWID;
-- As bytes: one that is damaged may be no text at all.
INSERT INTO session_title (session_id, folded) SELECT id, folded_title(CAST(data AS BLOB)) FROM session;
