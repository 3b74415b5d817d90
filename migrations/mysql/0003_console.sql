-- People who sign in, what they work on beside releases, who signed what, and what replicas and probers saw.
-- As in 0001, every step can be run again.

-- +goose NO TRANSACTION
-- +goose Up

-- Local accounts have no issuer and no subject. folded is the login without case, by which it is found.
CREATE TABLE IF NOT EXISTS accounts (
    folded       VARCHAR(200) NOT NULL,
    login        VARCHAR(200) NOT NULL,
    name         VARCHAR(200) NOT NULL,
    roles        TEXT         NOT NULL, -- JSON
    issuer       VARCHAR(300),
    subject      VARCHAR(255),
    password     VARCHAR(500) NOT NULL, -- argon2id as a PHC string; empty: none
    secret       BLOB,                  -- of TOTP, encrypted as raw ids are
    step         BIGINT       NOT NULL, -- the last TOTP step that was used
    disabled     SMALLINT     NOT NULL,
    must_change  SMALLINT     NOT NULL,
    break_glass  SMALLINT     NOT NULL,
    armed        BIGINT,
    rev          BIGINT       NOT NULL, -- rises with each change
    epoch        BIGINT       NOT NULL, -- rises when all sessions end
    created      BIGINT       NOT NULL,
    last_sign_in BIGINT,
    CONSTRAINT one_login UNIQUE (folded),
    CONSTRAINT one_subject UNIQUE (issuer, subject),
    CONSTRAINT account_subject CHECK ((issuer IS NULL) = (subject IS NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A step that was used stays used: a code that was seen over a shoulder opens nothing.
DROP TRIGGER IF EXISTS accounts_update;
-- +goose StatementBegin
CREATE TRIGGER accounts_update BEFORE UPDATE ON accounts FOR EACH ROW BEGIN
    IF NEW.step < OLD.step OR NEW.rev < OLD.rev OR NEW.epoch < OLD.epoch THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'account_goes_back';
    END IF;
END;
-- +goose StatementEnd

-- Sessions of browsers, by a hash of what the browser holds.
CREATE TABLE IF NOT EXISTS sessions (
    hash    VARCHAR(100) NOT NULL PRIMARY KEY,
    data    LONGBLOB     NOT NULL,
    expires BIGINT       NOT NULL,
    KEY sessions_expires (expires)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Drafts, plans of grays, settings.
CREATE TABLE IF NOT EXISTS papers (
    kind    VARCHAR(64)  NOT NULL,
    id      VARCHAR(200) NOT NULL,
    rev     BIGINT       NOT NULL, -- rises by one with each change
    state   VARCHAR(64)  NOT NULL,
    author  VARCHAR(200) NOT NULL, -- who began it
    created BIGINT       NOT NULL,
    changed BIGINT       NOT NULL,
    body    LONGTEXT     NOT NULL, -- JSON
    PRIMARY KEY (kind, id),
    KEY papers_state (kind, state, changed),
    KEY papers_changed (kind, changed)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What second people signed; digest is that of what they saw.
CREATE TABLE IF NOT EXISTS approvals (
    kind          VARCHAR(64)   NOT NULL,
    id            VARCHAR(200)  NOT NULL,
    digest        BINARY(32)    NOT NULL,
    author        VARCHAR(200)  NOT NULL,
    approver      VARCHAR(200)  NOT NULL,
    at            BIGINT        NOT NULL,
    reason        VARCHAR(2000) NOT NULL,
    four_eyes_off SMALLINT      NOT NULL DEFAULT 0, -- exists for SQLite; here two people always
    PRIMARY KEY (kind, id, digest, approver),
    KEY approvals_at (kind, at),
    CONSTRAINT approvals_four_eyes CHECK (four_eyes_off = 0),
    CONSTRAINT approvals_self_approval CHECK (LOWER(approver) <> LOWER(author))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

DROP TRIGGER IF EXISTS approvals_update;
CREATE TRIGGER approvals_update BEFORE UPDATE ON approvals FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'append_only';

DROP TRIGGER IF EXISTS approvals_delete;
CREATE TRIGGER approvals_delete BEFORE DELETE ON approvals FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'append_only';

-- Answers that a replica gave in a minute. id is a hash of all that stands between it and n: together the texts are
-- longer than a key may be.
CREATE TABLE IF NOT EXISTS counters (
    minute   BIGINT       NOT NULL,
    id       BINARY(32)   NOT NULL,
    replica  VARCHAR(200) NOT NULL,
    boot     VARCHAR(200) NOT NULL,
    app      VARCHAR(200) NOT NULL,
    region   VARCHAR(200) NOT NULL,
    endpoint VARCHAR(300) NOT NULL,
    policy   VARCHAR(200) NOT NULL,
    reason   VARCHAR(200) NOT NULL,
    number   BIGINT       NOT NULL, -- of the release
    n        BIGINT       NOT NULL,
    PRIMARY KEY (minute, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The same by the hour, of all replicas together.
CREATE TABLE IF NOT EXISTS counter_hours (
    minute   BIGINT       NOT NULL, -- the first of the hour
    id       BINARY(32)   NOT NULL,
    app      VARCHAR(200) NOT NULL,
    region   VARCHAR(200) NOT NULL,
    endpoint VARCHAR(300) NOT NULL,
    policy   VARCHAR(200) NOT NULL,
    reason   VARCHAR(200) NOT NULL,
    number   BIGINT       NOT NULL,
    n        BIGINT       NOT NULL,
    PRIMARY KEY (minute, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Minutes before this one belong to counter_hours, and no more are taken. Whoever adds minutes shares this row;
-- whoever moves them to their hours has it alone.
CREATE TABLE IF NOT EXISTS counter_line (
    id     SMALLINT NOT NULL PRIMARY KEY,
    minute BIGINT   NOT NULL,
    CONSTRAINT one_line CHECK (id = 1)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

INSERT IGNORE INTO counter_line (id, minute) VALUES (1, 0);

-- What each prober knows of each host.
CREATE TABLE IF NOT EXISTS probes (
    host   VARCHAR(253) NOT NULL,
    prober VARCHAR(200) NOT NULL,
    last   BIGINT       NOT NULL,
    body   LONGTEXT     NOT NULL, -- JSON
    PRIMARY KEY (host, prober)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The audit trail is read by one of its columns, the newest first. Each index also has what it may be narrowed by
-- further, so that a search looks at rows only to show them.
SET @dispatch_step = IF(
    EXISTS (SELECT 1 FROM information_schema.statistics
            WHERE table_schema = DATABASE() AND table_name = 'audit' AND index_name = 'audit_actor'),
    'DO 0', 'ALTER TABLE audit ADD KEY audit_at (at), ADD KEY audit_actor (actor, at, seq, action, target),
        ADD KEY audit_action (action, at, seq, actor, target), ADD KEY audit_target (target, at, seq, actor, action),
        ADD KEY audit_stream (stream, at, seq, action, actor), ADD KEY audit_number (number, at)');
PREPARE dispatch_step FROM @dispatch_step;
EXECUTE dispatch_step;
DEALLOCATE PREPARE dispatch_step;

SET @dispatch_step = IF(
    EXISTS (SELECT 1 FROM information_schema.statistics
            WHERE table_schema = DATABASE() AND table_name = 'releases' AND index_name = 'releases_action'),
    'DO 0', 'ALTER TABLE releases ADD KEY releases_action (stream, action, created), ADD KEY releases_digest (digest)');
PREPARE dispatch_step FROM @dispatch_step;
EXECUTE dispatch_step;
DEALLOCATE PREPARE dispatch_step;
