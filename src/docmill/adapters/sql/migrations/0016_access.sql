-- An operator of the deployment is not the same as an administrator of a tenant: existing keys are not operators.
ALTER TABLE api_keys ADD COLUMN is_operator BIGINT NOT NULL DEFAULT 0;

-- One row once credentials were in use. From then on the service never serves callers without a credential again.
CREATE TABLE access_control (
    one BIGINT PRIMARY KEY,
    required_ms BIGINT NOT NULL
);
INSERT INTO access_control (one, required_ms) SELECT 1, max(created_ms) FROM api_keys HAVING count(*) > 0;

-- Signed-in browsers. Only the SHA-256 of the cookie is stored.
CREATE TABLE sessions (
    digest TEXT PRIMARY KEY,
    key_id TEXT NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    created_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL
);
CREATE INDEX sessions_of_key ON sessions (key_id, created_ms);
CREATE INDEX sessions_by_expiry ON sessions (expires_ms);

{on_postgres} ALTER TABLE sessions ENABLE ROW LEVEL SECURITY;
{on_postgres} ALTER TABLE sessions FORCE ROW LEVEL SECURITY;
{on_postgres} CREATE POLICY docmill_scope ON sessions USING ((SELECT current_setting('docmill.scope', true)) = '*' OR EXISTS (SELECT 1 FROM api_keys WHERE api_keys.id = sessions.key_id));
{on_postgres} ALTER TABLE access_control ENABLE ROW LEVEL SECURITY;
{on_postgres} ALTER TABLE access_control FORCE ROW LEVEL SECURITY;
{on_postgres} CREATE POLICY docmill_scope ON access_control USING ((SELECT current_setting('docmill.scope', true)) = '*');
