-- Describes everything in a database that migrations can change, one row for each object: kind, name, definition. Two
-- databases with equal schemas have equal rows: nothing in them depends on object ids or on dropped columns.
WITH
schemas AS (
    SELECT * FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
),
relations AS (
    SELECT c.*, format('%I.%I', s.nspname, c.relname) AS name
    FROM pg_class c JOIN schemas s ON s.oid = c.relnamespace
),
-- Objects of all kinds, including kinds that have no definition below.
objects AS (
    SELECT o.type, o.identity
    FROM (
        SELECT classid, objid FROM pg_depend WHERE objid >= 16384
        UNION
        SELECT classid, objid FROM pg_shdepend JOIN pg_database ON pg_database.oid = dbid
        WHERE datname = current_database() AND objid >= 16384
    ) known
    CROSS JOIN LATERAL pg_identify_object(classid, objid, 0) o
    -- These names contain object ids. The tables and keys that own these objects are described.
    WHERE o.identity !~ 'pg_toast|RI_ConstraintTrigger'
)
SELECT 'object' AS kind, type || ' ' || identity AS name, '' AS definition FROM objects
UNION ALL
SELECT 'schema', nspname, concat_ws(' ', pg_get_userbyid(nspowner), nspacl) FROM schemas
UNION ALL
SELECT 'relation', name, concat_ws(
    ' ', relkind, relpersistence, 'row security', relrowsecurity, relforcerowsecurity, 'identity', relreplident,
    reloptions, pg_get_userbyid(relowner), relacl, relispartition, pg_get_expr(relpartbound, oid),
    CASE WHEN relkind = 'p' THEN pg_get_partkeydef(oid) END)
FROM relations
UNION ALL
SELECT 'column', name || '.' || attname, concat_ws(
    ' ', row_number() OVER (PARTITION BY attrelid ORDER BY attnum), format_type(atttypid, atttypmod), 'not null',
    attnotnull, 'identity', attidentity, 'generated', attgenerated, 'default', pg_get_expr(adbin, adrelid), 'collation',
    attcollation::regcollation, 'storage', attstorage, attcompression, attacl, attoptions)
FROM relations
JOIN pg_attribute ON attrelid = relations.oid AND attnum > 0 AND NOT attisdropped
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
UNION ALL
SELECT 'inheritance', name, inhseqno || ' ' || inhparent::regclass
FROM relations JOIN pg_inherits ON inhrelid = relations.oid
UNION ALL
SELECT 'constraint', format('%I of %s %s', conname, conrelid::regclass, contypid::regtype), concat_ws(
    ' ', pg_get_constraintdef(c.oid), 'valid', convalidated)
FROM pg_constraint c JOIN schemas s ON s.oid = connamespace
UNION ALL
SELECT 'index', name, concat_ws(' ', pg_get_indexdef(indexrelid), indisvalid, indisclustered, indisreplident)
FROM relations JOIN pg_index ON indexrelid = relations.oid
UNION ALL
SELECT 'trigger', name || '.' || tgname, concat_ws(' ', pg_get_triggerdef(t.oid), tgenabled)
FROM relations JOIN pg_trigger t ON tgrelid = relations.oid AND NOT tgisinternal
UNION ALL
SELECT 'rule', name || '.' || rulename, concat_ws(' ', pg_get_ruledef(r.oid), ev_enabled)
FROM relations JOIN pg_rewrite r ON ev_class = relations.oid
UNION ALL
SELECT 'policy', name || '.' || polname, concat_ws(
    ' ', polcmd, polpermissive, polroles::regrole [], pg_get_expr(polqual, polrelid), 'check',
    pg_get_expr(polwithcheck, polrelid))
FROM relations JOIN pg_policy ON polrelid = relations.oid
UNION ALL
SELECT 'sequence', name, concat_ws(
    ' ', format_type(seqtypid, NULL), seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle, 'of',
    pg_describe_object(refclassid, refobjid, refobjsubid))
FROM relations
JOIN pg_sequence ON seqrelid = relations.oid
LEFT JOIN pg_depend ON classid = 'pg_class'::regclass AND objid = seqrelid AND deptype IN ('a', 'i')
UNION ALL
SELECT 'statistics', format('%I.%I', s.nspname, stxname), pg_get_statisticsobjdef(x.oid)
FROM pg_statistic_ext x JOIN schemas s ON s.oid = stxnamespace
UNION ALL
SELECT 'function', p.oid::regprocedure::text, concat_ws(
    ' ', prokind, CASE WHEN prokind <> 'a' THEN pg_get_functiondef(p.oid) END, pg_get_userbyid(proowner), proacl)
FROM pg_proc p JOIN schemas s ON s.oid = pronamespace
UNION ALL
SELECT 'type', format('%I.%I', s.nspname, typname), concat_ws(
    ' ', typtype, CASE WHEN typtype = 'd' THEN format_type(typbasetype, typtypmod) END, 'not null', typnotnull, 'default',
    typdefault, 'labels', (SELECT string_agg(enumlabel, ',' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid),
    pg_get_userbyid(typowner), typacl)
FROM pg_type t JOIN schemas s ON s.oid = typnamespace
UNION ALL
SELECT 'extension', extname, concat_ws(' ', extversion, extnamespace::regnamespace) FROM pg_extension
UNION ALL
SELECT 'event trigger', evtname, concat_ws(' ', evtevent, evtfoid::regprocedure, evtenabled, evttags) FROM pg_event_trigger
UNION ALL
SELECT 'publication', pubname, to_jsonb(p)::text FROM (
    SELECT pubname, puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot FROM pg_publication
) p
UNION ALL
SELECT 'default privileges', concat_ws(' ', defaclrole::regrole, defaclnamespace::regnamespace, defaclobjtype), defaclacl::text
FROM pg_default_acl
UNION ALL
SELECT 'comment', pg_describe_object(classoid, objoid, objsubid), description
FROM pg_description WHERE objoid >= 16384
ORDER BY kind, name, definition
