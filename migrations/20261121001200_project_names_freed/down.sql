-- Their names may be taken again, and what comes next knows of no deleted projects.
UPDATE projects.projects SET live_version = NULL WHERE deleted_at IS NOT NULL;
DELETE FROM projects.deployments d USING projects.projects p WHERE p.id = d.project_id AND p.deleted_at IS NOT NULL;
DELETE FROM projects.projects WHERE deleted_at IS NOT NULL;
CREATE UNIQUE INDEX projects_org_id_name_key ON projects.projects (org_id, name);
