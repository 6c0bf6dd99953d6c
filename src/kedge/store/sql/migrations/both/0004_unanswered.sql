-- `awaiting` tells more than that a prompt waits: see `kedge.store.verbs.unanswered.PromptState`.
DROP INDEX message_awaiting;
CREATE INDEX message_unanswered ON message (session_id, pos) WHERE awaiting > 0;

-- The position of the first message that the run of a lease can have written.
ALTER TABLE lease ADD COLUMN first_pos BIGINT NOT NULL DEFAULT 0;
