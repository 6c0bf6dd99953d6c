-- Titles as `kedge.store.verbs.search.folded` has them, apart from the sessions: a search for a part of a title reads
-- all of them. Filled from the event log, as the index of words is.
CREATE TABLE session_title (
    session_id TEXT COLLATE "C" PRIMARY KEY,
    folded TEXT COLLATE "C" NOT NULL
);
