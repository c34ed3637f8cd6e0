DROP VIEW resources.project_plans;
DROP TABLE resources.storage;
DROP TABLE resources.email_domains;
DROP TABLE resources.secrets;
DROP TABLE resources.secret_sets;
DROP TABLE resources.grants;
DROP SCHEMA resources;
