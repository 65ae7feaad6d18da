ALTER TABLE attempts ADD COLUMN collected_ms BIGINT;
CREATE INDEX attempts_leavings ON attempts (ended_ms)
    WHERE collected_ms IS NULL AND state IN ('dropped', 'failed', 'given_back');
