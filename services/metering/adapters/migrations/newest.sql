CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE projects (
	id VARCHAR NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (id)
);

CREATE TABLE signing_keys (
	kid VARCHAR NOT NULL, 
	create_us BIGINT NOT NULL, 
	retire_us BIGINT, 
	body TEXT NOT NULL, 
	PRIMARY KEY (kid)
);

CREATE TABLE api_keys (
	id VARCHAR NOT NULL, 
	project VARCHAR NOT NULL, 
	kid VARCHAR NOT NULL, 
	role VARCHAR NOT NULL, 
	sort_key VARCHAR NOT NULL, 
	expire_us BIGINT NOT NULL, 
	revoke_us BIGINT, 
	in_policy BOOLEAN NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(project) REFERENCES projects (id), 
	FOREIGN KEY(kid) REFERENCES signing_keys (kid)
);

CREATE UNIQUE INDEX api_keys_in_order ON api_keys (sort_key);

CREATE INDEX api_keys_of_project ON api_keys (project, sort_key);

CREATE INDEX api_keys_in_policy ON api_keys (in_policy, sort_key);

CREATE TABLE usage_sources (
	id INTEGER NOT NULL, 
	source TEXT NOT NULL, 
	worker TEXT NOT NULL, 
	pool TEXT NOT NULL, 
	next_sequence INTEGER NOT NULL, 
	update_us INTEGER NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (source)
);

CREATE TABLE usage_subjects (
	id INTEGER NOT NULL, 
	project TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	endpoint TEXT NOT NULL, 
	model TEXT NOT NULL, 
	version TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	kind INTEGER NOT NULL, 
	pool TEXT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT usage_subjects_once UNIQUE (project, "key", endpoint, model, version, digest, kind, pool)
);

CREATE TABLE usage_rows (
	id INTEGER NOT NULL, 
	entry INTEGER NOT NULL, 
	subject INTEGER NOT NULL, 
	request_id BLOB NOT NULL, 
	part INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	outcome INTEGER NOT NULL, 
	start_ns INTEGER NOT NULL, 
	duration_ns INTEGER NOT NULL, 
	queue_ns INTEGER NOT NULL, 
	compute_ns INTEGER NOT NULL, 
	input_tokens INTEGER NOT NULL, 
	cached_tokens INTEGER NOT NULL, 
	output_tokens INTEGER NOT NULL, 
	rows INTEGER NOT NULL, 
	request_bytes INTEGER NOT NULL, 
	response_bytes INTEGER NOT NULL, 
	preemptions INTEGER NOT NULL, 
	from_cache INTEGER NOT NULL, 
	slot INTEGER NOT NULL, 
	odd INTEGER NOT NULL, 
	PRIMARY KEY (id)
);

CREATE INDEX usage_rows_plain ON usage_rows (slot, request_id) WHERE odd = 0;

CREATE INDEX usage_rows_odd ON usage_rows (request_id) WHERE odd = 1;

CREATE TABLE usage_telemetry (
	"row" INTEGER NOT NULL, 
	fingerprint BLOB NOT NULL, 
	input_characters INTEGER NOT NULL, 
	output_characters INTEGER NOT NULL, 
	scores TEXT NOT NULL, 
	PRIMARY KEY ("row")
);

CREATE TABLE usage_superseded (
	"row" INTEGER NOT NULL, 
	winner INTEGER NOT NULL, 
	attempts INTEGER NOT NULL, 
	entry INTEGER NOT NULL, 
	PRIMARY KEY ("row")
);

CREATE INDEX usage_superseded_by_winner ON usage_superseded (winner);

CREATE INDEX usage_superseded_by_entry ON usage_superseded (entry);

CREATE TABLE usage_retention (
	id INTEGER NOT NULL, 
	upto_entry INTEGER NOT NULL, 
	dropped_rows INTEGER NOT NULL, 
	create_us INTEGER NOT NULL, 
	PRIMARY KEY (id)
);

CREATE TABLE usage_rollups (
	grain INTEGER NOT NULL, 
	start INTEGER NOT NULL, 
	subject INTEGER NOT NULL, 
	requests INTEGER NOT NULL, 
	ok INTEGER NOT NULL, 
	failed INTEGER NOT NULL, 
	cancelled INTEGER NOT NULL, 
	deadline INTEGER NOT NULL, 
	aborted INTEGER NOT NULL, 
	input_tokens INTEGER NOT NULL, 
	cached_tokens INTEGER NOT NULL, 
	output_tokens INTEGER NOT NULL, 
	rows INTEGER NOT NULL, 
	request_bytes INTEGER NOT NULL, 
	response_bytes INTEGER NOT NULL, 
	from_cache INTEGER NOT NULL, 
	preemptions INTEGER NOT NULL, 
	compute_ns INTEGER NOT NULL, 
	queue_ns INTEGER NOT NULL, 
	duration_ns INTEGER NOT NULL, 
	lost_attempts INTEGER NOT NULL, 
	lost_compute_ns INTEGER NOT NULL, 
	charged INTEGER NOT NULL, 
	PRIMARY KEY (grain, start, subject), 
	CHECK (typeof(charged) = 'integer' AND typeof(compute_ns) = 'integer' AND typeof(queue_ns) = 'integer' AND typeof(duration_ns) = 'integer' AND typeof(lost_compute_ns) = 'integer')
)
 WITHOUT ROWID

