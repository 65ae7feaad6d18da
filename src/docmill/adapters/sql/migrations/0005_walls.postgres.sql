-- The second wall between tenants. A session says for whom it works in docmill.scope: '*' for docmill's own work, '='
-- and the tenant for a tenant's; without it nobody's rows are seen. FORCE: the tables' owner, as whom docmill connects,
-- obeys too. The setting is read in a sub-select: once a query, not once a row.

ALTER TABLE tasks ENABLE ROW LEVEL SECURITY;
ALTER TABLE tasks FORCE ROW LEVEL SECURITY;
CREATE POLICY docmill_scope ON tasks USING (
    (SELECT current_setting('docmill.scope', true)) = '*'
    OR tenant = substr((SELECT current_setting('docmill.scope', true)), 2)
);

ALTER TABLE task_counts ENABLE ROW LEVEL SECURITY;
ALTER TABLE task_counts FORCE ROW LEVEL SECURITY;
CREATE POLICY docmill_scope ON task_counts USING (
    (SELECT current_setting('docmill.scope', true)) = '*'
    OR tenant = substr((SELECT current_setting('docmill.scope', true)), 2)
);

ALTER TABLE idempotency ENABLE ROW LEVEL SECURITY;
ALTER TABLE idempotency FORCE ROW LEVEL SECURITY;
CREATE POLICY docmill_scope ON idempotency USING (
    (SELECT current_setting('docmill.scope', true)) = '*'
    OR tenant = substr((SELECT current_setting('docmill.scope', true)), 2)
);

ALTER TABLE parses ENABLE ROW LEVEL SECURITY;
ALTER TABLE parses FORCE ROW LEVEL SECURITY;
CREATE POLICY docmill_scope ON parses USING (
    (SELECT current_setting('docmill.scope', true)) = '*'
    OR tenant = substr((SELECT current_setting('docmill.scope', true)), 2)
);

ALTER TABLE json_tables ENABLE ROW LEVEL SECURITY;
ALTER TABLE json_tables FORCE ROW LEVEL SECURITY;
CREATE POLICY docmill_scope ON json_tables USING (
    (SELECT current_setting('docmill.scope', true)) = '*'
    OR tenant = substr((SELECT current_setting('docmill.scope', true)), 2)
);

ALTER TABLE documents ENABLE ROW LEVEL SECURITY;
ALTER TABLE documents FORCE ROW LEVEL SECURITY;
CREATE POLICY docmill_scope ON documents USING (
    (SELECT current_setting('docmill.scope', true)) = '*'
    OR tenant = substr((SELECT current_setting('docmill.scope', true)), 2)
);

ALTER TABLE assets ENABLE ROW LEVEL SECURITY;
ALTER TABLE assets FORCE ROW LEVEL SECURITY;
CREATE POLICY docmill_scope ON assets USING (
    (SELECT current_setting('docmill.scope', true)) = '*'
    OR tenant = substr((SELECT current_setting('docmill.scope', true)), 2)
);

ALTER TABLE document_assets ENABLE ROW LEVEL SECURITY;
ALTER TABLE document_assets FORCE ROW LEVEL SECURITY;
CREATE POLICY docmill_scope ON document_assets USING (
    (SELECT current_setting('docmill.scope', true)) = '*'
    OR tenant = substr((SELECT current_setting('docmill.scope', true)), 2)
);

ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE api_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY docmill_scope ON api_keys USING (
    (SELECT current_setting('docmill.scope', true)) = '*'
    OR tenant = substr((SELECT current_setting('docmill.scope', true)), 2)
);

ALTER TABLE rules ENABLE ROW LEVEL SECURITY;
ALTER TABLE rules FORCE ROW LEVEL SECURITY;
CREATE POLICY docmill_scope ON rules USING (
    (SELECT current_setting('docmill.scope', true)) = '*'
    OR tenant = substr((SELECT current_setting('docmill.scope', true)), 2)
);

CREATE POLICY docmill_default ON rules FOR SELECT USING (is_default = 1);

ALTER TABLE attempts ENABLE ROW LEVEL SECURITY;
ALTER TABLE attempts FORCE ROW LEVEL SECURITY;
CREATE POLICY docmill_scope ON attempts USING (
    (SELECT current_setting('docmill.scope', true)) = '*'
    OR EXISTS (SELECT 1 FROM tasks WHERE tasks.id = attempts.task_id)
);

ALTER TABLE events ENABLE ROW LEVEL SECURITY;
ALTER TABLE events FORCE ROW LEVEL SECURITY;
CREATE POLICY docmill_scope ON events USING (
    (SELECT current_setting('docmill.scope', true)) = '*'
    OR EXISTS (SELECT 1 FROM tasks WHERE tasks.id = events.task_id)
);

ALTER TABLE deliveries ENABLE ROW LEVEL SECURITY;
ALTER TABLE deliveries FORCE ROW LEVEL SECURITY;
CREATE POLICY docmill_scope ON deliveries USING (
    (SELECT current_setting('docmill.scope', true)) = '*'
    OR EXISTS (SELECT 1 FROM tasks WHERE tasks.id = deliveries.task_id)
);

ALTER TABLE mounts ENABLE ROW LEVEL SECURITY;
ALTER TABLE mounts FORCE ROW LEVEL SECURITY;
CREATE POLICY docmill_scope ON mounts USING (
    (SELECT current_setting('docmill.scope', true)) = '*'
    OR EXISTS (SELECT 1 FROM json_tables WHERE json_tables.id = mounts.table_id)
);
