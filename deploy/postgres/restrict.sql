-- Closes the views and functions that show the activity of the whole cluster to tenants. The node executes it in
-- `svc_template`. Execute it in every database of the cluster after pg_upgrade, which loses these privileges.
DO $$
DECLARE
    it record;
BEGIN
    FOR it IN
        SELECT oid, 'pg_proc'::regclass AS class, format('FUNCTION %s', oid::regprocedure) AS object
        FROM pg_proc
        WHERE pronamespace = 'pg_catalog'::regnamespace AND (
            proname IN ('pg_lock_status', 'pg_prepared_xact', 'pg_get_replication_slots', 'pg_blocking_pids',
                'pg_show_replication_origin_status', 'pg_safe_snapshot_blocking_pids', 'pg_tablespace_size',
                'pg_tablespace_databases', 'pg_last_committed_xact')
            OR proname ~ '^pg_stat_get_(activity|backend|db|wal|archiver|bgwriter|checkpointer|buf|slru|io|progress|replication|subscription)'
        )
        UNION ALL
        SELECT oid, 'pg_class'::regclass, format('TABLE %s', oid::regclass)
        FROM pg_class
        WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'v' AND (
            relname IN ('pg_locks', 'pg_prepared_xacts', 'pg_replication_slots', 'pg_replication_origin_status')
            OR relname ~ '^pg_stat_(activity|archiver|bgwriter|checkpointer|database|gssapi|io|progress|replication|slru|ssl|subscription|wal)'
        )
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', it.object);
        DELETE FROM pg_init_privs WHERE objoid = it.oid AND classoid = it.class AND objsubid = 0;
        INSERT INTO pg_init_privs (objoid, classoid, objsubid, privtype, initprivs)
        SELECT it.oid, it.class, 0, 'i', acl
        FROM (SELECT proacl FROM pg_proc WHERE oid = it.oid AND it.class = 'pg_proc'::regclass
            UNION ALL SELECT relacl FROM pg_class WHERE oid = it.oid AND it.class = 'pg_class'::regclass) AS acls (acl)
        WHERE acl IS NOT NULL;
    END LOOP;
END $$;
