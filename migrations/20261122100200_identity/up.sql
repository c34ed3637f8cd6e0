-- Users, their credentials, and sign-ins at a code host that are in progress.
CREATE SCHEMA identity;

CREATE TABLE identity.users (
    id uuid CONSTRAINT users_pkey PRIMARY KEY,
    provider text NOT NULL CONSTRAINT users_provider_check CHECK (provider IN ('dev', 'codehost')),
    subject text NOT NULL,
    name text,
    email text,
    avatar_url text,
    created_at timestamptz NOT NULL,
    CONSTRAINT users_provider_subject_key UNIQUE (provider, subject)
);
CREATE INDEX users_email_idx ON identity.users (lower(email)) WHERE email IS NOT NULL;

CREATE TABLE identity.sessions (
    id uuid CONSTRAINT sessions_pkey PRIMARY KEY,
    user_id uuid NOT NULL CONSTRAINT sessions_user_id_fkey REFERENCES identity.users (id) ON DELETE CASCADE,
    -- SHA-256 of the token; the token itself is stored nowhere.
    token_hash bytea NOT NULL CONSTRAINT sessions_token_hash_key UNIQUE,
    user_agent text,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    -- To within minutes; null until the session is used well after its start.
    last_used_at timestamptz
);
CREATE INDEX sessions_user_id_idx ON identity.sessions (user_id, id);

CREATE TABLE identity.access_tokens (
    id uuid CONSTRAINT access_tokens_pkey PRIMARY KEY,
    user_id uuid NOT NULL CONSTRAINT access_tokens_user_id_fkey REFERENCES identity.users (id) ON DELETE CASCADE,
    name text NOT NULL,
    -- SHA-256 of the token; only the beginning of the token itself is stored, so that users can tell theirs apart.
    token_hash bytea NOT NULL CONSTRAINT access_tokens_token_hash_key UNIQUE,
    prefix text NOT NULL,
    scopes text[] NOT NULL,
    -- The token's restriction: an organization, or only the named projects and zones in it.
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
    -- A key opens the account of one user, which the fingerprint determines.
    fingerprint text NOT NULL CONSTRAINT ssh_keys_fingerprint_key UNIQUE,
    -- As in an authorized_keys file, without the comment.
    public_key text NOT NULL,
    created_at timestamptz NOT NULL,
    last_used_at timestamptz
);
CREATE INDEX ssh_keys_user_id_idx ON identity.ssh_keys (user_id, id);

CREATE TABLE identity.logins (
    -- SHA-256 of the state that the code host returns, and of the cookie that binds it to one browser.
    state_hash bytea CONSTRAINT logins_pkey PRIMARY KEY,
    browser_hash bytea NOT NULL,
    -- Where the browser goes after the sign-in: checked when the login began.
    redirect text NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX logins_expires_at_idx ON identity.logins (expires_at);
