-- Until when a one-time password opens anything; NULL: until its first use, as the first administrator's does and those
-- that were handed out before this step.

-- +goose Up

ALTER TABLE accounts ADD COLUMN password_until INTEGER;
