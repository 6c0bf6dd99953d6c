-- Text of parts that still grow, for a process that is killed: what follows the text that the part was last stored
-- with. `start` counts characters; `data` is a JSON string. A part that is stored whole has none.
CREATE TABLE piece (
    session_id TEXT COLLATE "C" NOT NULL,
    part_id TEXT COLLATE "C" NOT NULL,
    start BIGINT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (session_id, part_id, start)
);
