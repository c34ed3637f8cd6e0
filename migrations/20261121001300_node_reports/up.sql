-- What nodes report.
ALTER TABLE convergence.nodes
    -- When the node last asked for its desired state, to the minute.
    ADD COLUMN seen_at timestamptz,
    -- The number of the last batch of reports that was taken in.
    ADD COLUMN batch bigint NOT NULL DEFAULT 0;

-- What was last reported of a deployment; one that goes live begins as pending. Those that are there already are retired
-- until a node says otherwise of one.
ALTER TABLE projects.deployments
    ADD COLUMN status text NOT NULL DEFAULT 'retired'
        CONSTRAINT deployments_status_check CHECK (status IN ('pending', 'serving', 'crashed', 'failed', 'retired')),
    ADD COLUMN status_message text;
ALTER TABLE projects.deployments ALTER COLUMN status SET DEFAULT 'pending';
