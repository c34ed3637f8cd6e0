-- Creates the roles and the database. Run it once, as a superuser, on an empty server:
--
--   psql -X -v ON_ERROR_STOP=1 -f deploy/postgres/roles.sql
--
-- The roles have no password afterwards: set them with \password, or run passwords.sql as compose.yaml does.

-- Owns and migrates the schema. Only `xtask migrate` uses this role.
CREATE ROLE svc_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
-- Reads and writes rows. `svc-server`, `xtask node` and `xtask outbox` use this role. The limit allows three servers
-- with 18 connections each (SVC_DATABASE_CONNECTIONS and two for LISTEN), and two for `xtask`.
CREATE ROLE svc LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE CONNECTION LIMIT 56;

-- The service recognizes transient errors by the beginning of Postgres' English messages.
ALTER ROLE svc_owner SET lc_messages = 'C';
ALTER ROLE svc SET lc_messages = 'C';

CREATE DATABASE svc OWNER svc_owner TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C.UTF-8';
REVOKE ALL ON DATABASE svc FROM PUBLIC;
GRANT CONNECT ON DATABASE svc TO svc;

\connect svc
-- svc can use the objects that svc_owner creates from now on, but not alter them.
ALTER DEFAULT PRIVILEGES FOR ROLE svc_owner GRANT USAGE ON SCHEMAS TO svc;
ALTER DEFAULT PRIVILEGES FOR ROLE svc_owner GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO svc;
ALTER DEFAULT PRIVILEGES FOR ROLE svc_owner GRANT USAGE ON SEQUENCES TO svc;
