CREATE OR REPLACE VIEW identity.restrictions AS
    SELECT t.id AS token_id, o.slug AS org,
        CASE WHEN o.id IS NOT NULL AND t.only_projects IS NOT NULL THEN ARRAY(
            SELECT p.name FROM projects.projects p WHERE p.org_id = o.id AND p.id = ANY (t.only_projects) ORDER BY p.name
        ) END AS projects
    FROM identity.access_tokens t
    LEFT JOIN orgs.members m ON m.org_id = t.only_org AND m.user_id = t.user_id
    LEFT JOIN orgs.orgs o ON o.id = m.org_id
    WHERE t.only_org IS NOT NULL;
DROP INDEX orgs.notifications_org_id_project_idx;
DELETE FROM orgs.notifications WHERE kind = 'hostname.unproved';
ALTER TABLE orgs.notifications DROP CONSTRAINT notifications_kind_check;
ALTER TABLE orgs.notifications ADD CONSTRAINT notifications_kind_check CHECK (kind IN (
    'limit.projects', 'limit.storage', 'limit.email', 'limit.ai_credit', 'backup.failed', 'backup.stale',
    'restore.completed', 'restore.failed', 'database.deleted', 'domain.expiring', 'payment.failed'
));
DROP TABLE projects.used_codes;
DROP TABLE projects.former_hostnames;
DROP INDEX projects.hostnames_check_at_idx;
ALTER TABLE projects.hostnames
    DROP COLUMN lapses_at, DROP COLUMN lost_at, DROP COLUMN check_at, DROP COLUMN checks, DROP COLUMN proof;
DROP INDEX projects.projects_deleted_at_idx;
ALTER TABLE projects.projects
    DROP COLUMN bypass_created_at, DROP COLUMN bypass_hash, DROP COLUMN access_version,
    DROP COLUMN access_changed_at, DROP COLUMN access_password, DROP COLUMN deleted_at;
