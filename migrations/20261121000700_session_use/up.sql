-- When a session was used last, to within minutes.
ALTER TABLE identity.sessions ADD COLUMN last_used_at timestamptz;
