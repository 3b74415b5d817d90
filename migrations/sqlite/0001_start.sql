-- Times are microseconds since 1970 in UTC. Digests and hashes are 32 raw bytes.
-- The message of each RAISE and the name of each CHECK is a stable code that store/errors.go translates.

-- +goose Up

-- A stream's head is its highest number. number, parent: 2^53-1 is the largest integer that JSON carries.
CREATE TABLE releases (
    stream    TEXT    NOT NULL CHECK (stream <> ''),
    number    INTEGER NOT NULL,
    parent    INTEGER NOT NULL, -- the head before; 0 for the first of a stream
    created   INTEGER NOT NULL,
    action    TEXT    NOT NULL,
    actor     TEXT    NOT NULL,
    reason    TEXT    NOT NULL,
    digest    BLOB    NOT NULL, -- SHA-256 of manifest
    manifest  BLOB    NOT NULL, -- the exact bytes that were signed
    signature TEXT    NOT NULL,
    PRIMARY KEY (stream, number),
    CONSTRAINT one_child UNIQUE (stream, parent),
    CONSTRAINT release_number CHECK (number > parent AND number <= 9007199254740991 AND parent >= 0),
    CONSTRAINT number_jump CHECK (parent = 0 OR number - parent <= 100000)
) STRICT;

