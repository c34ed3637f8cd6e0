-- Organizations and their members.
CREATE SCHEMA orgs;

CREATE TABLE orgs.orgs (
    id uuid CONSTRAINT orgs_pkey PRIMARY KEY,
    slug text NOT NULL CONSTRAINT orgs_slug_key UNIQUE,
    name text NOT NULL,
    plan text NOT NULL CONSTRAINT orgs_plan_check CHECK (plan IN ('free', 'pro')),
    personal boolean NOT NULL,
    created_at timestamptz NOT NULL
);

CREATE TABLE orgs.members (
    org_id uuid NOT NULL CONSTRAINT members_org_id_fkey REFERENCES orgs.orgs (id) ON DELETE CASCADE,
    user_id uuid NOT NULL CONSTRAINT members_user_id_fkey REFERENCES identity.users (id) ON DELETE CASCADE,
    role text NOT NULL CONSTRAINT members_role_check CHECK (role IN ('viewer', 'member', 'admin')),
    joined_at timestamptz NOT NULL,
    CONSTRAINT members_pkey PRIMARY KEY (org_id, user_id)
);
CREATE INDEX members_user_id_idx ON orgs.members (user_id, org_id);

-- What this context reads of identity, and nothing more.
CREATE VIEW orgs.people AS
    SELECT id, provider, subject, name, avatar_url FROM identity.users;

-- What organizations read of the audit log, and nothing more.
CREATE VIEW orgs.audit AS
    SELECT id, event, org_id, actor_id, target, data, request_id, created_at FROM store.audit;
