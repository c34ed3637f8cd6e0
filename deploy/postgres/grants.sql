-- Revokes privileges that svc never uses: changes of the audit log, which a trigger also rejects, and of the migration
-- history. Run it once, as the owner or a superuser, after the first `xtask migrate up`:
--
--   psql -X -v ON_ERROR_STOP=1 -d svc -f deploy/postgres/grants.sql
REVOKE UPDATE, DELETE ON store.audit FROM svc;
REVOKE INSERT, UPDATE, DELETE ON public.__diesel_schema_migrations FROM svc;
