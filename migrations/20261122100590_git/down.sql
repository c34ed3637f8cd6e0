DROP VIEW git.projects;
DROP VIEW git.project_orgs;
DROP TABLE git.nodes;
DROP TABLE git.deploys;
DROP TABLE git.ref_updates;
DROP TABLE git.repositories;
DROP TABLE git.counts;
DROP SCHEMA git;
