-- Who this deployment is, and which numbers the things got that were imported from others: a second import finds them.
CREATE TABLE identity (
    one BIGINT PRIMARY KEY,
    id TEXT NOT NULL
);

CREATE TABLE imports (
    origin TEXT NOT NULL,
    kind TEXT NOT NULL,
    old_id BIGINT NOT NULL,
    new_id BIGINT NOT NULL,
    PRIMARY KEY (origin, kind, old_id)
);
CREATE INDEX imports_by_number ON imports (kind, new_id);

-- No tenant's business: behind the walls of 0005 for docmill's own work alone.
{on_postgres} ALTER TABLE identity ENABLE ROW LEVEL SECURITY;
{on_postgres} ALTER TABLE identity FORCE ROW LEVEL SECURITY;
{on_postgres} CREATE POLICY docmill_scope ON identity USING ((SELECT current_setting('docmill.scope', true)) = '*');
{on_postgres} ALTER TABLE imports ENABLE ROW LEVEL SECURITY;
{on_postgres} ALTER TABLE imports FORCE ROW LEVEL SECURITY;
{on_postgres} CREATE POLICY docmill_scope ON imports USING ((SELECT current_setting('docmill.scope', true)) = '*');
