CREATE TABLE rules (
    id {serial},
    tenant TEXT,
    owner TEXT,
    is_default BIGINT NOT NULL DEFAULT 0,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    json_schema TEXT,
    system_prompt TEXT,
    mode TEXT NOT NULL,
    strategy TEXT,
    created_ms BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL
);
CREATE INDEX rules_by_owner ON rules (tenant, owner, id);
CREATE UNIQUE INDEX rules_one_default ON rules (is_default) WHERE is_default = 1;

CREATE TABLE json_tables (
    id {serial},
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    project_id BIGINT NOT NULL,
    name TEXT NOT NULL,
    data TEXT NOT NULL,
    version BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL
);
CREATE INDEX json_tables_by_project ON json_tables (tenant, owner, project_id, id);

CREATE TABLE mounts (
    table_id BIGINT NOT NULL REFERENCES json_tables (id) ON DELETE CASCADE,
    pointer TEXT NOT NULL,
    entry TEXT NOT NULL,
    task_id BIGINT NOT NULL,
    PRIMARY KEY (table_id, pointer, entry)
);

CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    is_admin BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    used_ms BIGINT,
    expires_ms BIGINT,
    revoked_ms BIGINT
);
