-- Optional resources of projects: grants, secrets, object storage and app user auth.
CREATE SCHEMA resources;

CREATE TABLE resources.grants (
    -- The purge of a deleted project also deletes its grants.
    project_id uuid NOT NULL CONSTRAINT grants_project_id_fkey REFERENCES projects.projects (id) ON DELETE CASCADE,
    resource text NOT NULL
        CONSTRAINT grants_resource_check CHECK (resource IN ('auth', 'database', 'email', 'ai', 'storage')),
    -- No program reads it: it shows an operator since when a project has the resource.
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
    name text COLLATE "C" NOT NULL,
    -- Versions have no gaps. A secret that is set again after its deletion has version 1.
    version integer NOT NULL CONSTRAINT secrets_version_check CHECK (version > 0),
    -- The revision of the set at which the version was created. Unlike the version, it never repeats.
    revision bigint NOT NULL CONSTRAINT secrets_revision_check CHECK (revision > 0),
    -- The sealed value. The row in its associated data consists of project, name and revision.
    key_id text NOT NULL,
    sealed bytea NOT NULL,
    -- The size of the value in bytes, for the limits.
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

-- The settings of app user auth. A row is kept after the grant is revoked, because the settings stay. The lock of this
-- row serializes changes of the settings, of the providers and of the grant.
CREATE TABLE resources.auth (
    project_id uuid CONSTRAINT auth_pkey PRIMARY KEY
        CONSTRAINT auth_project_id_fkey REFERENCES projects.projects (id) ON DELETE CASCADE,
    session_days integer NOT NULL CONSTRAINT auth_session_days_check CHECK (session_days BETWEEN 1 AND 365),
    brand_name text,
    brand_color text,
    brand_logo_url text,
    -- The number of the current grant, or of the next one. Increased by each revocation, which ends all sessions.
    grant_number bigint NOT NULL DEFAULT 1 CONSTRAINT auth_grant_number_check CHECK (grant_number > 0),
    -- Increased each time a provider is set.
    provider_revision bigint NOT NULL DEFAULT 0
        CONSTRAINT auth_provider_revision_check CHECK (provider_revision >= 0)
);

-- The clients of projects at identity providers. They stay after the grant is revoked, like the settings.
CREATE TABLE resources.auth_providers (
    project_id uuid NOT NULL
        CONSTRAINT auth_providers_project_id_fkey REFERENCES resources.auth (project_id) ON DELETE CASCADE,
    -- The reserved name of the client secret: `auth/` and the provider.
    secret_name text NOT NULL CONSTRAINT auth_providers_secret_name_check
        CHECK (secret_name IN ('auth/codehost', 'auth/webaccount', 'auth/messenger')),
    -- The provider revision at which the provider was registered. A replaced client keeps it.
    registration bigint NOT NULL CONSTRAINT auth_providers_registration_check CHECK (registration > 0),
    -- The provider revision at which the client was set.
    revision bigint NOT NULL CONSTRAINT auth_providers_revision_check CHECK (revision >= registration),
    client_id text NOT NULL,
    -- The sealed client secret. The row in its associated data consists of project, name and revision.
    key_id text NOT NULL,
    sealed bytea NOT NULL,
    CONSTRAINT auth_providers_pkey PRIMARY KEY (project_id, secret_name)
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
    SELECT p.id, p.name, p.org_id, o.slug, o.plan, o.created_by
    FROM projects.projects p JOIN orgs.orgs o ON o.id = p.org_id WHERE p.deleted_at IS NULL;
