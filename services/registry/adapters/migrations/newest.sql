CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE resources (
	name VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	parent VARCHAR NOT NULL, 
	sort_key VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (name)
);

CREATE UNIQUE INDEX resources_in_order ON resources (kind, sort_key);

CREATE INDEX resources_by_parent ON resources (kind, parent, sort_key);

CREATE INDEX resources_uploading ON resources (state) WHERE state = 'UPLOADING';

CREATE TABLE links (
	source VARCHAR NOT NULL, 
	target VARCHAR NOT NULL, 
	PRIMARY KEY (source, target), 
	FOREIGN KEY(source) REFERENCES resources (name) ON DELETE CASCADE, 
	FOREIGN KEY(target) REFERENCES resources (name) ON DELETE RESTRICT
);

CREATE INDEX links_by_target ON links (target);

CREATE TABLE blob_uses (
	version VARCHAR NOT NULL, 
	sha256 VARCHAR NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	PRIMARY KEY (version, sha256, size_bytes), 
	FOREIGN KEY(version) REFERENCES resources (name) ON DELETE CASCADE
);

CREATE INDEX blob_uses_by_blob ON blob_uses (sha256, size_bytes);

CREATE TABLE log_bounds (
	id INTEGER NOT NULL, 
	oldest BIGINT NOT NULL, 
	revision BIGINT NOT NULL, epoch BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id)
);

CREATE TABLE changes (
	revision BIGINT NOT NULL, 
	ordinal INTEGER NOT NULL, 
	kind VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	PRIMARY KEY (revision, ordinal)
);

INSERT INTO alembic_version VALUES ('0003');