;

CREATE TABLE usage_family_rollups (
	grain INTEGER NOT NULL, 
	start INTEGER NOT NULL, 
	subject INTEGER NOT NULL, 
	requests INTEGER NOT NULL, 
	ok INTEGER NOT NULL, 
	failed INTEGER NOT NULL, 
	cancelled INTEGER NOT NULL, 
	deadline INTEGER NOT NULL, 
	aborted INTEGER NOT NULL, 
	input_tokens INTEGER NOT NULL, 
	cached_tokens INTEGER NOT NULL, 
	output_tokens INTEGER NOT NULL, 
	rows INTEGER NOT NULL, 
	request_bytes INTEGER NOT NULL, 
	response_bytes INTEGER NOT NULL, 
	from_cache INTEGER NOT NULL, 
	preemptions INTEGER NOT NULL, 
	compute_ns INTEGER NOT NULL, 
	queue_ns INTEGER NOT NULL, 
	duration_ns INTEGER NOT NULL, 
	lost_attempts INTEGER NOT NULL, 
	lost_compute_ns INTEGER NOT NULL, 
	charged INTEGER NOT NULL, 
	PRIMARY KEY (grain, start, subject), 
	CHECK (typeof(charged) = 'integer' AND typeof(compute_ns) = 'integer' AND typeof(queue_ns) = 'integer' AND typeof(duration_ns) = 'integer' AND typeof(lost_compute_ns) = 'integer')
)
 WITHOUT ROWID

;

CREATE TABLE ledger_accounts (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (name)
);

CREATE TABLE ledger_entries (
	number INTEGER NOT NULL, 
	kind INTEGER NOT NULL, 
	create_us INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	corrects INTEGER NOT NULL, 
	request_key TEXT, 
	source INTEGER NOT NULL, 
	first_sequence INTEGER NOT NULL, 
	first_row INTEGER NOT NULL, 
	row_count INTEGER NOT NULL, 
	last_price INTEGER NOT NULL, 
	charged INTEGER NOT NULL, 
	rows_hash BLOB NOT NULL, 
	hash BLOB NOT NULL, 
	PRIMARY KEY (number), 
	UNIQUE (request_key)
);

CREATE INDEX ledger_entries_by_row ON ledger_entries (first_row) WHERE row_count > 0;

CREATE INDEX ledger_entries_by_time ON ledger_entries (create_us);

CREATE TABLE ledger_postings (
	id INTEGER NOT NULL, 
	entry INTEGER NOT NULL, 
	account INTEGER NOT NULL, 
	amount INTEGER NOT NULL, 
	quantity INTEGER NOT NULL, 
	unit INTEGER NOT NULL, 
	price INTEGER NOT NULL, 
	subject INTEGER NOT NULL, 
	PRIMARY KEY (id), 
	CHECK (typeof(amount) = 'integer' AND typeof(quantity) = 'integer'), 
	FOREIGN KEY(entry) REFERENCES ledger_entries (number), 
	FOREIGN KEY(account) REFERENCES ledger_accounts (id)
);

CREATE INDEX ledger_postings_by_entry ON ledger_postings (entry);

CREATE INDEX ledger_postings_by_account ON ledger_postings (account, entry);

CREATE TABLE ledger_balances (
	account INTEGER NOT NULL, 
	high INTEGER NOT NULL, 
	low INTEGER NOT NULL, 
	PRIMARY KEY (account), 
	CHECK (typeof(high) = 'integer' AND typeof(low) = 'integer'), 
	FOREIGN KEY(account) REFERENCES ledger_accounts (id)
);

CREATE TABLE prices (
	id INTEGER NOT NULL, 
	unit INTEGER NOT NULL, 
	amount INTEGER NOT NULL, 
	project TEXT NOT NULL, 
	model TEXT NOT NULL, 
	version TEXT NOT NULL, 
	valid_from_ns INTEGER NOT NULL, 
	create_us INTEGER NOT NULL, 
	PRIMARY KEY (id)
);

CREATE TABLE machine_prices (
	id INTEGER NOT NULL, 
	pool TEXT NOT NULL, 
	hourly_amount INTEGER NOT NULL, 
	machines INTEGER NOT NULL, 
	valid_from_ns INTEGER NOT NULL, 
	create_us INTEGER NOT NULL, 
	PRIMARY KEY (id)
);

CREATE TABLE spending (
	project TEXT NOT NULL, 
	month INTEGER NOT NULL, 
	amount INTEGER NOT NULL, 
	PRIMARY KEY (project, month), 
	CHECK (typeof(amount) = 'integer')
)
 WITHOUT ROWID

