-- `awaiting` tells more than that a prompt waits: see `kedge.store.verbs.unanswered.PromptState`.
DROP INDEX message_awaiting;
CREATE INDEX message_unanswered ON message (session_id, pos) WHERE awaiting > 0;
