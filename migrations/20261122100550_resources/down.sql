DROP TABLE resources.grants;
DROP SCHEMA resources;
