-- Organizations, their members, invitations and notifications.
CREATE SCHEMA orgs;

CREATE TABLE orgs.orgs (
    id uuid CONSTRAINT orgs_pkey PRIMARY KEY,
    slug text NOT NULL CONSTRAINT orgs_slug_key UNIQUE,
    name text NOT NULL,
    plan text NOT NULL CONSTRAINT orgs_plan_check CHECK (plan IN ('free', 'pro')),
    personal boolean NOT NULL,
    created_at timestamptz NOT NULL,
    -- Null after the user was deleted.
    created_by uuid CONSTRAINT orgs_created_by_fkey REFERENCES identity.users (id) ON DELETE SET NULL,
    -- The time until which backups and mail are kept as on the pro plan, after the pro plan ended.
    pro_retention_until timestamptz,
    CONSTRAINT orgs_pro_retention_check CHECK (plan = 'free' OR pro_retention_until IS NULL)
);
-- For the limit of a user's organizations.
CREATE INDEX orgs_created_by_idx ON orgs.orgs (created_by);

CREATE TABLE orgs.members (
    org_id uuid NOT NULL CONSTRAINT members_org_id_fkey REFERENCES orgs.orgs (id) ON DELETE CASCADE,
    user_id uuid NOT NULL CONSTRAINT members_user_id_fkey REFERENCES identity.users (id) ON DELETE CASCADE,
    role text NOT NULL CONSTRAINT members_role_check CHECK (role IN ('viewer', 'member', 'admin')),
    joined_at timestamptz NOT NULL,
    CONSTRAINT members_pkey PRIMARY KEY (org_id, user_id)
);
CREATE INDEX members_user_id_idx ON orgs.members (user_id, org_id);

CREATE TABLE orgs.invites (
    id uuid CONSTRAINT invites_pkey PRIMARY KEY,
    org_id uuid NOT NULL CONSTRAINT invites_org_id_fkey REFERENCES orgs.orgs (id) ON DELETE CASCADE,
    -- The address as entered. Comparisons ignore case.
    email text NOT NULL,
    role text NOT NULL CONSTRAINT invites_role_check CHECK (role IN ('viewer', 'member', 'admin')),
    -- SHA-256 of the newest token. A resend replaces it.
    token_hash bytea NOT NULL CONSTRAINT invites_token_hash_key UNIQUE,
    -- SHA-256 of the token in the newest mail, and the admin who knows the token. The token stays valid if a resend
    -- sends no mail.
    mailed_token_hash bytea CONSTRAINT invites_mailed_token_hash_key UNIQUE,
    mailed_by uuid,
    invited_by uuid NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    sent_at timestamptz,
    -- The time at which the invitation was accepted or revoked, and the user who accepted it.
    ended_at timestamptz,
    accepted_by uuid,
    CONSTRAINT invites_accepted_by_check CHECK (accepted_by IS NULL OR ended_at IS NOT NULL),
    CONSTRAINT invites_mailed_by_check CHECK ((mailed_token_hash IS NULL) = (mailed_by IS NULL))
);
-- There is at most one open invitation per organization and address.
CREATE UNIQUE INDEX invites_org_id_email_key ON orgs.invites (org_id, lower(email)) WHERE ended_at IS NULL;
CREATE INDEX invites_org_id_idx ON orgs.invites (org_id, id) WHERE ended_at IS NULL;
CREATE INDEX invites_org_id_ended_at_idx ON orgs.invites (org_id, ended_at);

-- The invitation mails of the last day, for the limits on mails. Old rows are deleted when the organization invites
-- again.
CREATE TABLE orgs.invite_mails (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT invite_mails_pkey PRIMARY KEY,
    org_id uuid NOT NULL CONSTRAINT invite_mails_org_id_fkey REFERENCES orgs.orgs (id) ON DELETE CASCADE,
    invited_by uuid NOT NULL,
    -- The address in lower case.
    email text NOT NULL,
    -- The time at which the mail is due. If the mail was withdrawn before that time, there is no row.
    due_at timestamptz NOT NULL
);
CREATE INDEX invite_mails_org_id_due_at_idx ON orgs.invite_mails (org_id, due_at);
CREATE INDEX invite_mails_invited_by_due_at_idx ON orgs.invite_mails (invited_by, due_at);

CREATE TABLE orgs.notifications (
    id uuid CONSTRAINT notifications_pkey PRIMARY KEY,
    org_id uuid NOT NULL CONSTRAINT notifications_org_id_fkey REFERENCES orgs.orgs (id) ON DELETE CASCADE,
    kind text NOT NULL CONSTRAINT notifications_kind_check CHECK (kind IN (
        'limit.projects', 'limit.storage', 'limit.email', 'limit.ai_credit', 'backup.failed', 'backup.stale',
        'restore.completed', 'restore.failed', 'database.deleted', 'domain.expiring', 'payment.failed',
        'limit.database', 'hostname.unproved', 'hostname.taken_over', 'certificate.failed', 'zone.taken_over'
    )),
    -- The project and its name at that time. Null for a notification about the organization as a whole.
    project_id uuid,
    project text,
    title text NOT NULL,
    message text NOT NULL,
    created_at timestamptz NOT NULL,
    -- The time at which the first mail was sent.
    sent_at timestamptz,
    CONSTRAINT notifications_project_check CHECK ((project_id IS NULL) = (project IS NULL))
);
CREATE INDEX notifications_org_id_idx ON orgs.notifications (org_id, id);
CREATE INDEX notifications_org_id_kind_idx ON orgs.notifications (org_id, kind, id);
-- For the newest notifications about a project.
CREATE INDEX notifications_org_id_project_id_idx ON orgs.notifications (org_id, project_id, id)
    WHERE project_id IS NOT NULL;

-- The only columns of identity that this context reads: profiles of members, and addresses for invitations and
-- notifications.
CREATE VIEW orgs.user_profiles AS
    SELECT id, provider, subject, name, avatar_url, email FROM identity.users;

-- The only columns of the audit log that this context reads, with the subjects of its users.
CREATE VIEW orgs.audit_events AS
    SELECT a.id, a.event, a.org_id, a.actor_id, u.subject AS actor_subject, a.credential, a.target, a.data, a.request_id, a.created_at, a.account_id
    FROM store.audit a LEFT JOIN identity.users u ON u.id = a.actor_id;
