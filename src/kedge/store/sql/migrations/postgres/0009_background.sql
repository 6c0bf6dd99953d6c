-- Subtasks that their parent session does not wait for, until their end was told there.
CREATE TABLE background_task (
    session_id TEXT COLLATE "C" PRIMARY KEY,
    parent_id TEXT COLLATE "C" NOT NULL,
    prompt_id TEXT COLLATE "C" NOT NULL,
    title TEXT NOT NULL,
    owner TEXT NOT NULL,
    time_expires BIGINT NOT NULL
);
CREATE INDEX background_task_parent ON background_task (parent_id);
CREATE INDEX background_task_owner ON background_task (owner);
