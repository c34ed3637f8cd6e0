-- The roles and the database. A superuser runs this once, on an empty server:
--
--   psql -X -v ON_ERROR_STOP=1 -f deploy/postgres/roles.sql
--
-- Neither role has a password afterwards: set them with \password, or run passwords.sql as compose.yaml does.

-- Owns the schema and migrates it. Only `xtask migrate` logs in as this one.
CREATE ROLE svc_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
-- Reads and writes rows. `svc-server` and `xtask node` log in as this one. The limit is three servers of
-- SVC_DATABASE_CONNECTIONS 16 and two that listen, each, and a few for `xtask`.
CREATE ROLE svc LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE CONNECTION LIMIT 56;

-- The service tells a passing failure from a fault by the start of Postgres' English message.
ALTER ROLE svc_owner SET lc_messages = 'C';
ALTER ROLE svc SET lc_messages = 'C';

CREATE DATABASE svc OWNER svc_owner TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C.UTF-8';
REVOKE ALL ON DATABASE svc FROM PUBLIC;
GRANT CONNECT ON DATABASE svc TO svc;

\connect svc
-- What svc_owner makes from here on, svc may use and not change.
ALTER DEFAULT PRIVILEGES FOR ROLE svc_owner GRANT USAGE ON SCHEMAS TO svc;
ALTER DEFAULT PRIVILEGES FOR ROLE svc_owner GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO svc;
ALTER DEFAULT PRIVILEGES FOR ROLE svc_owner GRANT USAGE ON SEQUENCES TO svc;
