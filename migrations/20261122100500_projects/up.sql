-- Projects, their deployments, hostnames and access policies.
CREATE SCHEMA projects;

CREATE TABLE projects.projects (
    id uuid CONSTRAINT projects_pkey PRIMARY KEY,
    org_id uuid NOT NULL CONSTRAINT projects_org_id_fkey REFERENCES orgs.orgs (id),
    name text NOT NULL,
    access_mode text NOT NULL CONSTRAINT projects_access_mode_check CHECK (access_mode IN ('public', 'org', 'password')),
    -- The version of the newest deployment. Versions have no gaps.
    last_version integer NOT NULL,
    -- The version that is served. Null before the first deployment.
    live_version integer,
    created_at timestamptz NOT NULL,
    -- Set by the soft delete. The project is hidden immediately and purged after 30 days.
    deleted_at timestamptz,
    -- Argon2id, as a PHC string.
    access_password_hash text,
    access_changed_at timestamptz,
    -- Increased by every change of the access policy, which invalidates older access cookies.
    access_version integer NOT NULL DEFAULT 0,
    -- SHA-256 of the bypass key.
    bypass_key_hash bytea,
    CONSTRAINT projects_live_version_check CHECK (live_version <= last_version)
);
-- The name of a deleted project can be reused.
CREATE UNIQUE INDEX projects_org_id_name_live_key ON projects.projects (org_id, name) WHERE deleted_at IS NULL;
CREATE INDEX projects_org_id_idx ON projects.projects (org_id, id);
CREATE INDEX projects_deleted_at_idx ON projects.projects (deleted_at) WHERE deleted_at IS NOT NULL;
-- For the limit of deleted projects per organization.
CREATE INDEX projects_org_id_deleted_at_idx ON projects.projects (org_id, deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE projects.deployments (
    id uuid CONSTRAINT deployments_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT deployments_project_id_fkey REFERENCES projects.projects (id),
    version integer NOT NULL,
    -- SHA-256 of the upload, which is the name of the bundle in the bundle store.
    digest bytea NOT NULL CONSTRAINT deployments_digest_check CHECK (octet_length(digest) = 32),
    size_bytes bigint NOT NULL,
    -- The resources that the manifest declares. The manifest itself is only in the bundle.
    declares text[] NOT NULL,
    has_worker boolean NOT NULL,
    asset_count integer NOT NULL,
    git_commit text,
    git_message text,
    git_branch text,
    git_dirty boolean,
    created_by uuid NOT NULL,
    created_by_subject text NOT NULL,
    created_at timestamptz NOT NULL,
    -- The status in the last report.
    status text NOT NULL DEFAULT 'pending'
        CONSTRAINT deployments_status_check CHECK (status IN ('pending', 'serving', 'crashed', 'failed', 'retired')),
    status_message text,
    CONSTRAINT deployments_project_id_version_key UNIQUE (project_id, version)
);
CREATE INDEX deployments_current_idx ON projects.deployments (project_id) WHERE status IN ('pending', 'serving', 'crashed');

-- live_version must be a deployment of the same project. It has no index, so that deployments and rollbacks can be HOT
-- updates.
ALTER TABLE projects.projects ADD CONSTRAINT projects_live_version_fkey
    FOREIGN KEY (id, live_version) REFERENCES projects.deployments (project_id, version);

CREATE TABLE projects.hostnames (
    name text CONSTRAINT hostnames_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT hostnames_project_id_fkey REFERENCES projects.projects (id),
    kind text NOT NULL CONSTRAINT hostnames_kind_check CHECK (kind IN ('default', 'custom')),
    state text NOT NULL CONSTRAINT hostnames_state_check CHECK (state IN ('pending_dns', 'active')),
    verification_token text,
    last_error text,
    created_at timestamptz NOT NULL,
    verified_at timestamptz,
    -- The proof that activated the hostname.
    proof text CONSTRAINT hostnames_proof_check CHECK (proof IN ('zone', 'txt', 'cname')),
    -- The results of the last ownership check.
    checks jsonb,
    -- The time at which the next ownership check is due.
    next_check_at timestamptz,
    -- The time since which an active hostname has failed its ownership check.
    unverified_since timestamptz,
    -- The time at which an unverified claim expires.
    claim_expires_at timestamptz,
    -- The time until which an unverified claim reserves the name. After it, the claim of any other project replaces
    -- this one.
    reserved_until timestamptz,
    -- Strict-Transport-Security (RFC 6797). hsts_max_age is null if nodes send no such header.
    hsts_max_age integer,
    hsts_include_subdomains boolean NOT NULL DEFAULT false,
    hsts_preload boolean NOT NULL DEFAULT false,
    CONSTRAINT hostnames_hsts_max_age_check CHECK (hsts_max_age BETWEEN 0 AND 63072000),
    CONSTRAINT hostnames_hsts_preload_check
        CHECK (NOT hsts_preload OR hsts_include_subdomains AND coalesce(hsts_max_age, 0) >= 31536000)
);
CREATE INDEX hostnames_project_id_idx ON projects.hostnames (project_id, name);
-- Lists of projects read only this index and not the table.
CREATE UNIQUE INDEX hostnames_default_key ON projects.hostnames (project_id) INCLUDE (name) WHERE kind = 'default';
CREATE INDEX hostnames_next_check_at_idx ON projects.hostnames (next_check_at) WHERE kind = 'custom';

-- The organization that last held an active custom hostname. Another organization needs a stronger proof for this
-- hostname.
CREATE TABLE projects.former_hostnames (
    name text CONSTRAINT former_hostnames_pkey PRIMARY KEY,
    org_id uuid NOT NULL,
    active_at timestamptz NOT NULL
);

-- The times at which organizations first claimed names whose ownership they have not proved since. A row outlives its
-- claim, so that the organization cannot restart the reservation. There is no foreign key, so that a claim does not
-- wait for the organization's lock.
CREATE TABLE projects.first_claims (
    org_id uuid NOT NULL,
    name text NOT NULL,
    claimed_at timestamptz NOT NULL,
    CONSTRAINT first_claims_pkey PRIMARY KEY (org_id, name)
);
CREATE INDEX first_claims_claimed_at_idx ON projects.first_claims (claimed_at);

-- Used one-time codes of access sign-ins.
CREATE TABLE projects.used_access_codes (
    id uuid CONSTRAINT used_access_codes_pkey PRIMARY KEY,
    expires_at timestamptz NOT NULL
);
CREATE INDEX used_access_codes_expires_at_idx ON projects.used_access_codes (expires_at);

-- The bundles of each organization. Bundles are never deleted, so these rows outlive the deployments.
CREATE TABLE projects.bundles (
    org_id uuid NOT NULL CONSTRAINT bundles_org_id_fkey REFERENCES orgs.orgs (id) ON DELETE CASCADE,
    digest bytea NOT NULL,
    size_bytes bigint NOT NULL CONSTRAINT bundles_size_bytes_check CHECK (size_bytes >= 0),
    CONSTRAINT bundles_pkey PRIMARY KEY (org_id, digest)
);

-- The total size of the bundles of each organization.
CREATE TABLE projects.bundle_totals (
    org_id uuid CONSTRAINT bundle_totals_pkey PRIMARY KEY
        CONSTRAINT bundle_totals_org_id_fkey REFERENCES orgs.orgs (id) ON DELETE CASCADE,
    size_bytes bigint NOT NULL CONSTRAINT bundle_totals_size_bytes_check CHECK (size_bytes >= 0)
);

-- The number of projects per organization. Triggers maintain it, because count(*) would get slower with each row.
CREATE TABLE projects.project_counts (
    org_id uuid CONSTRAINT project_counts_pkey PRIMARY KEY CONSTRAINT project_counts_org_id_fkey REFERENCES orgs.orgs (id) ON DELETE CASCADE,
    -- The number of projects, without deleted ones.
    projects bigint NOT NULL CONSTRAINT project_counts_projects_check CHECK (projects >= 0)
);

CREATE FUNCTION projects.count_inserted_projects() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO projects.project_counts AS c (org_id, projects)
        SELECT org_id, count(*) FROM added WHERE deleted_at IS NULL GROUP BY org_id ORDER BY org_id
        ON CONFLICT (org_id) DO UPDATE SET projects = c.projects + EXCLUDED.projects;
    RETURN NULL;
END
$$;
CREATE TRIGGER projects_after_insert AFTER INSERT ON projects.projects
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION projects.count_inserted_projects();

CREATE FUNCTION projects.count_soft_deleted_projects() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE projects.project_counts SET projects = projects + CASE WHEN NEW.deleted_at IS NULL THEN 1 ELSE -1 END
        WHERE org_id = NEW.org_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER projects_after_soft_delete AFTER UPDATE OF deleted_at ON projects.projects
    FOR EACH ROW WHEN ((OLD.deleted_at IS NULL) <> (NEW.deleted_at IS NULL)) EXECUTE FUNCTION projects.count_soft_deleted_projects();

CREATE FUNCTION projects.count_purged_projects() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE projects.project_counts c SET projects = c.projects - deleted.projects
        FROM (SELECT org_id, count(*) AS projects FROM removed WHERE deleted_at IS NULL GROUP BY org_id) deleted
        WHERE c.org_id = deleted.org_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER projects_after_delete AFTER DELETE ON projects.projects
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION projects.count_purged_projects();

-- The only columns of convergence that this context reads.
CREATE VIEW projects.placements AS
    SELECT project_id, state, epoch FROM convergence.placements;

-- The only columns of organizations that this context reads.
CREATE VIEW projects.project_plans AS
    SELECT p.id, p.org_id, o.plan, o.created_by FROM projects.projects p JOIN orgs.orgs o ON o.id = p.org_id;
