CREATE TABLE documents (
    tenant TEXT NOT NULL,
    document_id TEXT NOT NULL,
    version TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    collection_id TEXT,
    created_at_us BIGINT NOT NULL,
    body TEXT NOT NULL,
    digest TEXT NOT NULL,
    stored_ms BIGINT NOT NULL,
    deleted_ms BIGINT,
    PRIMARY KEY (tenant, document_id, version)
);
CREATE INDEX documents_latest ON documents (tenant, document_id, created_at_us, version);
CREATE INDEX documents_by_collection ON documents (tenant, collection_id, created_at_us, document_id, version);
CREATE INDEX documents_by_age ON documents (tenant, created_at_us, document_id, version);

CREATE TABLE assets (
    tenant TEXT NOT NULL,
    asset_id TEXT NOT NULL,
    document_id TEXT NOT NULL,
    PRIMARY KEY (tenant, asset_id)
);
CREATE INDEX assets_of_document ON assets (tenant, document_id);

CREATE TABLE document_assets (
    tenant TEXT NOT NULL,
    document_id TEXT NOT NULL,
    version TEXT NOT NULL,
    asset_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    body TEXT NOT NULL,
    deleted_ms BIGINT,
    PRIMARY KEY (tenant, document_id, version, asset_id),
    FOREIGN KEY (tenant, document_id, version) REFERENCES documents (tenant, document_id, version) ON DELETE CASCADE,
    FOREIGN KEY (tenant, asset_id) REFERENCES assets (tenant, asset_id) ON DELETE CASCADE
);
CREATE INDEX document_assets_in_order ON document_assets (tenant, document_id, version, position);
CREATE INDEX document_assets_by_asset ON document_assets (tenant, asset_id);
