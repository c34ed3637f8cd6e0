-- Nodes, and the desired state of each.
CREATE SCHEMA convergence;

CREATE TABLE convergence.nodes (
    id uuid CONSTRAINT nodes_pkey PRIMARY KEY,
    name text NOT NULL CONSTRAINT nodes_name_key UNIQUE,
    -- SHA-256 of the node's credential.
    token_hash bytea NOT NULL CONSTRAINT nodes_token_hash_key UNIQUE,
    -- Raised by each transaction that changes the node's desired state. A node without any state is at 0.
    revision bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    -- When the node last asked for its desired state, to the minute.
    seen_at timestamptz,
    -- The number of the last batch of reports that was accepted.
    batch bigint NOT NULL DEFAULT 0,
    -- The rows of convergence.placements with this node: triggers keep it, since counting costs more with each row.
    placements bigint NOT NULL DEFAULT 0 CONSTRAINT nodes_placements_check CHECK (placements >= 0)
);

CREATE TABLE convergence.placements (
    project_id uuid CONSTRAINT placements_pkey PRIMARY KEY,
    -- The home node; null while no node can take the project.
    node_id uuid CONSTRAINT placements_node_id_fkey REFERENCES convergence.nodes (id),
    state text NOT NULL CONSTRAINT placements_state_check CHECK (state IN ('pending', 'active', 'suspended')),
    epoch bigint NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX placements_node_id_idx ON convergence.placements (node_id);

-- The desired state of each project, by part. The context that owns a part is the only one that writes it, under the lock
-- of the placement's row.
CREATE TABLE convergence.parts (
    project_id uuid NOT NULL
        CONSTRAINT parts_project_id_fkey REFERENCES convergence.placements (project_id) ON DELETE CASCADE,
    part text NOT NULL,
    -- The placement's home node, so that one index holds the changes of a node in their order.
    node_id uuid,
    -- The home node's revision at which the part last changed; 0 while there is no node.
    revision bigint NOT NULL,
    -- Null once the part is no longer desired.
    desired jsonb,
    updated_at timestamptz NOT NULL,
    CONSTRAINT parts_pkey PRIMARY KEY (project_id, part)
);
CREATE UNIQUE INDEX parts_node_id_revision_idx ON convergence.parts (node_id, revision);

CREATE FUNCTION convergence.count_placements() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE convergence.nodes n SET placements = n.placements + come.number
            FROM (SELECT node_id, count(*) AS number FROM added GROUP BY node_id) come WHERE n.id = come.node_id;
    ELSIF TG_OP = 'DELETE' THEN
        UPDATE convergence.nodes n SET placements = n.placements - gone.number
            FROM (SELECT node_id, count(*) AS number FROM removed GROUP BY node_id) gone WHERE n.id = gone.node_id;
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
CREATE TRIGGER placements_added AFTER INSERT ON convergence.placements
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION convergence.count_placements();
CREATE TRIGGER placements_moved AFTER UPDATE ON convergence.placements
    REFERENCING NEW TABLE AS added OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION convergence.count_placements();
CREATE TRIGGER placements_removed AFTER DELETE ON convergence.placements
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION convergence.count_placements();
