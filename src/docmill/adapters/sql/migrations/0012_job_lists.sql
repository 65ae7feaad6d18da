-- Why an attempt failed, the ids of a worker's start answer, and what lists of jobs filter and sort by: the owner of the
-- task and the status that pollers see. Copies of the task's columns, so that every list has its own index.
ALTER TABLE attempts ADD COLUMN failure TEXT;
ALTER TABLE attempts ADD COLUMN start_ids TEXT;
ALTER TABLE attempts ADD COLUMN job_tenant TEXT;
ALTER TABLE attempts ADD COLUMN job_user TEXT;
ALTER TABLE attempts ADD COLUMN job_status TEXT;
UPDATE attempts SET job_tenant = t.tenant, job_user = t.owner, job_status = CASE
    WHEN attempts.state IN ('queued', 'running') THEN 'queued'
    WHEN attempts.state = 'handed_over' THEN 'running'
    WHEN attempts.state = 'failed' AND t.status = 'cancelled' THEN 'cancelled'
    WHEN attempts.state = 'failed' THEN 'failed'
    WHEN attempts.state IN ('dropped', 'given_back') AND t.status = 'failed' AND t.attempt_id = attempts.id THEN 'failed'
    WHEN attempts.state IN ('dropped', 'given_back') THEN 'cancelled'
    WHEN t.status IN ('completed', 'failed', 'cancelled') THEN t.status
    ELSE 'running' END
FROM tasks t WHERE t.id = attempts.task_id AND attempts.dialect IS NOT NULL;
DROP INDEX attempts_of_workers;
CREATE INDEX jobs_by_owner ON attempts (job_tenant, job_user, started_ms, id) WHERE dialect IS NOT NULL;
CREATE INDEX jobs_by_status ON attempts (job_tenant, job_user, job_status, started_ms, id) WHERE dialect IS NOT NULL;
