-- Projects that are deleted, who may see the others, and the proofs of their hostnames.
ALTER TABLE projects.projects
    -- Gone from every path at once; the rows stay for thirty days.
    ADD COLUMN deleted_at timestamptz,
    -- Argon2id, as a PHC string.
    ADD COLUMN access_password text,
    ADD COLUMN access_changed_at timestamptz,
    -- Raised by every change of the policy: what was let in before it is let in no longer.
    ADD COLUMN access_version integer NOT NULL DEFAULT 0,
    -- SHA-256 of the bypass key.
    ADD COLUMN bypass_hash bytea,
    ADD COLUMN bypass_created_at timestamptz;
CREATE INDEX projects_deleted_at_idx ON projects.projects (deleted_at) WHERE deleted_at IS NOT NULL;

ALTER TABLE projects.hostnames
    -- The proof that made it active.
    ADD COLUMN proof text CONSTRAINT hostnames_proof_check CHECK (proof IN ('zone', 'txt', 'cname')),
    -- What was looked up last, and seen.
    ADD COLUMN checks jsonb,
    -- When to look again.
    ADD COLUMN check_at timestamptz,
    -- Since when an active name has had no proof.
    ADD COLUMN lost_at timestamptz,
    -- When a claim that is not proved by then ends.
    ADD COLUMN lapses_at timestamptz;
CREATE INDEX hostnames_check_at_idx ON projects.hostnames (check_at) WHERE kind = 'custom';

-- For which organization a custom name was active last: another one has to prove more.
CREATE TABLE projects.former_hostnames (
    name text CONSTRAINT former_hostnames_pkey PRIMARY KEY,
    org_id uuid NOT NULL,
    active_at timestamptz NOT NULL
);

-- Codes of the access round trip that were used.
CREATE TABLE projects.used_codes (
    id uuid CONSTRAINT used_codes_pkey PRIMARY KEY,
    expires_at timestamptz NOT NULL
);
CREATE INDEX used_codes_expires_at_idx ON projects.used_codes (expires_at);

-- The newest about one project.
CREATE INDEX notifications_org_id_project_idx ON orgs.notifications (org_id, project, id) WHERE project IS NOT NULL;

ALTER TABLE orgs.notifications DROP CONSTRAINT notifications_kind_check;
ALTER TABLE orgs.notifications ADD CONSTRAINT notifications_kind_check CHECK (kind IN (
    'limit.projects', 'limit.storage', 'limit.email', 'limit.ai_credit', 'backup.failed', 'backup.stale',
    'restore.completed', 'restore.failed', 'database.deleted', 'domain.expiring', 'payment.failed',
    'hostname.unproved'
));

-- A deleted project is named no longer.
CREATE OR REPLACE VIEW identity.restrictions AS
    SELECT t.id AS token_id, o.slug AS org,
        CASE WHEN o.id IS NOT NULL AND t.only_projects IS NOT NULL THEN ARRAY(
            SELECT p.name FROM projects.projects p WHERE p.org_id = o.id AND p.id = ANY (t.only_projects) AND p.deleted_at IS NULL ORDER BY p.name
        ) END AS projects
    FROM identity.access_tokens t
    LEFT JOIN orgs.members m ON m.org_id = t.only_org AND m.user_id = t.user_id
    LEFT JOIN orgs.orgs o ON o.id = m.org_id
    WHERE t.only_org IS NOT NULL;
