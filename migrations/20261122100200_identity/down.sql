DROP TABLE identity.pending_logins;
DROP TABLE identity.ssh_keys;
DROP TABLE identity.access_tokens;
DROP TABLE identity.sessions;
DROP TABLE identity.users;
DROP SCHEMA identity;
