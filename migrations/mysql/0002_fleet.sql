-- How far releases have come, which replicas there are, which hosts came by adoption.
-- As in 0001, every step can be run again.

-- +goose NO TRANSACTION
-- +goose Up

-- One row for each release, written with it. Releases without one are everywhere: a node of an older version made them.
CREATE TABLE IF NOT EXISTS rollouts (
    stream  VARCHAR(100) NOT NULL,
    number  BIGINT       NOT NULL,
    state   VARCHAR(16)  NOT NULL,
    canary  VARCHAR(200) NOT NULL, -- the replica that served it first, alone; empty: none did
    started BIGINT       NOT NULL,
    ended   BIGINT, -- when it stopped being a canary; as started for one that never was
    PRIMARY KEY (stream, number),
    KEY rollouts_state (stream, state),
    CONSTRAINT rollouts_release FOREIGN KEY (stream, number) REFERENCES releases (stream, number),
    CONSTRAINT rollout_state CHECK (state = 'everywhere' OR (state IN ('canary', 'superseded') AND canary <> '')),
    CONSTRAINT rollout_ended CHECK ((state = 'canary') = (ended IS NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Only the newest release gets a row, so that none that was everywhere becomes a canary again.
DROP TRIGGER IF EXISTS rollouts_insert;

INSERT IGNORE INTO rollouts (stream, number, state, canary, started, ended)
SELECT stream, number, 'everywhere', '', created, created FROM releases;

-- +goose StatementBegin
CREATE TRIGGER rollouts_insert BEFORE INSERT ON rollouts FOR EACH ROW BEGIN
    IF NEW.state = 'superseded' OR (NEW.state = 'everywhere' AND NEW.canary <> '')
        OR NEW.number <> (SELECT MAX(number) FROM releases WHERE stream = NEW.stream)
        OR EXISTS (SELECT 1 FROM rollouts WHERE stream = NEW.stream AND state = 'canary') THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'rollout_step';
    END IF;
END;
-- +goose StatementEnd

-- A canary becomes everywhere while it is the newest release, and superseded when it no longer is.
DROP TRIGGER IF EXISTS rollouts_update;
-- +goose StatementBegin
CREATE TRIGGER rollouts_update BEFORE UPDATE ON rollouts FOR EACH ROW BEGIN
    IF OLD.state <> 'canary' OR NEW.state = 'canary'
        OR NEW.stream <> OLD.stream OR NEW.number <> OLD.number OR NEW.canary <> OLD.canary OR NEW.started <> OLD.started
        OR (NEW.state = 'everywhere') <> (NEW.number = (SELECT MAX(number) FROM releases WHERE stream = NEW.stream)) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'rollout_step';
    END IF;
END;
-- +goose StatementEnd

DROP TRIGGER IF EXISTS rollouts_delete;
CREATE TRIGGER rollouts_delete BEFORE DELETE ON rollouts FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'append_only';

-- Here and not in the program, so that a node of an older version does it too.
DROP TRIGGER IF EXISTS releases_supersede;
CREATE TRIGGER releases_supersede AFTER INSERT ON releases FOR EACH ROW
    UPDATE rollouts SET state = 'superseded', ended = NEW.created WHERE stream = NEW.stream AND state = 'canary';

-- Replicas that were seen. What they report is theirs: nothing here decides anything.
CREATE TABLE IF NOT EXISTS replicas (
    id         VARCHAR(200) NOT NULL PRIMARY KEY,
    first_seen BIGINT       NOT NULL,
    last_seen  BIGINT       NOT NULL,
    report     LONGTEXT     NOT NULL -- JSON
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The release that a host was adopted with: its signature says that two people approved the host when it was made.
-- Prepared, because MySQL cannot pass over a column that is there already.
SET @dispatch_step = IF(
    EXISTS (SELECT 1 FROM information_schema.columns
            WHERE table_schema = DATABASE() AND table_name = 'hosts' AND column_name = 'adopted_stream'),
    'DO 0', 'ALTER TABLE hosts ADD COLUMN adopted_stream VARCHAR(100), ADD COLUMN adopted_number BIGINT');
PREPARE dispatch_step FROM @dispatch_step;
EXECUTE dispatch_step;
DEALLOCATE PREPARE dispatch_step;

DROP TRIGGER IF EXISTS hosts_insert;
-- +goose StatementBegin
CREATE TRIGGER hosts_insert BEFORE INSERT ON hosts FOR EACH ROW BEGIN
    IF NEW.approver IS NOT NULL THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'host_approval';
    END IF;
    IF (NEW.adopted_stream IS NOT NULL OR NEW.adopted_number IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM releases WHERE stream = NEW.adopted_stream AND number = NEW.adopted_number) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'host_adoption';
    END IF;
END;
-- +goose StatementEnd

-- A row changes once, when it is approved. To change it again, revoke and propose it anew.
DROP TRIGGER IF EXISTS hosts_update;
-- +goose StatementBegin
CREATE TRIGGER hosts_update BEFORE UPDATE ON hosts FOR EACH ROW BEGIN
    IF OLD.approver IS NOT NULL OR NEW.host <> OLD.host OR NEW.proposer <> OLD.proposer
        OR NEW.proposed <> OLD.proposed OR NEW.reason <> OLD.reason
        OR NOT (NEW.adopted_stream <=> OLD.adopted_stream) OR NOT (NEW.adopted_number <=> OLD.adopted_number) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'host_approval';
    END IF;
END;
-- +goose StatementEnd
