-- Until when a one-time password opens anything; NULL: until its first use, as the first administrator's does and those
-- that were handed out before this step. As in 0001, every step can be run again.

-- +goose NO TRANSACTION
-- +goose Up

-- Prepared, because MySQL cannot pass over a column that is there already.
SET @dispatch_step = IF(
    EXISTS (SELECT 1 FROM information_schema.columns
            WHERE table_schema = DATABASE() AND table_name = 'accounts' AND column_name = 'password_until'),
    'DO 0', 'ALTER TABLE accounts ADD COLUMN password_until BIGINT');
PREPARE dispatch_step FROM @dispatch_step;
EXECUTE dispatch_step;
DEALLOCATE PREPARE dispatch_step;
