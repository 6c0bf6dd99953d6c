-- What people allow holds for as long as the engine is open that took the answer, or for good.

-- `owner` is the engine, as in `lease`, and empty if the rule lasts. An engine on another machine is judged by
-- `time_expires`, which it renews with its leases.
CREATE TABLE permission_rule_new (
    project_id TEXT NOT NULL,
    permission TEXT NOT NULL,
    pattern TEXT NOT NULL,
    owner TEXT NOT NULL,
    time_created BIGINT NOT NULL,
    time_expires BIGINT NOT NULL,
    PRIMARY KEY (project_id, permission, pattern, owner)
);
INSERT INTO permission_rule_new SELECT project_id, permission, pattern, '', time_created, 0 FROM permission_rule;
DROP TABLE permission_rule;
ALTER TABLE permission_rule_new RENAME TO permission_rule;
CREATE INDEX permission_rule_owner ON permission_rule (owner);
