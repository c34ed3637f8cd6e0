ALTER TABLE projects.deployments DROP COLUMN status, DROP COLUMN status_message;
ALTER TABLE convergence.nodes DROP COLUMN seen_at, DROP COLUMN batch;
