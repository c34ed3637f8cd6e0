CREATE INDEX CONCURRENTLY users_email_idx ON identity.users (lower(email)) WHERE email IS NOT NULL;
