ALTER TABLE identity.sessions DROP COLUMN last_used_at;
