CREATE INDEX CONCURRENTLY deployments_current_idx ON projects.deployments (project_id) WHERE status IN ('pending', 'serving', 'crashed');
