-- What is left of a task that was kept long enough. `leavings` says where its objects lie, until they are removed.
CREATE TABLE tombstones (
    task_id BIGINT PRIMARY KEY,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    status TEXT NOT NULL,
    ended_ms BIGINT NOT NULL,
    expired_ms BIGINT NOT NULL,
    leavings TEXT
);
CREATE INDEX tombstones_full ON tombstones (task_id) WHERE leavings IS NOT NULL;

-- Tasks that use the parse of another one: it stays as long as they do.
CREATE TABLE loans (
    task_id BIGINT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    parsed_key TEXT NOT NULL,
    PRIMARY KEY (task_id, parsed_key)
);
CREATE INDEX loans_of_parse ON loans (parsed_key);
INSERT INTO loans (task_id, parsed_key)
SELECT id, {parsed_key} FROM tasks WHERE body LIKE '%"cache_hit"%' AND {parsed_key} IS NOT NULL;

CREATE INDEX tasks_by_source ON tasks (tenant, source_key);
CREATE INDEX idempotency_of_task ON idempotency (task_id);
CREATE INDEX parses_of_task ON parses (task_id);

-- Which document names an object of the store. Columns, because behind the walls no index on an expression is used.
ALTER TABLE documents ADD COLUMN blob_uri TEXT GENERATED ALWAYS AS ({blob_uri}) {stored};
ALTER TABLE document_assets ADD COLUMN blob_uri TEXT GENERATED ALWAYS AS ({blob_uri}) {stored};
CREATE INDEX documents_by_blob ON documents (tenant, blob_uri) WHERE blob_uri LIKE 'docmill:%';
CREATE INDEX document_assets_by_blob ON document_assets (tenant, blob_uri) WHERE blob_uri LIKE 'docmill:%';

-- The walls of 0005, for PostgreSQL alone.
{on_postgres} ALTER TABLE tombstones ENABLE ROW LEVEL SECURITY;
{on_postgres} ALTER TABLE tombstones FORCE ROW LEVEL SECURITY;
{on_postgres} CREATE POLICY docmill_scope ON tombstones USING ((SELECT current_setting('docmill.scope', true)) = '*' OR tenant = substr((SELECT current_setting('docmill.scope', true)), 2));
{on_postgres} ALTER TABLE loans ENABLE ROW LEVEL SECURITY;
{on_postgres} ALTER TABLE loans FORCE ROW LEVEL SECURITY;
{on_postgres} CREATE POLICY docmill_scope ON loans USING ((SELECT current_setting('docmill.scope', true)) = '*' OR EXISTS (SELECT 1 FROM tasks WHERE tasks.id = loans.task_id));
