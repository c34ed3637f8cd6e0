DROP VIEW identity.restrictions;
DROP TABLE identity.logins;
DROP TABLE identity.ssh_keys;
DROP TABLE identity.access_tokens;
