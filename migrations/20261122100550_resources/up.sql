-- Optional resources of projects: grants, secrets and object storage.
CREATE SCHEMA resources;

CREATE TABLE resources.grants (
    -- The purge of a deleted project also deletes its grants.
    project_id uuid NOT NULL CONSTRAINT grants_project_id_fkey REFERENCES projects.projects (id) ON DELETE CASCADE,
    resource text NOT NULL
        CONSTRAINT grants_resource_check CHECK (resource IN ('auth', 'database', 'email', 'ai', 'storage')),
    granted_at timestamptz NOT NULL,
    CONSTRAINT grants_pkey PRIMARY KEY (project_id, resource)
);

-- The set of a project's secrets. The lock of this row serializes changes of the secrets.
CREATE TABLE resources.secret_sets (
    project_id uuid CONSTRAINT secret_sets_pkey PRIMARY KEY
        CONSTRAINT secret_sets_project_id_fkey REFERENCES projects.projects (id) ON DELETE CASCADE,
    -- Increased by every change of the project's secrets.
    revision bigint NOT NULL CONSTRAINT secret_sets_revision_check CHECK (revision > 0)
);

CREATE TABLE resources.secrets (
    project_id uuid NOT NULL
        CONSTRAINT secrets_project_id_fkey REFERENCES resources.secret_sets (project_id) ON DELETE CASCADE,
    name text NOT NULL,
    -- Versions have no gaps. A secret that is set again after its deletion has version 1.
    version integer NOT NULL CONSTRAINT secrets_version_check CHECK (version > 0),
    -- The revision of the set at which the version was created. Unlike the version, it never repeats.
    revision bigint NOT NULL CONSTRAINT secrets_revision_check CHECK (revision > 0),
    -- The sealed value. The row in its associated data consists of project, name and revision.
    key_id text NOT NULL,
    sealed bytea NOT NULL,
    -- The size of the value in bytes, for the limit per project.
    size_bytes integer NOT NULL CONSTRAINT secrets_size_bytes_check CHECK (size_bytes > 0),
    updated_at timestamptz NOT NULL,
    updated_by uuid NOT NULL,
    CONSTRAINT secrets_pkey PRIMARY KEY (project_id, name)
);

-- The mail domains of projects with the grant `email`. A domain is fixed when it is granted, even if the project is
-- renamed. Revoking the grant or deleting the project frees it.
CREATE TABLE resources.email_domains (
    project_id uuid CONSTRAINT email_domains_pkey PRIMARY KEY
        CONSTRAINT email_domains_project_id_fkey REFERENCES projects.projects (id) ON DELETE CASCADE,
    -- Lowercase, without the final dot.
    domain text COLLATE "C" NOT NULL CONSTRAINT email_domains_domain_key UNIQUE
);

-- Object storage. A row is kept after the grant is revoked, because the objects stay. It outlives the project until the
-- home node has deleted the objects, so there is no foreign key.
CREATE TABLE resources.storage (
    project_id uuid CONSTRAINT storage_pkey PRIMARY KEY,
    -- Identifies the project's objects. Never changes.
    prefix uuid NOT NULL CONSTRAINT storage_prefix_key UNIQUE,
    -- The usage in the last report of the home node.
    used_bytes bigint NOT NULL DEFAULT 0 CONSTRAINT storage_used_bytes_check CHECK (used_bytes >= 0),
    quota_exceeded boolean NOT NULL DEFAULT false,
    -- The time of the last report. Null before the first report.
    reported_at timestamptz,
    -- The time at which the project was purged. From then on, the home node deletes the objects.
    purged_at timestamptz
);

-- The columns of projects and organizations that this context reads. Deleted projects are excluded.
CREATE VIEW resources.project_plans AS
    SELECT p.id, p.name, p.org_id, o.slug, o.plan
    FROM projects.projects p JOIN orgs.orgs o ON o.id = p.org_id WHERE p.deleted_at IS NULL;
