DROP VIEW projects.placements;
DROP TABLE projects.hostnames;
ALTER TABLE projects.projects DROP CONSTRAINT projects_live_version_fkey;
DROP TABLE projects.deployments;
DROP TABLE projects.projects;
DROP SCHEMA projects;
