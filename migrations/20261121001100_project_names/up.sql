CREATE UNIQUE INDEX CONCURRENTLY projects_org_id_name_live_key ON projects.projects (org_id, name) WHERE deleted_at IS NULL;
