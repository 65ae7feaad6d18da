CREATE TABLE webhooks (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    url TEXT NOT NULL,
    description TEXT NOT NULL,
    kinds TEXT NOT NULL,
    secrets TEXT NOT NULL,
    disabled_ms BIGINT,
    disabled_code TEXT,
    created_ms BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL
);
CREATE INDEX webhooks_by_owner ON webhooks (tenant, owner, created_ms);

-- The outbox. No foreign key to webhooks: whoever ends a task must not fail because somebody removes a webhook.
CREATE TABLE notices (
    id {serial},
    message_id TEXT NOT NULL,
    webhook_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL,
    task_id BIGINT,
    payload TEXT NOT NULL,
    state TEXT NOT NULL,
    tries BIGINT NOT NULL,
    round_from BIGINT NOT NULL,
    due_ms BIGINT NOT NULL,
    queued_ms BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    ended_ms BIGINT,
    status BIGINT,
    code TEXT
);
CREATE UNIQUE INDEX notices_once ON notices (webhook_id, message_id);
CREATE INDEX notices_due ON notices (webhook_id, due_ms) WHERE state = 'pending';
CREATE INDEX notices_ended ON notices (ended_ms) WHERE ended_ms IS NOT NULL;
CREATE INDEX notices_by_owner ON notices (tenant, owner, id);
CREATE INDEX notices_by_webhook ON notices (webhook_id, id);
CREATE INDEX notices_of_task ON notices (task_id, id) WHERE task_id IS NOT NULL;

CREATE TABLE notice_tries (
    notice_id BIGINT NOT NULL REFERENCES notices (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    status BIGINT,
    code TEXT,
    why TEXT,
    took_ms BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (notice_id, number)
);

-- The walls of 0005, for PostgreSQL alone.
{on_postgres} ALTER TABLE webhooks ENABLE ROW LEVEL SECURITY;
{on_postgres} ALTER TABLE webhooks FORCE ROW LEVEL SECURITY;
{on_postgres} CREATE POLICY docmill_scope ON webhooks USING ((SELECT current_setting('docmill.scope', true)) = '*' OR tenant = substr((SELECT current_setting('docmill.scope', true)), 2));
{on_postgres} ALTER TABLE notices ENABLE ROW LEVEL SECURITY;
{on_postgres} ALTER TABLE notices FORCE ROW LEVEL SECURITY;
{on_postgres} CREATE POLICY docmill_scope ON notices USING ((SELECT current_setting('docmill.scope', true)) = '*' OR tenant = substr((SELECT current_setting('docmill.scope', true)), 2));
{on_postgres} ALTER TABLE notice_tries ENABLE ROW LEVEL SECURITY;
{on_postgres} ALTER TABLE notice_tries FORCE ROW LEVEL SECURITY;
{on_postgres} CREATE POLICY docmill_scope ON notice_tries USING ((SELECT current_setting('docmill.scope', true)) = '*' OR EXISTS (SELECT 1 FROM notices WHERE notices.id = notice_tries.notice_id));