;

CREATE TABLE spending_alerts (
	project TEXT NOT NULL, 
	alert TEXT NOT NULL, 
	monthly_amount INTEGER NOT NULL, 
	percents TEXT NOT NULL, 
	webhook TEXT NOT NULL, 
	create_us INTEGER NOT NULL, 
	PRIMARY KEY (project, alert)
);

CREATE TABLE spending_notices (
	id INTEGER NOT NULL, 
	project TEXT NOT NULL, 
	alert TEXT NOT NULL, 
	month INTEGER NOT NULL, 
	percent INTEGER NOT NULL, 
	spent INTEGER NOT NULL, 
	monthly_amount INTEGER NOT NULL, 
	webhook TEXT NOT NULL, 
	create_us INTEGER NOT NULL, 
	deliver_us INTEGER, 
	PRIMARY KEY (id), 
	CONSTRAINT spending_notices_once UNIQUE (project, alert, month, percent)
);

CREATE INDEX spending_notices_undelivered ON spending_notices (id) WHERE deliver_us IS NULL AND webhook <> '';

CREATE TRIGGER usage_subjects_no_update BEFORE UPDATE ON usage_subjects BEGIN SELECT RAISE(ABORT, 'usage_subjects is append-only'); END;

CREATE TRIGGER usage_subjects_no_delete BEFORE DELETE ON usage_subjects BEGIN SELECT RAISE(ABORT, 'usage_subjects is append-only'); END;

CREATE TRIGGER usage_superseded_no_update BEFORE UPDATE ON usage_superseded BEGIN SELECT RAISE(ABORT, 'usage_superseded is append-only'); END;

CREATE TRIGGER usage_superseded_no_delete BEFORE DELETE ON usage_superseded BEGIN SELECT RAISE(ABORT, 'usage_superseded is append-only'); END;

CREATE TRIGGER ledger_accounts_no_update BEFORE UPDATE ON ledger_accounts BEGIN SELECT RAISE(ABORT, 'ledger_accounts is append-only'); END;

CREATE TRIGGER ledger_accounts_no_delete BEFORE DELETE ON ledger_accounts BEGIN SELECT RAISE(ABORT, 'ledger_accounts is append-only'); END;

CREATE TRIGGER ledger_entries_no_update BEFORE UPDATE ON ledger_entries BEGIN SELECT RAISE(ABORT, 'ledger_entries is append-only'); END;

CREATE TRIGGER ledger_entries_no_delete BEFORE DELETE ON ledger_entries BEGIN SELECT RAISE(ABORT, 'ledger_entries is append-only'); END;

CREATE TRIGGER ledger_postings_no_update BEFORE UPDATE ON ledger_postings BEGIN SELECT RAISE(ABORT, 'ledger_postings is append-only'); END;

CREATE TRIGGER ledger_postings_no_delete BEFORE DELETE ON ledger_postings BEGIN SELECT RAISE(ABORT, 'ledger_postings is append-only'); END;

CREATE TRIGGER prices_no_update BEFORE UPDATE ON prices BEGIN SELECT RAISE(ABORT, 'prices is append-only'); END;

CREATE TRIGGER prices_no_delete BEFORE DELETE ON prices BEGIN SELECT RAISE(ABORT, 'prices is append-only'); END;

CREATE TRIGGER machine_prices_no_update BEFORE UPDATE ON machine_prices BEGIN SELECT RAISE(ABORT, 'machine_prices is append-only'); END;

CREATE TRIGGER machine_prices_no_delete BEFORE DELETE ON machine_prices BEGIN SELECT RAISE(ABORT, 'machine_prices is append-only'); END;

CREATE TRIGGER usage_retention_no_update BEFORE UPDATE ON usage_retention BEGIN SELECT RAISE(ABORT, 'usage_retention is append-only'); END;

CREATE TRIGGER usage_retention_no_delete BEFORE DELETE ON usage_retention BEGIN SELECT RAISE(ABORT, 'usage_retention is append-only'); END;

CREATE TRIGGER usage_rows_no_update BEFORE UPDATE ON usage_rows BEGIN SELECT RAISE(ABORT, 'usage_rows is append-only'); END;

CREATE TRIGGER usage_rows_no_delete BEFORE DELETE ON usage_rows WHEN OLD.entry > (SELECT coalesce(max(upto_entry), 0) FROM usage_retention) BEGIN SELECT RAISE(ABORT, 'usage_rows are kept until retention drops them'); END;

CREATE TABLE budgets (
	uid VARCHAR NOT NULL, 
	project VARCHAR NOT NULL, 
	budget VARCHAR NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (uid)
);

CREATE UNIQUE INDEX budgets_by_name ON budgets (project, budget);

CREATE TABLE budget_accounts (
	uid VARCHAR NOT NULL, 
	window_start BIGINT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (uid, window_start), 
	FOREIGN KEY(uid) REFERENCES budgets (uid) ON DELETE CASCADE
);

INSERT INTO alembic_version VALUES ('0004');
