-- Takes from svc what it never uses: changing the audit log, which a trigger refuses as well, and the books of the
-- migrations. The owner or a superuser runs this once, after the first `xtask migrate up`:
--
--   psql -X -v ON_ERROR_STOP=1 -d svc -f deploy/postgres/grants.sql
REVOKE UPDATE, DELETE ON store.audit FROM svc;
REVOKE INSERT, UPDATE, DELETE ON public.__diesel_schema_migrations FROM svc;
