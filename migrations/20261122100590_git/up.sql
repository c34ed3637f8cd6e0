-- Git repositories of projects, without their contents.
CREATE SCHEMA git;

-- The number of repositories of a project, without deleted ones.
CREATE TABLE git.counts (
    project_id uuid CONSTRAINT counts_pkey PRIMARY KEY
        CONSTRAINT counts_project_id_fkey REFERENCES projects.projects (id) ON DELETE CASCADE,
    repositories integer NOT NULL CONSTRAINT counts_repositories_check CHECK (repositories >= 0)
);

-- Repositories. The row of a deleted repository is kept until the git node has erased its contents, even after the
-- purge of its project.
CREATE TABLE git.repositories (
    id uuid CONSTRAINT repositories_pkey PRIMARY KEY,
    project_id uuid NOT NULL,
    name text NOT NULL,
    visibility text NOT NULL CONSTRAINT repositories_visibility_check CHECK (visibility IN ('private', 'public')),
    default_branch text NOT NULL,
    -- A push to this branch is deployed.
    deploy_branch text,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- The time at which the contents of a deleted repository are erased. Null for a live repository.
    erase_at timestamptz,
    -- The number of the last ref update. The git node numbers the updates of a repository without gaps.
    last_update bigint NOT NULL DEFAULT 0 CONSTRAINT repositories_last_update_check CHECK (last_update >= 0),
    -- The size at the git node, as it last reported it.
    size_bytes bigint NOT NULL DEFAULT 0 CONSTRAINT repositories_size_bytes_check CHECK (size_bytes >= 0)
);
-- The name of a deleted repository can be reused.
CREATE UNIQUE INDEX repositories_project_id_name_live_key ON git.repositories (project_id, name) WHERE erase_at IS NULL;
CREATE INDEX repositories_project_id_id_idx ON git.repositories (project_id, id);
CREATE INDEX repositories_project_id_erase_at_idx ON git.repositories (project_id, erase_at) WHERE erase_at IS NOT NULL;
CREATE INDEX repositories_erase_at_idx ON git.repositories (erase_at) WHERE erase_at IS NOT NULL;

-- The most recent ref updates of each repository.
CREATE TABLE git.ref_updates (
    repository_id uuid NOT NULL
        CONSTRAINT ref_updates_repository_id_fkey REFERENCES git.repositories (id) ON DELETE CASCADE,
    number bigint NOT NULL,
    name text NOT NULL,
    -- Object ids in hexadecimal; null for a created or deleted ref.
    old_oid text,
    new_oid text,
    forced boolean NOT NULL,
    -- The user who pushed.
    pusher_id uuid,
    created_at timestamptz NOT NULL,
    CONSTRAINT ref_updates_pkey PRIMARY KEY (repository_id, number),
    CONSTRAINT ref_updates_oids_check CHECK (num_nulls(old_oid, new_oid) < 2)
);

-- The deploys of pushes to deploy branches.
CREATE TABLE git.deploys (
    repository_id uuid NOT NULL
        CONSTRAINT deploys_repository_id_fkey REFERENCES git.repositories (id) ON DELETE CASCADE,
    -- The number of the ref update.
    number bigint NOT NULL,
    branch text NOT NULL,
    commit_oid text NOT NULL,
    -- The user who pushed. Another user may have registered the SSH key of the push by the time of the deploy.
    pusher_id uuid NOT NULL,
    -- The credential of the push: its kind, and the hash under which it is stored.
    credential text NOT NULL,
    status text NOT NULL CONSTRAINT deploys_status_check CHECK (status IN ('pending', 'deployed', 'rejected')),
    version integer,
    message text,
    CONSTRAINT deploys_pkey PRIMARY KEY (repository_id, number),
    CONSTRAINT deploys_version_check CHECK ((status = 'deployed') = (version IS NOT NULL)),
    CONSTRAINT deploys_message_check CHECK ((status = 'rejected') = (message IS NOT NULL))
);
CREATE INDEX deploys_pending_idx ON git.deploys (repository_id, number) WHERE status = 'pending';
CREATE INDEX deploys_pusher_id_pending_idx ON git.deploys (pusher_id) WHERE status = 'pending';

-- The git node that serves the contents.
CREATE TABLE git.nodes (
    node_id uuid CONSTRAINT nodes_pkey PRIMARY KEY
        CONSTRAINT nodes_node_id_fkey REFERENCES convergence.nodes (id) ON DELETE CASCADE,
    -- The base URL of the node's internal listener.
    url text NOT NULL,
    -- The sealed credential of the control plane at that listener. The row in its associated data is the node's id.
    key_id text NOT NULL,
    sealed bytea NOT NULL,
    announced_at timestamptz NOT NULL
);

-- The organizations of all projects, with deleted ones: their repositories use storage until they are erased.
CREATE VIEW git.project_orgs AS SELECT id, org_id, deleted_at FROM projects.projects;

-- The paths and owners of live projects. This context reads no other columns of other contexts than those of these two
-- views.
CREATE VIEW git.projects AS
    SELECT p.id, p.org_id, o.slug, p.name, o.plan, o.created_by
        FROM projects.projects p JOIN orgs.orgs o ON o.id = p.org_id WHERE p.deleted_at IS NULL;
