DROP TABLE identity.sessions;
DROP TABLE identity.users;
DROP SCHEMA identity;
