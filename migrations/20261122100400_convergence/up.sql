-- Nodes and their desired state.
CREATE SCHEMA convergence;

CREATE TABLE convergence.nodes (
    id uuid CONSTRAINT nodes_pkey PRIMARY KEY,
    name text NOT NULL CONSTRAINT nodes_name_key UNIQUE,
    -- 'app' serves projects, 'git' serves repositories, 'mail' receives mail.
    kind text NOT NULL DEFAULT 'app' CONSTRAINT nodes_kind_check CHECK (kind IN ('app', 'git', 'mail')),
    -- SHA-256 of the node's credential.
    token_hash bytea NOT NULL CONSTRAINT nodes_token_hash_key UNIQUE,
    -- Increased by each transaction that changes the node's desired state. 0 is the revision of a node that has not
    -- fetched any state.
    revision bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    -- The time at which the node last polled its desired state, accurate to a minute.
    last_seen_at timestamptz,
    -- The number of the last accepted batch of reports.
    batch bigint NOT NULL DEFAULT 0,
    -- The number of placements on this node. Triggers maintain it, because count(*) would get slower with each row.
    placements bigint NOT NULL DEFAULT 0 CONSTRAINT nodes_placements_check CHECK (placements >= 0),
    -- The node's Postgres, as the node announces it. Null if it has none.
    database_host text,
    database_port integer CONSTRAINT nodes_database_port_check CHECK (database_port BETWEEN 1 AND 65535),
    database_sslmode text
        CONSTRAINT nodes_database_sslmode_check CHECK (database_sslmode IN ('disable', 'require', 'verify-full')),
    backup_interval_seconds bigint,
    CONSTRAINT nodes_database_check
        CHECK (num_nulls(database_host, database_port, database_sslmode, backup_interval_seconds) IN (0, 4))
);

-- There is at most one git node, which has the contents of all repositories.
CREATE UNIQUE INDEX nodes_git_key ON convergence.nodes (kind) WHERE kind = 'git';

CREATE TABLE convergence.placements (
    project_id uuid CONSTRAINT placements_pkey PRIMARY KEY,
    -- The home node. Null while no node is available.
    node_id uuid CONSTRAINT placements_node_id_fkey REFERENCES convergence.nodes (id),
    state text NOT NULL CONSTRAINT placements_state_check
        CHECK (state IN ('pending', 'active', 'draining', 'sealing', 'committing', 'reactivating', 'suspended')),
    -- Increased by each restore.
    epoch bigint NOT NULL,
    created_at timestamptz NOT NULL,
    -- The time at which the project was deleted. After that, only a final part is written.
    ended_at timestamptz
);
CREATE INDEX placements_node_id_idx ON convergence.placements (node_id);

-- The desired state of each project, by part. Only the context that owns a part writes it, under the row lock of the
-- placement.
CREATE TABLE convergence.parts (
    project_id uuid NOT NULL
        CONSTRAINT parts_project_id_fkey REFERENCES convergence.placements (project_id) ON DELETE CASCADE,
    part text NOT NULL,
    -- A copy of the placement's home node, so that one index orders the changes of a node.
    node_id uuid,
    -- The home node's revision at the last change of the part. 0 without a node.
    revision bigint NOT NULL,
    -- The value. Null once the part is no longer desired.
    desired jsonb,
    updated_at timestamptz NOT NULL,
    CONSTRAINT parts_pkey PRIMARY KEY (project_id, part)
);
CREATE UNIQUE INDEX parts_node_id_revision_key ON convergence.parts (node_id, revision);
-- For the check whether a node may fetch a bundle.
CREATE INDEX parts_node_id_bundle_idx ON convergence.parts (node_id, (desired ->> 'bundle')) WHERE part = 'site';

CREATE FUNCTION convergence.count_placements() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE convergence.nodes n SET placements = n.placements + inserted.number
            FROM (SELECT node_id, count(*) AS number FROM added GROUP BY node_id) inserted WHERE n.id = inserted.node_id;
    ELSIF TG_OP = 'DELETE' THEN
        UPDATE convergence.nodes n SET placements = n.placements - deleted.number
            FROM (SELECT node_id, count(*) AS number FROM removed GROUP BY node_id) deleted WHERE n.id = deleted.node_id;
    ELSE
        UPDATE convergence.nodes n SET placements = n.placements + moved.number
            FROM (
                SELECT node_id, sum(number) AS number FROM (
                    SELECT node_id, 1 AS number FROM added UNION ALL SELECT node_id, -1 FROM removed
                ) each_row GROUP BY node_id HAVING sum(number) <> 0
            ) moved WHERE n.id = moved.node_id;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER placements_after_insert AFTER INSERT ON convergence.placements
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION convergence.count_placements();
CREATE TRIGGER placements_after_update AFTER UPDATE ON convergence.placements
    REFERENCING NEW TABLE AS added OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION convergence.count_placements();
CREATE TRIGGER placements_after_delete AFTER DELETE ON convergence.placements
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION convergence.count_placements();
