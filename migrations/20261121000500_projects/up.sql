-- Projects, their deployments and their hostnames.
CREATE SCHEMA projects;

CREATE TABLE projects.projects (
    id uuid CONSTRAINT projects_pkey PRIMARY KEY,
    org_id uuid NOT NULL CONSTRAINT projects_org_id_fkey REFERENCES orgs.orgs (id),
    name text NOT NULL,
    access_mode text NOT NULL CONSTRAINT projects_access_mode_check CHECK (access_mode IN ('public', 'org', 'password')),
    -- The optional resources that are granted: a set of auth, database, email, ai, storage.
    granted text[] NOT NULL,
    -- The version handed out last: deployments are numbered without gaps.
    last_version integer NOT NULL,
    -- The deployment that is served; null before the first.
    live_version integer,
    created_at timestamptz NOT NULL,
    CONSTRAINT projects_live_version_check CHECK (live_version <= last_version)
);
CREATE UNIQUE INDEX projects_org_id_name_key ON projects.projects (org_id, name);
CREATE INDEX projects_org_id_idx ON projects.projects (org_id, id);

CREATE TABLE projects.deployments (
    id uuid CONSTRAINT deployments_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT deployments_project_id_fkey REFERENCES projects.projects (id),
    version integer NOT NULL,
    -- SHA-256 of the upload: the bundle's name in the store.
    digest bytea NOT NULL CONSTRAINT deployments_digest_check CHECK (octet_length(digest) = 32),
    size_bytes bigint NOT NULL,
    manifest jsonb NOT NULL,
    has_worker boolean NOT NULL,
    asset_count integer NOT NULL,
    git_commit text,
    git_message text,
    git_branch text,
    git_dirty boolean,
    created_by uuid NOT NULL,
    created_by_subject text NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT deployments_project_id_version_key UNIQUE (project_id, version)
);
CREATE INDEX deployments_digest_idx ON projects.deployments (digest);

-- The live pointer names a deployment of its own project.
ALTER TABLE projects.projects ADD CONSTRAINT projects_live_version_fkey
    FOREIGN KEY (id, live_version) REFERENCES projects.deployments (project_id, version);
CREATE INDEX projects_live_version_idx ON projects.projects (id, live_version);

CREATE TABLE projects.hostnames (
    name text CONSTRAINT hostnames_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT hostnames_project_id_fkey REFERENCES projects.projects (id),
    kind text NOT NULL CONSTRAINT hostnames_kind_check CHECK (kind IN ('default', 'custom')),
    state text NOT NULL CONSTRAINT hostnames_state_check CHECK (state IN ('pending_dns', 'active')),
    verification_token text,
    last_error text,
    created_at timestamptz NOT NULL,
    verified_at timestamptz
);
CREATE INDEX hostnames_project_id_idx ON projects.hostnames (project_id, name);
CREATE UNIQUE INDEX hostnames_default_key ON projects.hostnames (project_id) WHERE kind = 'default';

-- What this context reads of convergence, and nothing more.
CREATE VIEW projects.placements AS
    SELECT project_id, state, epoch FROM convergence.placements;
