DROP INDEX CONCURRENTLY projects.deployments_current_idx;
