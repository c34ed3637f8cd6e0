-- Grants of optional resources to projects.
CREATE SCHEMA resources;

CREATE TABLE resources.grants (
    -- The purge of a deleted project also deletes its grants.
    project_id uuid NOT NULL CONSTRAINT grants_project_id_fkey REFERENCES projects.projects (id) ON DELETE CASCADE,
    resource text NOT NULL
        CONSTRAINT grants_resource_check CHECK (resource IN ('auth', 'database', 'email', 'ai', 'storage')),
    granted_at timestamptz NOT NULL,
    CONSTRAINT grants_pkey PRIMARY KEY (project_id, resource)
);
