ALTER TABLE attempts ADD COLUMN worker TEXT;
ALTER TABLE attempts ADD COLUMN dialect TEXT;
ALTER TABLE attempts ADD COLUMN token_hash TEXT;
ALTER TABLE attempts ADD COLUMN process_id TEXT;
ALTER TABLE attempts ADD COLUMN timeout_ms BIGINT;
ALTER TABLE attempts ADD COLUMN outcome_hash TEXT;

CREATE TABLE deliveries (
    id {serial},
    attempt_id TEXT NOT NULL REFERENCES attempts (id) ON DELETE CASCADE,
    task_id BIGINT NOT NULL,
    kind TEXT NOT NULL,
    status BIGINT NOT NULL,
    reason TEXT,
    body_hash TEXT NOT NULL,
    size BIGINT NOT NULL,
    at_ms BIGINT NOT NULL
);
CREATE INDEX deliveries_of_attempt ON deliveries (attempt_id, id);
CREATE INDEX attempts_of_workers ON attempts (started_ms) WHERE dialect IS NOT NULL;
CREATE INDEX attempts_being_started ON attempts (lease_ms) WHERE state = 'handed_over';
