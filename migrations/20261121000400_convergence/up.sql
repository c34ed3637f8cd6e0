-- Nodes, and what each of them is to serve.
CREATE SCHEMA convergence;

CREATE TABLE convergence.nodes (
    id uuid CONSTRAINT nodes_pkey PRIMARY KEY,
    name text NOT NULL CONSTRAINT nodes_name_key UNIQUE,
    -- SHA-256 of the node's credential.
    token_hash bytea NOT NULL CONSTRAINT nodes_token_hash_key UNIQUE,
    -- Raised by the transaction that changes anything the node is to serve. 0 is what a node knows that knows nothing.
    revision bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL
);

CREATE TABLE convergence.placements (
    project_id uuid CONSTRAINT placements_pkey PRIMARY KEY,
    -- The home node; null while there is no node to take it.
    node_id uuid CONSTRAINT placements_node_id_fkey REFERENCES convergence.nodes (id),
    state text NOT NULL CONSTRAINT placements_state_check CHECK (state IN ('pending', 'active', 'suspended')),
    epoch bigint NOT NULL,
    -- The home node's revision at which `desired` last changed.
    revision bigint NOT NULL,
    -- The site as the node is to serve it; null once it is to serve it no longer.
    desired jsonb,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX placements_node_id_revision_idx ON convergence.placements (node_id, revision);
