-- Relational databases of projects: logins, operations, generations and exports.
CREATE SCHEMA databases;

-- The numbers of a project that outlive its database.
CREATE TABLE databases.sequences (
    -- The purge of a deleted project also deletes its rows.
    project_id uuid CONSTRAINT sequences_pkey PRIMARY KEY
        CONSTRAINT sequences_project_id_fkey REFERENCES projects.projects (id) ON DELETE CASCADE,
    -- Increased by every change of the logins, the operation or the exports in the desired part.
    revision bigint NOT NULL CONSTRAINT sequences_revision_check CHECK (revision >= 0),
    -- The number of the last generation.
    last_seq bigint NOT NULL DEFAULT 0 CONSTRAINT sequences_last_seq_check CHECK (last_seq >= 0),
    -- The time of the newest generation that was purged. Null if none was purged.
    purged_until timestamptz,
    -- The time at which the node last compared stored generations with their digests.
    checked_at timestamptz
);

CREATE TABLE databases.databases (
    id uuid CONSTRAINT databases_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT databases_project_id_key UNIQUE
        CONSTRAINT databases_project_id_fkey REFERENCES databases.sequences (project_id) ON DELETE CASCADE,
    created_at timestamptz NOT NULL,
    -- The sealed password of the project's login, and its verifier. The row in the associated data of the password is
    -- the id.
    key_id text NOT NULL,
    sealed bytea NOT NULL,
    verifier text NOT NULL,
    -- The key of the generation to which the database was last restored. The home node creates the database from this
    -- generation while the epoch has no newer one.
    restored_key text,
    -- The state in the last report of the home node. The revision is 0 before the first report.
    applied_revision bigint NOT NULL DEFAULT 0,
    ready boolean NOT NULL DEFAULT false,
    size_bytes bigint NOT NULL DEFAULT 0 CONSTRAINT databases_size_bytes_check CHECK (size_bytes >= 0),
    read_only boolean NOT NULL DEFAULT false,
    -- The time until which the generations contain all writes.
    fresh_at timestamptz,
    backup_failed boolean NOT NULL DEFAULT false,
    -- The key of the generation from which the home node last created the database.
    recovered_key text,
    -- Whether the members were notified that `fresh_at` is too old.
    backup_stale boolean NOT NULL DEFAULT false
);
CREATE INDEX databases_backup_stale_idx ON databases.databases (id) WHERE backup_stale;

-- Logins in addition to the project's own.
CREATE TABLE databases.tokens (
    id uuid CONSTRAINT tokens_pkey PRIMARY KEY,
    database_id uuid NOT NULL
        CONSTRAINT tokens_database_id_fkey REFERENCES databases.databases (id) ON DELETE CASCADE,
    name text,
    verifier text NOT NULL,
    created_at timestamptz NOT NULL,
    created_by uuid NOT NULL,
    expires_at timestamptz,
    -- The revision of the part in which the token is revoked. The row is deleted when the node has applied this
    -- revision.
    revoked_revision bigint
);
CREATE INDEX tokens_database_id_id_idx ON databases.tokens (database_id, id);
CREATE INDEX tokens_expires_at_idx ON databases.tokens (expires_at) WHERE expires_at IS NOT NULL;

-- Backups. A row is kept as long as the node keeps the stored object.
CREATE TABLE databases.generations (
    project_id uuid NOT NULL
        CONSTRAINT generations_project_id_fkey REFERENCES databases.sequences (project_id) ON DELETE CASCADE,
    -- The number of the generation, which is unique for the life of the project.
    seq bigint NOT NULL,
    -- The database in the backup, which may have been deleted since.
    database_id uuid NOT NULL,
    epoch bigint NOT NULL CONSTRAINT generations_epoch_check CHECK (epoch > 0),
    kind text NOT NULL CONSTRAINT generations_kind_check CHECK (kind IN ('scheduled', 'pre_restore', 'final')),
    size_bytes bigint NOT NULL CONSTRAINT generations_size_bytes_check CHECK (size_bytes >= 0),
    -- The SHA-256 of the object, in hex.
    sha256 text NOT NULL,
    -- The name of the stored object, relative to the node's store.
    key text NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT generations_pkey PRIMARY KEY (project_id, seq),
    CONSTRAINT generations_project_id_key_key UNIQUE (project_id, key)
);
CREATE INDEX generations_created_at_idx ON databases.generations (created_at);
-- For the newest generation of a database.
CREATE INDEX generations_database_id_idx ON databases.generations (database_id, seq);

