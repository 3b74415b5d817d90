-- How far releases have come, which replicas there are, which hosts came by adoption.

-- +goose Up

-- One row for each release, written with it. Releases without one are everywhere: a node of an older version made them.
CREATE TABLE rollouts (
    stream  TEXT    NOT NULL,
    number  INTEGER NOT NULL,
    state   TEXT    NOT NULL,
    canary  TEXT    NOT NULL, -- the replica that served it first, alone; empty: none did
    started INTEGER NOT NULL,
    ended   INTEGER, -- when it stopped being a canary; as started for one that never was
    PRIMARY KEY (stream, number),
    FOREIGN KEY (stream, number) REFERENCES releases (stream, number),
    CONSTRAINT rollout_state CHECK (state = 'everywhere' OR (state IN ('canary', 'superseded') AND canary <> '')),
    CONSTRAINT rollout_ended CHECK ((state = 'canary') = (ended IS NULL))
) STRICT;

CREATE UNIQUE INDEX one_canary ON rollouts (stream) WHERE state = 'canary';

INSERT INTO rollouts (stream, number, state, canary, started, ended)
SELECT stream, number, 'everywhere', '', created, created FROM releases;

-- Only the newest release gets a row, so that none that was everywhere becomes a canary again.
-- The first condition also stops INSERT OR REPLACE, which in SQLite fires no delete trigger.
-- +goose StatementBegin
CREATE TRIGGER rollouts_insert BEFORE INSERT ON rollouts BEGIN
    SELECT RAISE(ABORT, 'append_only') WHERE EXISTS (SELECT 1 FROM rollouts WHERE stream = NEW.stream AND number = NEW.number);
    SELECT RAISE(ABORT, 'rollout_step')
    WHERE NEW.state = 'superseded' OR (NEW.state = 'everywhere' AND NEW.canary <> '')
       OR NEW.number <> (SELECT MAX(number) FROM releases WHERE stream = NEW.stream)
       OR EXISTS (SELECT 1 FROM rollouts WHERE stream = NEW.stream AND state = 'canary');
END;
-- +goose StatementEnd
-- A canary becomes everywhere while it is the newest release, and superseded when it no longer is.
-- +goose StatementBegin
CREATE TRIGGER rollouts_update BEFORE UPDATE ON rollouts BEGIN
    SELECT RAISE(ABORT, 'rollout_step')
    WHERE OLD.state <> 'canary' OR NEW.state = 'canary'
       OR NEW.stream <> OLD.stream OR NEW.number <> OLD.number OR NEW.canary <> OLD.canary OR NEW.started <> OLD.started
       OR (NEW.state = 'everywhere') <> (NEW.number = (SELECT MAX(number) FROM releases WHERE stream = NEW.stream));
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER rollouts_delete BEFORE DELETE ON rollouts BEGIN SELECT RAISE(ABORT, 'append_only'); END;
-- +goose StatementEnd
-- Here and not in the program, so that a node of an older version does it too.
-- +goose StatementBegin
CREATE TRIGGER releases_supersede AFTER INSERT ON releases BEGIN
    UPDATE rollouts SET state = 'superseded', ended = NEW.created WHERE stream = NEW.stream AND state = 'canary';
END;
-- +goose StatementEnd

-- Replicas that were seen. What they report is theirs: nothing here decides anything.
CREATE TABLE replicas (
    id         TEXT    NOT NULL PRIMARY KEY,
    first_seen INTEGER NOT NULL,
    last_seen  INTEGER NOT NULL,
    report     TEXT    NOT NULL -- JSON
) STRICT;

-- The release that a host was adopted with: its signature says that two people approved the host when it was made.
ALTER TABLE hosts ADD COLUMN adopted_stream TEXT;
ALTER TABLE hosts ADD COLUMN adopted_number INTEGER;

DROP TRIGGER hosts_insert;
-- +goose StatementBegin
CREATE TRIGGER hosts_insert BEFORE INSERT ON hosts BEGIN
    SELECT RAISE(ABORT, 'host_approval') WHERE NEW.approver IS NOT NULL;
    SELECT RAISE(ABORT, 'host_adoption')
    WHERE (NEW.adopted_stream IS NOT NULL OR NEW.adopted_number IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM releases WHERE stream = NEW.adopted_stream AND number = NEW.adopted_number);
END;
-- +goose StatementEnd
DROP TRIGGER hosts_update;
-- A row changes once, when it is approved. To change it again, revoke and propose it anew.
-- +goose StatementBegin
CREATE TRIGGER hosts_update BEFORE UPDATE ON hosts
WHEN OLD.approver IS NOT NULL OR NEW.host <> OLD.host OR NEW.proposer <> OLD.proposer
  OR NEW.proposed <> OLD.proposed OR NEW.reason <> OLD.reason
  OR NEW.adopted_stream IS NOT OLD.adopted_stream OR NEW.adopted_number IS NOT OLD.adopted_number BEGIN
    SELECT RAISE(ABORT, 'host_approval');
END;
-- +goose StatementEnd
