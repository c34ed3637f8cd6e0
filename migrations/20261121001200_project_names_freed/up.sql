-- The name of a deleted project is free: the index of 20261121001100 keeps those of the others apart.
DROP INDEX projects.projects_org_id_name_key;
