-- People who sign in, what they work on beside releases, who signed what, and what replicas and probers saw.

-- +goose Up

-- Local accounts have no issuer and no subject. folded is the login without case, by which it is found.
CREATE TABLE accounts (
    folded       TEXT    NOT NULL,
    login        TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    roles        TEXT    NOT NULL, -- JSON
    issuer       TEXT,
    subject      TEXT,
    password     TEXT    NOT NULL, -- argon2id as a PHC string; empty: none
    secret       BLOB,             -- of TOTP, encrypted as raw ids are
    step         INTEGER NOT NULL, -- the last TOTP step that was used
    disabled     INTEGER NOT NULL,
    must_change  INTEGER NOT NULL,
    break_glass  INTEGER NOT NULL,
    armed        INTEGER,
    rev          INTEGER NOT NULL, -- rises with each change
    epoch        INTEGER NOT NULL, -- rises when all sessions end
    created      INTEGER NOT NULL,
    last_sign_in INTEGER,
    CONSTRAINT one_login UNIQUE (folded),
    CONSTRAINT one_subject UNIQUE (issuer, subject),
    CONSTRAINT account_subject CHECK ((issuer IS NULL) = (subject IS NULL))
) STRICT;

-- A step that was used stays used: a code that was seen over a shoulder opens nothing.
-- +goose StatementBegin
CREATE TRIGGER accounts_update BEFORE UPDATE ON accounts
WHEN NEW.step < OLD.step OR NEW.rev < OLD.rev OR NEW.epoch < OLD.epoch BEGIN
    SELECT RAISE(ABORT, 'account_goes_back');
END;
-- +goose StatementEnd

-- Sessions of browsers, by a hash of what the browser holds.
CREATE TABLE sessions (
    hash    TEXT    NOT NULL PRIMARY KEY,
    data    BLOB    NOT NULL,
    expires INTEGER NOT NULL
) STRICT;

CREATE INDEX sessions_expires ON sessions (expires);

-- Drafts, plans of grays, settings.
CREATE TABLE papers (
    kind    TEXT    NOT NULL,
    id      TEXT    NOT NULL,
    rev     INTEGER NOT NULL, -- rises by one with each change
    state   TEXT    NOT NULL,
    author  TEXT    NOT NULL, -- who began it
    created INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    body    TEXT    NOT NULL, -- JSON
    PRIMARY KEY (kind, id)
) STRICT;

CREATE INDEX papers_state ON papers (kind, state, changed);
CREATE INDEX papers_changed ON papers (kind, changed);

-- What second people signed; digest is that of what they saw.
CREATE TABLE approvals (
    kind          TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    digest        BLOB    NOT NULL,
    author        TEXT    NOT NULL,
    approver      TEXT    NOT NULL,
    at            INTEGER NOT NULL,
    reason        TEXT    NOT NULL,
    four_eyes_off INTEGER NOT NULL DEFAULT 0, -- 1: one person approved their own
    PRIMARY KEY (kind, id, digest, approver),
    CONSTRAINT approvals_four_eyes CHECK (four_eyes_off IN (0, 1)),
    CONSTRAINT approvals_self_approval CHECK (lower(approver) <> lower(author) OR four_eyes_off = 1)
) STRICT;

CREATE INDEX approvals_at ON approvals (kind, at);

-- Also stops INSERT OR REPLACE, which in SQLite fires no delete trigger.
-- +goose StatementBegin
CREATE TRIGGER approvals_insert BEFORE INSERT ON approvals BEGIN
    SELECT RAISE(ABORT, 'append_only')
    WHERE EXISTS (SELECT 1 FROM approvals WHERE kind = NEW.kind AND id = NEW.id AND digest = NEW.digest AND approver = NEW.approver);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER approvals_update BEFORE UPDATE ON approvals BEGIN SELECT RAISE(ABORT, 'append_only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER approvals_delete BEFORE DELETE ON approvals BEGIN SELECT RAISE(ABORT, 'append_only'); END;
-- +goose StatementEnd

-- Answers that a replica gave in a minute. id is a hash of all that stands between it and n.
CREATE TABLE counters (
    minute   INTEGER NOT NULL,
    id       BLOB    NOT NULL,
    replica  TEXT    NOT NULL,
    boot     TEXT    NOT NULL,
    app      TEXT    NOT NULL,
    region   TEXT    NOT NULL,
    endpoint TEXT    NOT NULL,
    policy   TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    number   INTEGER NOT NULL, -- of the release
    n        INTEGER NOT NULL,
    PRIMARY KEY (minute, id)
) STRICT, WITHOUT ROWID;

-- The same by the hour, of all replicas together.
CREATE TABLE counter_hours (
    minute   INTEGER NOT NULL, -- the first of the hour
    id       BLOB    NOT NULL,
    app      TEXT    NOT NULL,
    region   TEXT    NOT NULL,
    endpoint TEXT    NOT NULL,
    policy   TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    number   INTEGER NOT NULL,
    n        INTEGER NOT NULL,
    PRIMARY KEY (minute, id)
) STRICT, WITHOUT ROWID;

-- Minutes before this one belong to counter_hours, and no more are taken.
CREATE TABLE counter_line (
    id     INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    minute INTEGER NOT NULL
) STRICT;

INSERT INTO counter_line (id, minute) VALUES (1, 0);

-- What each prober knows of each host.
CREATE TABLE probes (
    host   TEXT    NOT NULL,
    prober TEXT    NOT NULL,
    last   INTEGER NOT NULL,
    body   TEXT    NOT NULL, -- JSON
    PRIMARY KEY (host, prober)
) STRICT;

-- The audit trail is read by one of its columns, the newest first. Each index also has what it may be narrowed by
-- further, so that a search looks at rows only to show them.
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_actor ON audit (actor, at, seq, action, target);
CREATE INDEX audit_action ON audit (action, at, seq, actor, target);
CREATE INDEX audit_target ON audit (target, at, seq, actor, action);
CREATE INDEX audit_stream ON audit (stream, at, seq, action, actor);
CREATE INDEX audit_number ON audit (number, at);

CREATE INDEX releases_action ON releases (stream, action, created);
CREATE INDEX releases_digest ON releases (digest);
