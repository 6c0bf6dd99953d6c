-- What people allow holds for as long as the engine is open that took the answer, or for good.

-- `owner` is the engine, as in `lease`, and empty if the rule lasts. An engine on another machine is judged by
-- `time_expires`, which it renews with its leases.
ALTER TABLE permission_rule ADD COLUMN owner TEXT NOT NULL DEFAULT '', ADD COLUMN time_expires BIGINT NOT NULL DEFAULT 0;
ALTER TABLE permission_rule DROP CONSTRAINT permission_rule_pkey;
ALTER TABLE permission_rule ADD PRIMARY KEY (project_id, permission, pattern, owner);
CREATE INDEX permission_rule_owner ON permission_rule (owner);