-- Operations on whole databases. The deletion of a database does not delete them.
CREATE TABLE databases.operations (
    id uuid CONSTRAINT operations_pkey PRIMARY KEY,
    project_id uuid NOT NULL
        CONSTRAINT operations_project_id_fkey REFERENCES databases.sequences (project_id) ON DELETE CASCADE,
    database_id uuid NOT NULL,
    kind text NOT NULL
        CONSTRAINT operations_kind_check CHECK (kind IN ('restore_generation', 'delete', 'evict', 'restore')),
    phase text NOT NULL CONSTRAINT operations_phase_check
        CHECK (phase IN ('draining', 'sealing', 'committing', 'reactivating', 'done')),
    -- The number of the generation to restore. Null in an ended operation whose generation was purged.
    seq bigint,
    terminal_code text CONSTRAINT operations_terminal_code_check
        CHECK (terminal_code IN ('aborted', 'restore_failed', 'delete_failed')),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    ended_at timestamptz,
    CONSTRAINT operations_generation_fkey
        FOREIGN KEY (project_id, seq) REFERENCES databases.generations (project_id, seq) ON DELETE SET NULL (seq),
    CONSTRAINT operations_ended_check CHECK ((phase = 'done') = (ended_at IS NOT NULL)),
    CONSTRAINT operations_seq_check CHECK (kind <> 'restore_generation' OR seq IS NOT NULL OR ended_at IS NOT NULL)
);
-- At most one operation of a project runs at a time.
CREATE UNIQUE INDEX operations_project_id_running_key ON databases.operations (project_id) WHERE ended_at IS NULL;
CREATE INDEX operations_project_id_seq_idx ON databases.operations (project_id, seq);
CREATE INDEX operations_ended_at_idx ON databases.operations (ended_at) WHERE ended_at IS NOT NULL;

-- Diagnostic images.
CREATE TABLE databases.exports (
    id uuid CONSTRAINT exports_pkey PRIMARY KEY,
    project_id uuid NOT NULL
        CONSTRAINT exports_project_id_fkey REFERENCES databases.sequences (project_id) ON DELETE CASCADE,
    started_at timestamptz NOT NULL,
    ended_at timestamptz,
    -- The name of the stored object, relative to the node's store.
    key text,
    size_bytes bigint CONSTRAINT exports_size_bytes_check CHECK (size_bytes >= 0),
    -- The time of the image.
    created_at timestamptz,
    -- The reason why the export failed.
    error text,
    CONSTRAINT exports_ended_check CHECK ((ended_at IS NOT NULL) = (key IS NOT NULL OR error IS NOT NULL)),
    CONSTRAINT exports_stored_check
        CHECK ((key IS NOT NULL) = (created_at IS NOT NULL) AND (key IS NOT NULL) = (size_bytes IS NOT NULL))
);
-- A project has at most one pending export.
CREATE UNIQUE INDEX exports_project_id_pending_key ON databases.exports (project_id) WHERE ended_at IS NULL;
CREATE INDEX exports_project_id_idx ON databases.exports (project_id);
CREATE INDEX exports_started_at_idx ON databases.exports (started_at);

-- The columns of projects and organizations that this context reads. Deleted projects are excluded.
CREATE VIEW databases.project_plans AS
    SELECT p.id, p.name, p.org_id, o.slug AS org_slug, o.plan, o.pro_retention_until
    FROM projects.projects p JOIN orgs.orgs o ON o.id = p.org_id WHERE p.deleted_at IS NULL;

-- The columns of placements and their home nodes that this context reads. The address is null unless the project has a
-- home node with a Postgres.
CREATE VIEW databases.homes AS
    SELECT p.project_id, p.node_id, p.state, p.epoch, n.database_host AS host, n.database_port AS port,
        n.database_sslmode AS sslmode, n.backup_interval_seconds
    FROM convergence.placements p LEFT JOIN convergence.nodes n ON n.id = p.node_id WHERE p.ended_at IS NULL;

-- The shortest backup interval of a node. Null if no node has announced one.
CREATE VIEW databases.backup_intervals AS
    SELECT min(backup_interval_seconds) AS shortest_seconds FROM convergence.nodes;

-- The generation from which the home node creates a database that does not exist on the node. It is the first of these
-- that exists: the generation to restore while a restore commits, the newest generation of the database and the epoch,
-- and the generation of the last restore.
CREATE VIEW databases.sources AS
    SELECT d.project_id, coalesce(
        (SELECT g.key FROM databases.operations o
            JOIN databases.generations g ON g.project_id = o.project_id AND g.seq = o.seq
            WHERE o.project_id = d.project_id AND o.ended_at IS NULL AND o.phase = 'committing'),
        -- This order matches the index.
        (SELECT g.key FROM databases.generations g
            WHERE g.project_id = d.project_id AND g.database_id = d.id
                AND g.epoch = (SELECT p.epoch FROM convergence.placements p WHERE p.project_id = d.project_id)
            ORDER BY g.seq DESC LIMIT 1),
        d.restored_key) AS source_key
    FROM databases.databases d;