-- +goose StatementBegin
CREATE TRIGGER releases_insert BEFORE INSERT ON releases BEGIN
    SELECT RAISE(ABORT, 'stale_base')
    WHERE NEW.parent <> (SELECT COALESCE(MAX(number), 0) FROM releases WHERE stream = NEW.stream);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER releases_update BEFORE UPDATE ON releases BEGIN SELECT RAISE(ABORT, 'append_only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER releases_delete BEFORE DELETE ON releases BEGIN SELECT RAISE(ABORT, 'append_only'); END;
-- +goose StatementEnd

CREATE TABLE hosts (
    host          TEXT    NOT NULL PRIMARY KEY,
    proposer      TEXT    NOT NULL,
    proposed      INTEGER NOT NULL,
    reason        TEXT    NOT NULL,
    approver      TEXT,
    approved      INTEGER,
    four_eyes_off INTEGER NOT NULL DEFAULT 0 CHECK (four_eyes_off IN (0, 1)), -- 1: one person approved their own
    CONSTRAINT self_approval CHECK (approver IS NULL OR lower(approver) <> lower(proposer) OR four_eyes_off = 1),
    CONSTRAINT host_approval CHECK ((approver IS NULL) = (approved IS NULL))
) STRICT;

-- +goose StatementBegin
CREATE TRIGGER hosts_insert BEFORE INSERT ON hosts WHEN NEW.approver IS NOT NULL BEGIN
    SELECT RAISE(ABORT, 'host_approval');
END;
-- +goose StatementEnd
-- A row changes once, when it is approved. To change it again, revoke and propose it anew.
-- +goose StatementBegin
CREATE TRIGGER hosts_update BEFORE UPDATE ON hosts
WHEN OLD.approver IS NOT NULL OR NEW.host <> OLD.host OR NEW.proposer <> OLD.proposer
  OR NEW.proposed <> OLD.proposed OR NEW.reason <> OLD.reason BEGIN
    SELECT RAISE(ABORT, 'host_approval');
END;
-- +goose StatementEnd

-- The hosts that a release may send people to.
CREATE TABLE release_hosts (
    stream TEXT    NOT NULL,
    number INTEGER NOT NULL,
    host   TEXT    NOT NULL,
    PRIMARY KEY (stream, number, host),
    FOREIGN KEY (stream, number) REFERENCES releases (stream, number)
) STRICT, WITHOUT ROWID;

-- +goose StatementBegin
CREATE TRIGGER release_hosts_insert BEFORE INSERT ON release_hosts BEGIN
    SELECT RAISE(ABORT, 'unapproved_host')
    WHERE NOT EXISTS (SELECT 1 FROM hosts WHERE host = NEW.host AND approver IS NOT NULL);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER release_hosts_update BEFORE UPDATE ON release_hosts BEGIN SELECT RAISE(ABORT, 'append_only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER release_hosts_delete BEFORE DELETE ON release_hosts BEGIN SELECT RAISE(ABORT, 'append_only'); END;
-- +goose StatementEnd

-- The signed domain records of a release; each renewal has a higher seq.
CREATE TABLE record_sets (
    stream    TEXT    NOT NULL,
    number    INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    created   INTEGER NOT NULL,
    bytes     BLOB    NOT NULL,
    signature TEXT    NOT NULL,
    PRIMARY KEY (stream, number, seq),
    FOREIGN KEY (stream, number) REFERENCES releases (stream, number)
) STRICT;

-- +goose StatementBegin
CREATE TRIGGER record_sets_insert BEFORE INSERT ON record_sets BEGIN
    SELECT RAISE(ABORT, 'stale_seq')
    WHERE NEW.seq <= (SELECT MAX(seq) FROM record_sets WHERE stream = NEW.stream AND number = NEW.number);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER record_sets_update BEFORE UPDATE ON record_sets BEGIN SELECT RAISE(ABORT, 'append_only'); END;
-- +goose StatementEnd
-- The newest set of a release stays; what it superseded may go.
-- +goose StatementBegin
CREATE TRIGGER record_sets_delete BEFORE DELETE ON record_sets BEGIN
    SELECT RAISE(ABORT, 'append_only')
    WHERE OLD.seq >= (SELECT MAX(seq) FROM record_sets WHERE stream = OLD.stream AND number = OLD.number);
END;
-- +goose StatementEnd

-- List indexes, chunks and tables by digest. A large one is cut into parts, because a database server
-- limits one statement (MariaDB: 16 MiB). All parts are written by one transaction.
CREATE TABLE blobs (
    digest  BLOB    NOT NULL,
    part    INTEGER NOT NULL,
    created INTEGER NOT NULL,
    bytes   BLOB    NOT NULL,
    sealed  BLOB, -- part 0 only: the raw ids of a list chunk, encrypted
    PRIMARY KEY (digest, part)
) STRICT;

-- Also stops INSERT OR REPLACE, which in SQLite fires no delete trigger.
-- +goose StatementBegin
CREATE TRIGGER blobs_insert BEFORE INSERT ON blobs BEGIN
    SELECT RAISE(ABORT, 'append_only')
    WHERE EXISTS (SELECT 1 FROM blobs WHERE digest = NEW.digest AND part = NEW.part);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER blobs_update BEFORE UPDATE ON blobs
WHEN NEW.digest <> OLD.digest OR NEW.part <> OLD.part OR NEW.bytes <> OLD.bytes BEGIN
    SELECT RAISE(ABORT, 'append_only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER blobs_delete BEFORE DELETE ON blobs BEGIN SELECT RAISE(ABORT, 'append_only'); END;
-- +goose StatementEnd

-- The end of the audit chain. Every change locks this row, so changes are serial.
CREATE TABLE audit_head (
    id   INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    seq  INTEGER NOT NULL,
    hash BLOB    NOT NULL
) STRICT;

INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, zeroblob(32));

CREATE TABLE audit (
    seq     INTEGER NOT NULL PRIMARY KEY,
    at      INTEGER NOT NULL,
    actor   TEXT    NOT NULL,
    action  TEXT    NOT NULL,
    target  TEXT    NOT NULL,
    reason  TEXT    NOT NULL,
    details TEXT    NOT NULL, -- JSON, byte for byte as it was hashed
    stream  TEXT,
    number  INTEGER,
    prev    BLOB    NOT NULL,
    hash    BLOB    NOT NULL
) STRICT;

CREATE INDEX audit_release ON audit (stream, number);

-- +goose StatementBegin
CREATE TRIGGER audit_insert BEFORE INSERT ON audit BEGIN
    SELECT RAISE(ABORT, 'audit_chain')
    WHERE NOT EXISTS (SELECT 1 FROM audit_head WHERE seq + 1 = NEW.seq AND hash = NEW.prev);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_insert_head AFTER INSERT ON audit BEGIN
    UPDATE audit_head SET seq = NEW.seq, hash = NEW.hash;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'append_only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'append_only'); END;
-- +goose StatementEnd

CREATE TABLE tokens (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    name      TEXT    NOT NULL,
    role      TEXT    NOT NULL,
    sha256    BLOB    NOT NULL UNIQUE,
    created   INTEGER NOT NULL,
    expires   INTEGER,
    revoked   INTEGER,
    last_used INTEGER
) STRICT;

-- Answers to writes by the caller's Idempotency-Key.
CREATE TABLE idempotency (
    actor    TEXT    NOT NULL,
    idem_key TEXT    NOT NULL,
    request  BLOB    NOT NULL, -- SHA-256 of the request
    status   INTEGER NOT NULL,
    response BLOB    NOT NULL,
    created  INTEGER NOT NULL,
    CONSTRAINT idempotency_key UNIQUE (actor, idem_key)
) STRICT;

CREATE INDEX idempotency_created ON idempotency (created);
