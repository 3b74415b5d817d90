-- Times are microseconds since 1970 in UTC. Digests and hashes are 32 raw bytes.
-- The message of each SIGNAL and the name of each CHECK is a stable code that store/errors.go translates.
-- Every step can be run again: MySQL commits each statement by itself, so a run that dies leaves a part.
-- Nothing here is known to only one of MySQL 8 and MariaDB 10.11.

-- +goose NO TRANSACTION
-- +goose Up

-- A stream's head is its highest number. number, parent: 2^53-1 is the largest integer that JSON carries.
CREATE TABLE IF NOT EXISTS releases (
    stream    VARCHAR(100)  NOT NULL,
    number    BIGINT        NOT NULL,
    parent    BIGINT        NOT NULL, -- the head before; 0 for the first of a stream
    created   BIGINT        NOT NULL,
    action    VARCHAR(64)   NOT NULL,
    actor     VARCHAR(200)  NOT NULL,
    reason    VARCHAR(2000) NOT NULL,
    digest    BINARY(32)    NOT NULL, -- SHA-256 of manifest
    manifest  LONGBLOB      NOT NULL, -- the exact bytes that were signed
    signature TEXT          NOT NULL,
    PRIMARY KEY (stream, number),
    CONSTRAINT one_child UNIQUE (stream, parent),
    CONSTRAINT release_number CHECK (number > parent AND number <= 9007199254740991 AND parent >= 0),
    CONSTRAINT number_jump CHECK (parent = 0 OR number - parent <= 100000)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

DROP TRIGGER IF EXISTS releases_insert;
-- +goose StatementBegin
CREATE TRIGGER releases_insert BEFORE INSERT ON releases FOR EACH ROW BEGIN
    IF NEW.parent <> (SELECT COALESCE(MAX(number), 0) FROM releases WHERE stream = NEW.stream) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'stale_base';
    END IF;
END;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS releases_update;
CREATE TRIGGER releases_update BEFORE UPDATE ON releases FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'append_only';

DROP TRIGGER IF EXISTS releases_delete;
CREATE TRIGGER releases_delete BEFORE DELETE ON releases FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'append_only';

CREATE TABLE IF NOT EXISTS hosts (
    host          VARCHAR(253)  NOT NULL PRIMARY KEY,
    proposer      VARCHAR(200)  NOT NULL,
    proposed      BIGINT        NOT NULL,
    reason        VARCHAR(2000) NOT NULL,
    approver      VARCHAR(200),
    approved      BIGINT,
    four_eyes_off SMALLINT      NOT NULL DEFAULT 0, -- exists for SQLite; here two people always
    CONSTRAINT four_eyes CHECK (four_eyes_off = 0),
    CONSTRAINT self_approval CHECK (approver IS NULL OR LOWER(approver) <> LOWER(proposer)),
    CONSTRAINT host_approval CHECK ((approver IS NULL) = (approved IS NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

DROP TRIGGER IF EXISTS hosts_insert;
-- +goose StatementBegin
CREATE TRIGGER hosts_insert BEFORE INSERT ON hosts FOR EACH ROW BEGIN
    IF NEW.approver IS NOT NULL THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'host_approval';
    END IF;
END;
-- +goose StatementEnd

-- A row changes once, when it is approved. To change it again, revoke and propose it anew.
DROP TRIGGER IF EXISTS hosts_update;
-- +goose StatementBegin
CREATE TRIGGER hosts_update BEFORE UPDATE ON hosts FOR EACH ROW BEGIN
    IF OLD.approver IS NOT NULL OR NEW.host <> OLD.host OR NEW.proposer <> OLD.proposer
        OR NEW.proposed <> OLD.proposed OR NEW.reason <> OLD.reason THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'host_approval';
    END IF;
END;
-- +goose StatementEnd

-- The hosts that a release may send people to.
CREATE TABLE IF NOT EXISTS release_hosts (
    stream VARCHAR(100) NOT NULL,
    number BIGINT       NOT NULL,
    host   VARCHAR(253) NOT NULL,
    PRIMARY KEY (stream, number, host),
    CONSTRAINT release_hosts_release FOREIGN KEY (stream, number) REFERENCES releases (stream, number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

DROP TRIGGER IF EXISTS release_hosts_insert;
-- +goose StatementBegin
CREATE TRIGGER release_hosts_insert BEFORE INSERT ON release_hosts FOR EACH ROW BEGIN
    IF NOT EXISTS (SELECT 1 FROM hosts WHERE host = NEW.host AND approver IS NOT NULL) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'unapproved_host';
    END IF;
END;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS release_hosts_update;
CREATE TRIGGER release_hosts_update BEFORE UPDATE ON release_hosts FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'append_only';

DROP TRIGGER IF EXISTS release_hosts_delete;
CREATE TRIGGER release_hosts_delete BEFORE DELETE ON release_hosts FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'append_only';

-- The signed domain records of a release; each renewal has a higher seq.
CREATE TABLE IF NOT EXISTS record_sets (
    stream    VARCHAR(100) NOT NULL,
    number    BIGINT       NOT NULL,
    seq       BIGINT       NOT NULL,
    created   BIGINT       NOT NULL,
    bytes     LONGBLOB     NOT NULL,
    signature TEXT         NOT NULL,
    PRIMARY KEY (stream, number, seq),
    CONSTRAINT record_sets_release FOREIGN KEY (stream, number) REFERENCES releases (stream, number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

DROP TRIGGER IF EXISTS record_sets_insert;
-- +goose StatementBegin
CREATE TRIGGER record_sets_insert BEFORE INSERT ON record_sets FOR EACH ROW BEGIN
    IF NEW.seq <= (SELECT MAX(seq) FROM record_sets WHERE stream = NEW.stream AND number = NEW.number) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'stale_seq';
    END IF;
END;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS record_sets_update;
CREATE TRIGGER record_sets_update BEFORE UPDATE ON record_sets FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'append_only';

-- The newest set of a release stays; what it superseded may go.
DROP TRIGGER IF EXISTS record_sets_delete;
-- +goose StatementBegin
CREATE TRIGGER record_sets_delete BEFORE DELETE ON record_sets FOR EACH ROW BEGIN
    IF OLD.seq >= (SELECT MAX(seq) FROM record_sets WHERE stream = OLD.stream AND number = OLD.number) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'append_only';
    END IF;
END;
-- +goose StatementEnd

-- List indexes, chunks and tables by digest. A large one is cut into parts, because a database server
-- limits one statement (MariaDB: 16 MiB). All parts are written by one transaction.
CREATE TABLE IF NOT EXISTS blobs (
    digest  BINARY(32) NOT NULL,
    part    INT        NOT NULL,
    created BIGINT     NOT NULL,
    bytes   LONGBLOB   NOT NULL,
    sealed  LONGBLOB, -- part 0 only: the raw ids of a list chunk, encrypted
    PRIMARY KEY (digest, part)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

DROP TRIGGER IF EXISTS blobs_update;
-- +goose StatementBegin
CREATE TRIGGER blobs_update BEFORE UPDATE ON blobs FOR EACH ROW BEGIN
    IF NEW.digest <> OLD.digest OR NEW.part <> OLD.part OR NEW.bytes <> OLD.bytes THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'append_only';
    END IF;
END;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS blobs_delete;
CREATE TRIGGER blobs_delete BEFORE DELETE ON blobs FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'append_only';

-- The end of the audit chain. Every change locks this row, so changes are serial.
CREATE TABLE IF NOT EXISTS audit_head (
    id   SMALLINT   NOT NULL PRIMARY KEY,
    seq  BIGINT     NOT NULL,
    hash BINARY(32) NOT NULL,
    CONSTRAINT one_head CHECK (id = 1)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

INSERT IGNORE INTO audit_head (id, seq, hash) VALUES (1, 0, UNHEX(REPEAT('00', 32)));

CREATE TABLE IF NOT EXISTS audit (
    seq     BIGINT        NOT NULL PRIMARY KEY,
    at      BIGINT        NOT NULL,
    actor   VARCHAR(200)  NOT NULL,
    action  VARCHAR(64)   NOT NULL,
    target  VARCHAR(300)  NOT NULL,
    reason  VARCHAR(2000) NOT NULL,
    details LONGTEXT      NOT NULL, -- JSON, byte for byte as it was hashed; the type JSON would rewrite it
    stream  VARCHAR(100),
    number  BIGINT,
    prev    BINARY(32)    NOT NULL,
    hash    BINARY(32)    NOT NULL,
    KEY audit_release (stream, number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

DROP TRIGGER IF EXISTS audit_insert;
-- +goose StatementBegin
CREATE TRIGGER audit_insert BEFORE INSERT ON audit FOR EACH ROW BEGIN
    IF NOT EXISTS (SELECT 1 FROM audit_head WHERE seq + 1 = NEW.seq AND hash = NEW.prev) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'audit_chain';
    END IF;
END;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS audit_insert_head;
CREATE TRIGGER audit_insert_head AFTER INSERT ON audit FOR EACH ROW UPDATE audit_head SET seq = NEW.seq, hash = NEW.hash;

DROP TRIGGER IF EXISTS audit_update;
CREATE TRIGGER audit_update BEFORE UPDATE ON audit FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'append_only';

DROP TRIGGER IF EXISTS audit_delete;
CREATE TRIGGER audit_delete BEFORE DELETE ON audit FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'append_only';

CREATE TABLE IF NOT EXISTS tokens (
    id        BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name      VARCHAR(200) NOT NULL,
    role      VARCHAR(64)  NOT NULL,
    sha256    BINARY(32)   NOT NULL UNIQUE,
    created   BIGINT       NOT NULL,
    expires   BIGINT,
    revoked   BIGINT,
    last_used BIGINT
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Answers to writes by the caller's Idempotency-Key.
CREATE TABLE IF NOT EXISTS idempotency (
    actor    VARCHAR(200) NOT NULL,
    idem_key VARCHAR(200) NOT NULL,
    request  BINARY(32)   NOT NULL, -- SHA-256 of the request
    status   SMALLINT     NOT NULL,
    response LONGBLOB     NOT NULL,
    created  BIGINT       NOT NULL,
    CONSTRAINT idempotency_key UNIQUE (actor, idem_key),
    KEY idempotency_created (created)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
