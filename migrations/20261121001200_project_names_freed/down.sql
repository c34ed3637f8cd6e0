CREATE UNIQUE INDEX projects_org_id_name_key ON projects.projects (org_id, name);
