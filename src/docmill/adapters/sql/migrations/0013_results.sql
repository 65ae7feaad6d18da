-- The output of a task as JSON text, for lists: empty if it is larger than a list shows. No row: nobody has kept it yet.
CREATE TABLE results (
    task_id BIGINT PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    output TEXT NOT NULL
);

-- Faces that were encoded before have no such keys. Quotes inside of texts are escaped, so this matches keys alone.
-- The texts are cut after their colons, because a colon and a word would be the name of a parameter.
UPDATE tasks SET face = REPLACE(
    face,
    ',"mounted_path":',
    ',"result_omitted":' || 'false,"result_error":' || 'null,"mount_table_id":' || 'null,"mounted_path":'
);

-- The walls of 0005, for PostgreSQL alone.
{on_postgres} ALTER TABLE results ENABLE ROW LEVEL SECURITY;
{on_postgres} ALTER TABLE results FORCE ROW LEVEL SECURITY;
{on_postgres} CREATE POLICY docmill_scope ON results USING ((SELECT current_setting('docmill.scope', true)) = '*' OR EXISTS (SELECT 1 FROM tasks WHERE tasks.id = results.task_id));
