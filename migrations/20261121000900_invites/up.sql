-- Invitations to organizations, and what organizations are notified of.
CREATE TABLE orgs.invites (
    id uuid CONSTRAINT invites_pkey PRIMARY KEY,
    org_id uuid NOT NULL CONSTRAINT invites_org_id_fkey REFERENCES orgs.orgs (id) ON DELETE CASCADE,
    -- As it was typed; compared without regard to case.
    email text NOT NULL,
    role text NOT NULL CONSTRAINT invites_role_check CHECK (role IN ('viewer', 'member', 'admin')),
    -- SHA-256 of the token; a resend replaces it.
    token_hash bytea NOT NULL CONSTRAINT invites_token_hash_key UNIQUE,
    invited_by uuid NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    sent_at timestamptz,
    -- Once accepted or revoked, and by whom it was accepted.
    ended_at timestamptz,
    accepted_by uuid,
    CONSTRAINT invites_accepted_by_check CHECK (accepted_by IS NULL OR ended_at IS NOT NULL)
);
-- One open invitation for an organization and an address.
CREATE UNIQUE INDEX invites_org_id_email_key ON orgs.invites (org_id, lower(email)) WHERE ended_at IS NULL;
CREATE INDEX invites_org_id_idx ON orgs.invites (org_id, id) WHERE ended_at IS NULL;
CREATE INDEX invites_org_id_ended_at_idx ON orgs.invites (org_id, ended_at);

CREATE TABLE orgs.notifications (
    id uuid CONSTRAINT notifications_pkey PRIMARY KEY,
    org_id uuid NOT NULL CONSTRAINT notifications_org_id_fkey REFERENCES orgs.orgs (id) ON DELETE CASCADE,
    kind text NOT NULL CONSTRAINT notifications_kind_check CHECK (kind IN (
        'limit.projects', 'limit.storage', 'limit.email', 'limit.ai_credit', 'backup.failed', 'backup.stale',
        'restore.completed', 'restore.failed', 'database.deleted', 'domain.expiring', 'payment.failed'
    )),
    -- The project's name at the time; null for what concerns the organization as a whole.
    project text,
    title text NOT NULL,
    message text NOT NULL,
    created_at timestamptz NOT NULL,
    -- When the first mail of it went out.
    sent_at timestamptz
);
CREATE INDEX notifications_org_id_idx ON orgs.notifications (org_id, id);
CREATE INDEX notifications_org_id_kind_idx ON orgs.notifications (org_id, kind, id);

-- An invitation asks who has an address; a notification goes to the admins'.
CREATE OR REPLACE VIEW orgs.people AS
    SELECT id, provider, subject, name, avatar_url, email FROM identity.users;
