BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0002');
CREATE TABLE blob_uses (
	version VARCHAR NOT NULL, 
	sha256 VARCHAR NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	PRIMARY KEY (version, sha256, size_bytes), 
	FOREIGN KEY(version) REFERENCES resources (name) ON DELETE CASCADE
);
INSERT INTO "blob_uses" VALUES('models/affine/versions/1','2b1635513a063f445be51e66cf447b514c0195f491046bab74de1628a3c05776',135);
CREATE TABLE changes (
	revision BIGINT NOT NULL, 
	ordinal INTEGER NOT NULL, 
	kind VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	PRIMARY KEY (revision, ordinal)
);
INSERT INTO "changes" VALUES(1796069038305522,0,'model','models/affine');
INSERT INTO "changes" VALUES(1796069038305522,1,'model_version','models/affine/versions/1');
INSERT INTO "changes" VALUES(1796069038305523,0,'model_version','models/affine/versions/1');
INSERT INTO "changes" VALUES(1796069038305524,0,'placement','pools/default/placements/affine@1');
INSERT INTO "changes" VALUES(1796069038305525,0,'endpoint','endpoints/affine');
INSERT INTO "changes" VALUES(1796069038305526,0,'alias','models/affine/aliases/champion');
CREATE TABLE links (
	source VARCHAR NOT NULL, 
	target VARCHAR NOT NULL, 
	PRIMARY KEY (source, target), 
	FOREIGN KEY(source) REFERENCES resources (name) ON DELETE CASCADE, 
	FOREIGN KEY(target) REFERENCES resources (name) ON DELETE RESTRICT
);
INSERT INTO "links" VALUES('models/affine/versions/1','models/affine');
INSERT INTO "links" VALUES('pools/default/placements/affine@1','models/affine/versions/1');
INSERT INTO "links" VALUES('endpoints/affine','models/affine/versions/1');
INSERT INTO "links" VALUES('models/affine/aliases/champion','models/affine');
INSERT INTO "links" VALUES('models/affine/aliases/champion','models/affine/versions/1');
CREATE TABLE log_bounds (
	id INTEGER NOT NULL, 
	oldest BIGINT NOT NULL, 
	revision BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "log_bounds" VALUES(1,1796069038305521,1796069038305526);
CREATE TABLE resources (
	name VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	parent VARCHAR NOT NULL, 
	sort_key VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "resources" VALUES('models/affine','model','','models/affine','','{"name":{"model":"affine"},"description":"","tags":{},"create_time":"2026-11-30T20:04:01.908770Z","update_time":"2026-11-30T20:04:01.908770Z","etag":"66183e90530f2"}');
INSERT INTO "resources" VALUES('models/affine/versions/1','model_version','models/affine','2026-11-30T20:04:01.908770+00:00 models/affine/versions/1','READY','{"name":{"model":"affine","version":"1"},"state":"READY","format":"ONNX","files":[{"path":"affine.onnx","size_bytes":135,"sha256":"2b1635513a063f445be51e66cf447b514c0195f491046bab74de1628a3c05776"}],"digest":"08cea39690105bce6f1a12e2cfcb65ff45da09da723e74995d68e0a949d97047","size_bytes":135,"inputs":[{"name":"x","datatype":"FP32","shape":[-1,4]}],"outputs":[{"name":"y","datatype":"FP32","shape":[-1,4]},{"name":"z","datatype":"FP32","shape":[-1,4]}],"settings":{"max_batch_size":0,"max_queue_delay_us":0,"intra_op_threads":0,"execution_providers":[],"preferred_batch_sizes":[],"max_queue_rows":0,"max_queue_bytes":0,"queue_timeout_us":0,"priority_levels":0,"default_priority":0,"oversize_policy":null,"batch_axis":null,"padded_inputs":[],"trimmed_outputs":[],"instances":0,"cpus":[],"tuning_mode":null,"response_cache":null,"sequence":null,"generation":null},"lineage":{},"create_time":"2026-11-30T20:04:01.908770Z","declare_time":"2026-11-30T20:04:01.908770Z","tuning":null,"measuring_wanted":false,"language_model":null,"etag":"66183e90530f3"}');
INSERT INTO "resources" VALUES('pools/default/placements/affine@1','placement','pools/default','pools/default/placements/affine@1','','{"name":{"pool":"default","version":{"model":"affine","version":"1"}},"create_time":"2026-11-30T20:04:03.783802Z","etag":"66183e90530f4"}');
INSERT INTO "resources" VALUES('endpoints/affine','endpoint','','endpoints/affine','','{"name":{"endpoint":"affine"},"description":"","targets":[{"target":{"model":"affine","version":"1"},"weight":100.0}],"sticky_header":"","mirror":null,"retry_policy":null,"timeout":null,"circuit_limits":null,"tags":{},"create_time":"2026-11-30T20:04:04.437512Z","update_time":"2026-11-30T20:04:04.437512Z","etag":"66183e90530f5"}');
INSERT INTO "resources" VALUES('models/affine/aliases/champion','alias','models/affine','models/affine/aliases/champion','','{"name":{"model":"affine","alias":"champion"},"version":{"model":"affine","version":"1"},"create_time":"2026-11-30T20:04:10.002396Z","update_time":"2026-11-30T20:04:10.002396Z","etag":"66183e90530f6"}');
CREATE UNIQUE INDEX resources_in_order ON resources (kind, sort_key);
CREATE INDEX resources_by_parent ON resources (kind, parent, sort_key);
CREATE INDEX resources_uploading ON resources (state) WHERE state = 'UPLOADING';
CREATE INDEX links_by_target ON links (target);
CREATE INDEX blob_uses_by_blob ON blob_uses (sha256, size_bytes);
COMMIT;
