BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0003');
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
INSERT INTO "api_keys" VALUES('8967c662194ab0110f4b50f367db3c03','default','E3NWC-zLCRHsBSuxAWtF0Y9wn3vTxOa8d5Lp3pU-uIs','admin','1796069038452508-8967c662194ab0110f4b50f367db3c03',1827691438000000,NULL,0,'{"name":{"project":"default","key":"8967c662194ab0110f4b50f367db3c03"},"kid":"E3NWC-zLCRHsBSuxAWtF0Y9wn3vTxOa8d5Lp3pU-uIs","role":"admin","endpoints":["*"],"create_time":"2026-11-30T20:03:58.452508Z","expire_time":"2027-12-01T20:03:58Z","label":"first admin","tags":{},"limits":{"requests_per_second":0.0,"burst":0,"concurrent_requests":0,"shadow":false},"revoke_time":null,"successor":null}');
INSERT INTO "api_keys" VALUES('1c10ac73f3e2dd9b8fdbbaf4a4462003','research','E3NWC-zLCRHsBSuxAWtF0Y9wn3vTxOa8d5Lp3pU-uIs','caller','1796069054930218-1c10ac73f3e2dd9b8fdbbaf4a4462003',1803845054000000,NULL,0,'{"name":{"project":"research","key":"1c10ac73f3e2dd9b8fdbbaf4a4462003"},"kid":"E3NWC-zLCRHsBSuxAWtF0Y9wn3vTxOa8d5Lp3pU-uIs","role":"caller","endpoints":["affine"],"create_time":"2026-11-30T20:04:14.930218Z","expire_time":"2027-02-28T20:04:14Z","label":"","tags":{},"limits":{"requests_per_second":0.0,"burst":0,"concurrent_requests":0,"shadow":false},"revoke_time":null,"successor":null}');
INSERT INTO "api_keys" VALUES('07c920d296cca8141716f450127803d8','sales','E3NWC-zLCRHsBSuxAWtF0Y9wn3vTxOa8d5Lp3pU-uIs','caller','1796069056735183-07c920d296cca8141716f450127803d8',1803845056000000,1796069104291448,1,'{"name":{"project":"sales","key":"07c920d296cca8141716f450127803d8"},"kid":"E3NWC-zLCRHsBSuxAWtF0Y9wn3vTxOa8d5Lp3pU-uIs","role":"caller","endpoints":["*"],"create_time":"2026-11-30T20:04:16.735183Z","expire_time":"2027-02-28T20:04:16Z","label":"","tags":{},"limits":{"requests_per_second":0.0,"burst":0,"concurrent_requests":0,"shadow":false},"revoke_time":"2026-11-30T20:05:04.291448Z","successor":null}');
CREATE TABLE budget_accounts (
	uid VARCHAR NOT NULL, 
	window_start BIGINT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (uid, window_start), 
	FOREIGN KEY(uid) REFERENCES budgets (uid) ON DELETE CASCADE
);
INSERT INTO "budget_accounts" VALUES('f78ba7d15fd99cb9',1795996800,'{"uid":"f78ba7d15fd99cb9","window_start":1795996800,"settled":7,"lost":0,"refused":0,"alerted":0,"leases":{},"closed":{"default-023401cb":41}}');
CREATE TABLE budgets (
	uid VARCHAR NOT NULL, 
	project VARCHAR NOT NULL, 
	budget VARCHAR NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (uid)
);
INSERT INTO "budgets" VALUES('f78ba7d15fd99cb9','research','daily','{"uid":"f78ba7d15fd99cb9","name":{"project":"research","budget":"daily"},"unit":2,"amount":1000,"window":2,"key":"","endpoint":"","shadow":false,"stop_streams":false,"alert_percents":[],"create_time":"2026-11-30T20:04:22.825560Z"}');
CREATE TABLE ledger_accounts (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (name)
);
INSERT INTO "ledger_accounts" VALUES(1,'projects/research/usage');
INSERT INTO "ledger_accounts" VALUES(2,'revenue/request');
INSERT INTO "ledger_accounts" VALUES(3,'revenue/compute_second');
INSERT INTO "ledger_accounts" VALUES(4,'revenue/row');
INSERT INTO "ledger_accounts" VALUES(5,'projects/sales/usage');
INSERT INTO "ledger_accounts" VALUES(6,'projects/research/credits');
INSERT INTO "ledger_accounts" VALUES(7,'credits');
INSERT INTO "ledger_accounts" VALUES(8,'corrections');
CREATE TABLE ledger_balances (
	account INTEGER NOT NULL, 
	high INTEGER NOT NULL, 
	low INTEGER NOT NULL, 
	PRIMARY KEY (account), 
	CHECK (typeof(high) = 'integer' AND typeof(low) = 'integer'), 
	FOREIGN KEY(account) REFERENCES ledger_accounts (id)
);
INSERT INTO "ledger_balances" VALUES(1,584000,0);
INSERT INTO "ledger_balances" VALUES(2,-16000,0);
INSERT INTO "ledger_balances" VALUES(3,0,0);
INSERT INTO "ledger_balances" VALUES(4,-90000,0);
INSERT INTO "ledger_balances" VALUES(5,22000,0);
INSERT INTO "ledger_balances" VALUES(6,-5000000,0);
INSERT INTO "ledger_balances" VALUES(7,5000000,0);
INSERT INTO "ledger_balances" VALUES(8,-500000,0);
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
INSERT INTO "ledger_entries" VALUES(1,4,1796069058680792,'prices/1 row 10000000000 project='''' model=''affine'' version='''' valid_from_ns=1796069058680792000 made=2026-11-30T20:04:18.680792+00:00',0,NULL,0,0,0,0,0,0,X'',X'BEF075B226CF68A8C1AB0D5DEB4418F47741EAB05ABCB3EE1F5CEB03E84E3554');
INSERT INTO "ledger_entries" VALUES(2,4,1796069060798987,'prices/2 request 2000000000 project='''' model='''' version='''' valid_from_ns=1796069060798987000 made=2026-11-30T20:04:20.798987+00:00',0,NULL,0,0,0,0,0,0,X'',X'DEE215C156DE0120D4A1A6A96B4D0E988533C44AD9BBD7997A8AB22A6704AC15');
INSERT INTO "ledger_entries" VALUES(3,1,1796069065874635,'',0,NULL,1,0,1,3,2,26,X'6793067070AD4D75D685F674400D400B5AD977B7B09740A06963DA6CB355CBF9',X'8BBE4E1379FBCB49D9E327259DD0196AC981EE0E9ACB11A6830E817C3ACF80C4');
INSERT INTO "ledger_entries" VALUES(4,1,1796069065896971,'',0,NULL,1,3,4,2,2,26,X'61BACA0C7C3C065FE2A63688BF9AF512493015D31F424A99471ABFE9D12C087A',X'BDDBF2767C03975F7024E415C94A913D0C778C76117C828593B3C6512094E01C');
INSERT INTO "ledger_entries" VALUES(5,1,1796069066029691,'',0,NULL,1,5,6,2,2,26,X'3D97BA9EA796F2FF0CBB44B00A3CA5E46E08EDCF03D86B2B36B6BB18DC903AD5',X'A665F6092C30AFC9FF259E60A17C4D358F2467F03D1127ED603A43BCC62B8928');
INSERT INTO "ledger_entries" VALUES(6,1,1796069067196268,'',0,NULL,1,7,8,1,2,26,X'FF52C65B0DB8646638C5D2EE4F861A83FE8B9956AD8694520E0D433063475629',X'F6A58077F90637705838CAEB67773E208762EC4CE25DF974FE013A4BAA28D61F');
INSERT INTO "ledger_entries" VALUES(7,2,1796069070004808,'a gift',0,'projects/research/7b0a1842-a570-4dfc-bb44-17dea44d0d85',0,0,0,0,0,0,X'',X'A44BE6112299D9B7A2C0DC77B7EA901E673D9EBCEDBAE38B7973729D07640C0B');
INSERT INTO "ledger_entries" VALUES(8,3,1796069075199351,'an error',0,'projects/research/5386a0e5-95c5-44b8-90f9-1dc8d431c143',0,0,0,0,0,0,X'',X'A5EFA6E71C8ED38C31BC35655213015B8F008062D54F2BC0E5A078BEC96E1CBE');
INSERT INTO "ledger_entries" VALUES(9,4,1796069080661870,'machinePrices/1 default 1800000000000 machines=1 valid_from_ns=1796069080661870000 made=2026-11-30T20:04:40.661870+00:00',0,NULL,0,0,0,0,0,0,X'',X'564515DDB9FF81A2115C26078872106114AE62E7DF7E35ABF6EBE2AC21BB3EC8');
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
INSERT INTO "ledger_postings" VALUES(1,3,1,6000000000,3,1,2,1);
INSERT INTO "ledger_postings" VALUES(2,3,1,0,3017,5,0,1);
INSERT INTO "ledger_postings" VALUES(3,3,1,30000000000,3,6,1,1);
INSERT INTO "ledger_postings" VALUES(4,3,2,-6000000000,-3,1,0,0);
INSERT INTO "ledger_postings" VALUES(5,3,3,0,-3017,5,0,0);
INSERT INTO "ledger_postings" VALUES(6,3,4,-30000000000,-3,6,0,0);
INSERT INTO "ledger_postings" VALUES(7,4,1,4000000000,2,1,2,1);
INSERT INTO "ledger_postings" VALUES(8,4,1,0,593,5,0,1);
INSERT INTO "ledger_postings" VALUES(9,4,1,20000000000,2,6,1,1);
INSERT INTO "ledger_postings" VALUES(10,4,2,-4000000000,-2,1,0,0);
INSERT INTO "ledger_postings" VALUES(11,4,3,0,-593,5,0,0);
INSERT INTO "ledger_postings" VALUES(12,4,4,-20000000000,-2,6,0,0);
INSERT INTO "ledger_postings" VALUES(13,5,1,4000000000,2,1,2,1);
INSERT INTO "ledger_postings" VALUES(14,5,1,0,541,5,0,1);
INSERT INTO "ledger_postings" VALUES(15,5,1,20000000000,2,6,1,1);
INSERT INTO "ledger_postings" VALUES(16,5,2,-4000000000,-2,1,0,0);
INSERT INTO "ledger_postings" VALUES(17,5,3,0,-541,5,0,0);
INSERT INTO "ledger_postings" VALUES(18,5,4,-20000000000,-2,6,0,0);
INSERT INTO "ledger_postings" VALUES(19,6,5,2000000000,1,1,2,3);
INSERT INTO "ledger_postings" VALUES(20,6,5,0,230,5,0,3);
INSERT INTO "ledger_postings" VALUES(21,6,5,20000000000,2,6,1,3);
INSERT INTO "ledger_postings" VALUES(22,6,2,-2000000000,-1,1,0,0);
INSERT INTO "ledger_postings" VALUES(23,6,3,0,-230,5,0,0);
INSERT INTO "ledger_postings" VALUES(24,6,4,-20000000000,-2,6,0,0);
INSERT INTO "ledger_postings" VALUES(25,7,6,-5000000000000,0,0,0,0);
INSERT INTO "ledger_postings" VALUES(26,7,7,5000000000000,0,0,0,0);
INSERT INTO "ledger_postings" VALUES(27,8,1,500000000000,0,0,0,0);
INSERT INTO "ledger_postings" VALUES(28,8,8,-500000000000,0,0,0,0);
CREATE TABLE machine_prices (
	id INTEGER NOT NULL, 
	pool TEXT NOT NULL, 
	hourly_amount INTEGER NOT NULL, 
	machines INTEGER NOT NULL, 
	valid_from_ns INTEGER NOT NULL, 
	create_us INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "machine_prices" VALUES(1,'default',1800000000000,1,1796069080661870000,1796069080661870);
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
INSERT INTO "prices" VALUES(1,6,10000000000,'','affine','',1796069058680792000,1796069058680792);
INSERT INTO "prices" VALUES(2,1,2000000000,'','','',1796069060798987000,1796069060798987);
CREATE TABLE projects (
	id VARCHAR NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "projects" VALUES('default','{"display_name":"","tags":{},"limits":{"requests_per_second":0.0,"burst":0,"concurrent_requests":0,"shadow":false},"disabled":false,"name":{"project":"default"},"create_time":"2026-11-30T20:03:58.445988Z"}');
INSERT INTO "projects" VALUES('research','{"display_name":"","tags":{"team":"research"},"limits":{"requests_per_second":200.0,"burst":0,"concurrent_requests":0,"shadow":false},"disabled":false,"name":{"project":"research"},"create_time":"2026-11-30T20:04:11.797272Z"}');
INSERT INTO "projects" VALUES('sales','{"display_name":"","tags":{"team":"sales"},"limits":{"requests_per_second":0.0,"burst":0,"concurrent_requests":0,"shadow":false},"disabled":false,"name":{"project":"sales"},"create_time":"2026-11-30T20:04:13.338086Z"}');
CREATE TABLE signing_keys (
	kid VARCHAR NOT NULL, 
	create_us BIGINT NOT NULL, 
	retire_us BIGINT, 
	body TEXT NOT NULL, 
	PRIMARY KEY (kid)
);
INSERT INTO "signing_keys" VALUES('E3NWC-zLCRHsBSuxAWtF0Y9wn3vTxOa8d5Lp3pU-uIs',1796069038428211,1827691477559216,'{"kid":"E3NWC-zLCRHsBSuxAWtF0Y9wn3vTxOa8d5Lp3pU-uIs","jwk":"{\"crv\": \"Ed25519\", \"kty\": \"OKP\", \"x\": \"g9FcZlke5HiN1ZpEA3P8HwXly2wGLiwJ9tJKd88FNDc\", \"kid\": \"E3NWC-zLCRHsBSuxAWtF0Y9wn3vTxOa8d5Lp3pU-uIs\", \"alg\": \"EdDSA\", \"use\": \"sig\"}","create_time":"2026-11-30T20:03:58.428211Z","retire_time":"2027-12-01T20:04:37.559216Z"}');
INSERT INTO "signing_keys" VALUES('3Pcd0i2eUaWyaXug6Q0glRAGQZ8ApdBeB1pdZ78XtLk',1796069077559216,NULL,'{"kid":"3Pcd0i2eUaWyaXug6Q0glRAGQZ8ApdBeB1pdZ78XtLk","jwk":"{\"crv\": \"Ed25519\", \"kty\": \"OKP\", \"x\": \"Rs-zvgWaT2MQfN2M68l7fF_otY-p9-1uHZIHYlGYoVg\", \"kid\": \"3Pcd0i2eUaWyaXug6Q0glRAGQZ8ApdBeB1pdZ78XtLk\", \"alg\": \"EdDSA\", \"use\": \"sig\"}","create_time":"2026-11-30T20:04:37.559216Z","retire_time":null}');
CREATE TABLE spending (
	project TEXT NOT NULL, 
	month INTEGER NOT NULL, 
	amount INTEGER NOT NULL, 
	PRIMARY KEY (project, month), 
	CHECK (typeof(amount) = 'integer')
)
 WITHOUT ROWID

;
INSERT INTO "spending" VALUES('research',498192,84000000000);
INSERT INTO "spending" VALUES('sales',498192,22000000000);
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
INSERT INTO "usage_family_rollups" VALUES(1,498908,2,7,7,0,0,0,0,0,0,0,7,518,1393,0,0,4151081,369274,11140190,0,0,84000000000);
INSERT INTO "usage_family_rollups" VALUES(1,498908,4,1,1,0,0,0,0,0,0,0,2,82,235,0,0,229999,72313,1129493,0,0,22000000000);
INSERT INTO "usage_family_rollups" VALUES(2,498888,2,7,7,0,0,0,0,0,0,0,7,518,1393,0,0,4151081,369274,11140190,0,0,84000000000);
INSERT INTO "usage_family_rollups" VALUES(2,498888,4,1,1,0,0,0,0,0,0,0,2,82,235,0,0,229999,72313,1129493,0,0,22000000000);
INSERT INTO "usage_family_rollups" VALUES(3,498192,2,7,7,0,0,0,0,0,0,0,7,518,1393,0,0,4151081,369274,11140190,0,0,84000000000);
INSERT INTO "usage_family_rollups" VALUES(3,498192,4,1,1,0,0,0,0,0,0,0,2,82,235,0,0,229999,72313,1129493,0,0,22000000000);
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
INSERT INTO "usage_rollups" VALUES(1,498908,1,7,7,0,0,0,0,0,0,0,7,518,1393,0,0,4151081,369274,11140190,0,0,84000000000);
INSERT INTO "usage_rollups" VALUES(1,498908,3,1,1,0,0,0,0,0,0,0,2,82,235,0,0,229999,72313,1129493,0,0,22000000000);
INSERT INTO "usage_rollups" VALUES(2,498888,1,7,7,0,0,0,0,0,0,0,7,518,1393,0,0,4151081,369274,11140190,0,0,84000000000);
INSERT INTO "usage_rollups" VALUES(2,498888,3,1,1,0,0,0,0,0,0,0,2,82,235,0,0,229999,72313,1129493,0,0,22000000000);
INSERT INTO "usage_rollups" VALUES(3,498192,1,7,7,0,0,0,0,0,0,0,7,518,1393,0,0,4151081,369274,11140190,0,0,84000000000);
INSERT INTO "usage_rollups" VALUES(3,498192,3,1,1,0,0,0,0,0,0,0,2,82,235,0,0,229999,72313,1129493,0,0,22000000000);
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
INSERT INTO "usage_rows" VALUES(1,3,1,X'E9AAF002290641B787A510DC4D9DCB5C',0,1,1,1796069065665607184,3746459,96349,2579466,0,0,0,1,74,199,0,0,209089958,0);
INSERT INTO "usage_rows" VALUES(2,3,1,X'4534A7132B9D492CB5419B84E0EC4F05',0,1,1,1796069065708691255,931334,47287,245768,0,0,0,1,74,199,0,0,209089958,0);
INSERT INTO "usage_rows" VALUES(3,3,1,X'E8B0D2CC60454E508951FD1AED9F4B4B',0,1,1,1796069065750583507,972001,36338,191537,0,0,0,1,74,199,0,0,209089958,0);
INSERT INTO "usage_rows" VALUES(4,4,1,X'F810DB9831CA421682FA64832BFBC72E',0,1,1,1796069065771700816,1279864,46476,373395,0,0,0,1,74,199,0,0,209089958,0);
INSERT INTO "usage_rows" VALUES(5,4,1,X'EF3002C0A27A4930985EFE4362F5CE1A',0,1,1,1796069065821673982,907720,50784,219789,0,0,0,1,74,199,0,0,209089958,0);
INSERT INTO "usage_rows" VALUES(6,5,1,X'4922A8E3C65D46FA863DCA3F2EA0E5E5',0,1,1,1796069065899047001,2479839,47649,374667,0,0,0,1,74,199,0,0,209089958,0);
INSERT INTO "usage_rows" VALUES(7,5,1,X'C3A4604308594A9A85DDA1C4727920CC',0,1,1,1796069065948167719,822973,44391,166459,0,0,0,1,74,199,0,0,209089958,0);
INSERT INTO "usage_rows" VALUES(8,6,3,X'5BD09F497D5745A1A82C6B3E6855E700',0,1,1,1796069066991597595,1129493,72313,229999,0,0,0,2,82,235,0,0,209089958,0);
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
INSERT INTO "usage_sources" VALUES(1,'c2ddf28aef46d30dbe1a02bde9af6a08','default-023401cb','default',8,1796069067196268);
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
INSERT INTO "usage_subjects" VALUES(1,'research','1c10ac73f3e2dd9b8fdbbaf4a4462003','affine','affine','1','08cea39690105bce6f1a12e2cfcb65ff45da09da723e74995d68e0a949d97047',1,'default');
INSERT INTO "usage_subjects" VALUES(2,'research','','affine','affine','1','',1,'default');
INSERT INTO "usage_subjects" VALUES(3,'sales','07c920d296cca8141716f450127803d8','affine','affine','1','08cea39690105bce6f1a12e2cfcb65ff45da09da723e74995d68e0a949d97047',1,'default');
INSERT INTO "usage_subjects" VALUES(4,'sales','','affine','affine','1','',1,'default');
CREATE TABLE usage_superseded (
	"row" INTEGER NOT NULL, 
	winner INTEGER NOT NULL, 
	attempts INTEGER NOT NULL, 
	entry INTEGER NOT NULL, 
	PRIMARY KEY ("row")
);
CREATE TABLE usage_telemetry (
	"row" INTEGER NOT NULL, 
	fingerprint BLOB NOT NULL, 
	input_characters INTEGER NOT NULL, 
	output_characters INTEGER NOT NULL, 
	scores TEXT NOT NULL, 
	PRIMARY KEY ("row")
);
CREATE UNIQUE INDEX api_keys_in_order ON api_keys (sort_key);
CREATE INDEX api_keys_of_project ON api_keys (project, sort_key);
CREATE INDEX api_keys_in_policy ON api_keys (in_policy, sort_key);
CREATE INDEX usage_rows_plain ON usage_rows (slot, request_id) WHERE odd = 0;
CREATE INDEX usage_rows_odd ON usage_rows (request_id) WHERE odd = 1;
CREATE INDEX usage_superseded_by_winner ON usage_superseded (winner);
CREATE INDEX usage_superseded_by_entry ON usage_superseded (entry);
CREATE INDEX ledger_entries_by_row ON ledger_entries (first_row) WHERE row_count > 0;
CREATE INDEX ledger_entries_by_time ON ledger_entries (create_us);
CREATE INDEX ledger_postings_by_entry ON ledger_postings (entry);
CREATE INDEX ledger_postings_by_account ON ledger_postings (account, entry);
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
CREATE UNIQUE INDEX budgets_by_name ON budgets (project, budget);
COMMIT;
