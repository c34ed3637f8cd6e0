-- Credentials beside the login session, and sign-ins at a code host that are under way.
CREATE TABLE identity.access_tokens (
    id uuid CONSTRAINT access_tokens_pkey PRIMARY KEY,
    user_id uuid NOT NULL CONSTRAINT access_tokens_user_id_fkey REFERENCES identity.users (id) ON DELETE CASCADE,
    name text NOT NULL,
    -- SHA-256 of the token; of the token itself only the beginning is kept, for people to tell theirs apart.
    token_hash bytea NOT NULL CONSTRAINT access_tokens_token_hash_key UNIQUE,
    prefix text NOT NULL,
    scopes text[] NOT NULL,
    -- What the token is limited to: an organization, or of that nothing but the named projects and zones.
    only_org uuid,
    only_projects uuid[],
    only_zones uuid[],
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    -- To within minutes.
    last_used_at timestamptz,
    revoked_at timestamptz,
    CONSTRAINT access_tokens_only_check CHECK (only_org IS NOT NULL OR only_projects IS NULL AND only_zones IS NULL)
);
CREATE INDEX access_tokens_user_id_idx ON identity.access_tokens (user_id, id);

CREATE TABLE identity.ssh_keys (
    id uuid CONSTRAINT ssh_keys_pkey PRIMARY KEY,
    user_id uuid NOT NULL CONSTRAINT ssh_keys_user_id_fkey REFERENCES identity.users (id) ON DELETE CASCADE,
    title text NOT NULL,
    kind text NOT NULL CONSTRAINT ssh_keys_kind_check
        CHECK (kind IN ('ed25519', 'ecdsa-sha2-nistp256', 'ecdsa-sha2-nistp384', 'ecdsa-sha2-nistp521', 'rsa')),
    -- A key opens the account of one user: the fingerprint tells whose.
    fingerprint text NOT NULL CONSTRAINT ssh_keys_fingerprint_key UNIQUE,
    -- As in an authorized_keys file, without the comment.
    public_key text NOT NULL,
    created_at timestamptz NOT NULL,
    last_used_at timestamptz
);
CREATE INDEX ssh_keys_user_id_idx ON identity.ssh_keys (user_id, id);

CREATE TABLE identity.logins (
    -- SHA-256 of the state that the code host hands back, and of the cookie that binds it to one browser.
    state_hash bytea CONSTRAINT logins_pkey PRIMARY KEY,
    browser_hash bytea NOT NULL,
    -- Where the browser goes once it is signed in: checked when the login began.
    redirect text NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX logins_expires_at_idx ON identity.logins (expires_at);

-- What this context reads of the places that a token is limited to, and nothing more: their names, for as long as the
-- token's user belongs there.
CREATE VIEW identity.restrictions AS
    SELECT t.id AS token_id, o.slug AS org,
        CASE WHEN o.id IS NOT NULL AND t.only_projects IS NOT NULL THEN ARRAY(
            SELECT p.name FROM projects.projects p WHERE p.org_id = o.id AND p.id = ANY (t.only_projects) ORDER BY p.name
        ) END AS projects
    FROM identity.access_tokens t
    LEFT JOIN orgs.members m ON m.org_id = t.only_org AND m.user_id = t.user_id
    LEFT JOIN orgs.orgs o ON o.id = m.org_id
    WHERE t.only_org IS NOT NULL;
