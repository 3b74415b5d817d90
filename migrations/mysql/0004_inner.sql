-- What instances say of themselves, and what callers recorded of their decisions. Nothing here decides anything but
-- what the directory calls a ghost. As in 0001, every step can be run again.

-- +goose NO TRANSACTION
-- +goose Up

-- The last report of each process; id is a hash of service, id, address and start.
CREATE TABLE IF NOT EXISTS inner_reports (
    id      BINARY(32) NOT NULL PRIMARY KEY,
    expires BIGINT     NOT NULL,
    body    LONGTEXT   NOT NULL, -- JSON
    KEY inner_reports_expires (expires)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Decisions. lane_key is what kept a call on its version, encrypted as raw ids are: it may be one.
CREATE TABLE IF NOT EXISTS inner_records (
    id       VARCHAR(200) NOT NULL,
    at       BIGINT       NOT NULL,
    caller   VARCHAR(200) NOT NULL,
    service  VARCHAR(200) NOT NULL,
    reason   VARCHAR(64)  NOT NULL,
    body     LONGTEXT     NOT NULL, -- JSON
    lane_key BLOB,
    PRIMARY KEY (id, at),
    KEY inner_records_at (at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The tables that decided, without their lists. used is when a record last named it, to the day.
CREATE TABLE IF NOT EXISTS inner_views (
    view   VARCHAR(300) NOT NULL PRIMARY KEY,
    digest VARCHAR(100) NOT NULL, -- of the list; empty: none
    used   BIGINT       NOT NULL,
    body   LONGTEXT     NOT NULL, -- JSON
    KEY inner_views_used (used)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Lists of instances by their digest: whole, or as the difference to a whole one.
CREATE TABLE IF NOT EXISTS inner_lists (
    digest  VARCHAR(100) NOT NULL PRIMARY KEY,
    service VARCHAR(200) NOT NULL,
    base    VARCHAR(100) NOT NULL, -- digest of the whole one; empty: this is one
    added   BIGINT       NOT NULL,
    used    BIGINT       NOT NULL,
    body    LONGBLOB     NOT NULL, -- JSON, gzip
    KEY inner_lists_newest (service, base, added),
    KEY inner_lists_base (base),
    KEY inner_lists_used (used)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
