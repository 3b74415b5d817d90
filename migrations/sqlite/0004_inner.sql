-- What instances say of themselves, and what callers recorded of their decisions. Nothing here decides anything but
-- what the directory calls a ghost.

-- +goose Up

-- The last report of each process; id is a hash of service, id, address and start.
CREATE TABLE inner_reports (
    id      BLOB    NOT NULL PRIMARY KEY,
    expires INTEGER NOT NULL,
    body    TEXT    NOT NULL -- JSON
) STRICT, WITHOUT ROWID;

CREATE INDEX inner_reports_expires ON inner_reports (expires);

-- Decisions. lane_key is what kept a call on its version, encrypted as raw ids are: it may be one.
CREATE TABLE inner_records (
    id       TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    caller   TEXT    NOT NULL,
    service  TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    body     TEXT    NOT NULL, -- JSON
    lane_key BLOB,
    PRIMARY KEY (id, at)
) STRICT, WITHOUT ROWID;

CREATE INDEX inner_records_at ON inner_records (at);

-- The tables that decided, without their lists. used is when a record last named it, to the day.
CREATE TABLE inner_views (
    view   TEXT    NOT NULL PRIMARY KEY,
    digest TEXT    NOT NULL, -- of the list; empty: none
    used   INTEGER NOT NULL,
    body   TEXT    NOT NULL -- JSON
) STRICT;

CREATE INDEX inner_views_used ON inner_views (used);

-- Lists of instances by their digest: whole, or as the difference to a whole one.
CREATE TABLE inner_lists (
    digest  TEXT    NOT NULL PRIMARY KEY,
    service TEXT    NOT NULL,
    base    TEXT    NOT NULL, -- digest of the whole one; empty: this is one
    added   INTEGER NOT NULL,
    used    INTEGER NOT NULL,
    body    BLOB    NOT NULL -- JSON, gzip
) STRICT;

CREATE INDEX inner_lists_newest ON inner_lists (service, base, added);
CREATE INDEX inner_lists_base ON inner_lists (base);
CREATE INDEX inner_lists_used ON inner_lists (used);
