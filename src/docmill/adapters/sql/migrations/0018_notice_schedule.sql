-- When due_ms was set. A row that was scheduled in the future was written before the clock was set back.
ALTER TABLE notices ADD COLUMN scheduled_ms BIGINT;
CREATE INDEX notices_scheduled ON notices (scheduled_ms) WHERE state = 'pending';
