CREATE TABLE tasks (
    id {serial},
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    project_id BIGINT NOT NULL,
    filename TEXT NOT NULL,
    source_key TEXT NOT NULL,
    rule_id BIGINT NOT NULL,
    status TEXT NOT NULL,
    stage TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    attempt_id TEXT,
    version BIGINT NOT NULL,
    event_seq BIGINT NOT NULL,
    progress BIGINT NOT NULL,
    body TEXT NOT NULL,
    face TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL
);
CREATE INDEX tasks_by_owner ON tasks (tenant, owner, id);
CREATE INDEX tasks_by_status ON tasks (tenant, owner, status, id);
CREATE INDEX tasks_by_project ON tasks (tenant, owner, project_id, id);
CREATE INDEX tasks_by_project_status ON tasks (tenant, owner, project_id, status, id);

CREATE TABLE task_counts (
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    project_id BIGINT NOT NULL,
    status TEXT NOT NULL,
    n BIGINT NOT NULL,
    PRIMARY KEY (tenant, owner, project_id, status)
);

CREATE TABLE attempts (
    id TEXT PRIMARY KEY,
    task_id BIGINT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    stage TEXT NOT NULL,
    state TEXT NOT NULL,
    priority BIGINT NOT NULL,
    owner TEXT,
    due_ms BIGINT NOT NULL,
    lease_ms BIGINT,
    deadline_ms BIGINT,
    started_ms BIGINT,
    ended_ms BIGINT
);
CREATE INDEX attempts_of_task ON attempts (task_id, number);
CREATE INDEX attempts_queued ON attempts (due_ms) WHERE state = 'queued';
CREATE INDEX attempts_leased ON attempts (lease_ms) WHERE state = 'running';
CREATE INDEX attempts_handed_over ON attempts (deadline_ms) WHERE state = 'handed_over';

CREATE TABLE events (
    task_id BIGINT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (task_id, seq)
);

CREATE TABLE idempotency (
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    task_id BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    PRIMARY KEY (tenant, owner, key)
);
CREATE INDEX idempotency_by_age ON idempotency (created_ms);

CREATE TABLE parses (
    tenant TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    task_id BIGINT NOT NULL,
    markdown_key TEXT NOT NULL,
    parsed_key TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    PRIMARY KEY (tenant, fingerprint)
);
