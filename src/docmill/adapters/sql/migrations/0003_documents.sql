CREATE TABLE documents (
    tenant TEXT NOT NULL,
    document_id TEXT NOT NULL,
    version TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    collection_id TEXT,
    created_at_us BIGINT NOT NULL,
    body TEXT NOT NULL,
    stored_ms BIGINT NOT NULL,
    deleted_ms BIGINT,
    PRIMARY KEY (tenant, document_id, version)
);
CREATE INDEX documents_latest ON documents (tenant, document_id, created_at_us);
CREATE INDEX documents_by_collection ON documents (tenant, collection_id, created_at_us, document_id, version);
CREATE INDEX documents_by_age ON documents (tenant, created_at_us, document_id, version);

CREATE TABLE assets (
    tenant TEXT NOT NULL,
    asset_id TEXT NOT NULL,
    document_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    body TEXT NOT NULL,
    stored_ms BIGINT NOT NULL,
    deleted_ms BIGINT,
    PRIMARY KEY (tenant, asset_id)
);
CREATE INDEX assets_of_document ON assets (tenant, document_id, position, asset_id);
