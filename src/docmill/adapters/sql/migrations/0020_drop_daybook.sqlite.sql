-- Progress is written to the tasks and their logs at once. Reports that an earlier version stored in the daybook, and had
-- not copied from there when it was stopped, are copied now.

UPDATE tasks SET version = d.version, event_seq = d.seq, progress = d.progress, updated_ms = d.updated_ms
FROM (
    SELECT task_id, MIN(version) AS first, MAX(version) AS version, MAX(seq) AS seq, MAX(progress) AS progress,
           MAX(updated_ms) AS updated_ms
    FROM daybook GROUP BY task_id
) d
WHERE tasks.id = d.task_id AND tasks.version = d.first - 1;
INSERT INTO events (task_id, seq, kind, data, at_ms)
SELECT d.task_id, d.seq, 'progress', d.data, d.at_ms
FROM daybook d JOIN tasks t ON t.id = d.task_id AND d.seq <= t.event_seq
WHERE true ORDER BY d.task_id, d.seq
ON CONFLICT (task_id, seq) DO NOTHING;
DROP TABLE daybook;
