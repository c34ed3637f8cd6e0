-- Users, their credentials, and code host sign-ins in progress.
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
    -- SHA-256 of the token. The token itself is not stored.
    token_hash bytea NOT NULL CONSTRAINT sessions_token_hash_key UNIQUE,
    user_agent text,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    -- The last use, accurate to ten minutes. Null until the session is used more than ten minutes after the sign-in.
    last_used_at timestamptz
);
CREATE INDEX sessions_user_id_idx ON identity.sessions (user_id, id);
CREATE INDEX sessions_expires_at_idx ON identity.sessions (expires_at);

CREATE TABLE identity.access_tokens (
    id uuid CONSTRAINT access_tokens_pkey PRIMARY KEY,
    user_id uuid NOT NULL CONSTRAINT access_tokens_user_id_fkey REFERENCES identity.users (id) ON DELETE CASCADE,
    name text NOT NULL,
    -- SHA-256 of the token. Only a prefix of the token itself is stored, so that users can recognize their tokens.
    token_hash bytea NOT NULL CONSTRAINT access_tokens_token_hash_key UNIQUE,
    prefix text NOT NULL,
    scopes text[] NOT NULL,
    -- The token restriction: a whole organization, or only the listed projects and zones in it.
    restricted_org_id uuid,
    restricted_project_ids uuid[],
    restricted_zone_ids uuid[],
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    -- The last use, accurate to ten minutes.
    last_used_at timestamptz,
    revoked_at timestamptz,
    CONSTRAINT access_tokens_restriction_check CHECK (restricted_org_id IS NOT NULL OR restricted_project_ids IS NULL AND restricted_zone_ids IS NULL)
);
CREATE INDEX access_tokens_user_id_idx ON identity.access_tokens (user_id, id);
-- For the count of a user's valid tokens, which is limited.
CREATE INDEX access_tokens_user_id_expires_at_idx ON identity.access_tokens (user_id, expires_at) WHERE revoked_at IS NULL;

CREATE TABLE identity.ssh_keys (
    id uuid CONSTRAINT ssh_keys_pkey PRIMARY KEY,
    user_id uuid NOT NULL CONSTRAINT ssh_keys_user_id_fkey REFERENCES identity.users (id) ON DELETE CASCADE,
    title text NOT NULL,
    kind text NOT NULL CONSTRAINT ssh_keys_kind_check
        CHECK (kind IN ('ed25519', 'ecdsa-sha2-nistp256', 'ecdsa-sha2-nistp384', 'ecdsa-sha2-nistp521', 'rsa')),
    -- Unique, so that a fingerprint identifies one user.
    fingerprint text NOT NULL CONSTRAINT ssh_keys_fingerprint_key UNIQUE,
    -- The key in the format of an authorized_keys file, without the comment.
    public_key text NOT NULL,
    created_at timestamptz NOT NULL,
    last_used_at timestamptz
);
CREATE INDEX ssh_keys_user_id_idx ON identity.ssh_keys (user_id, id);

CREATE TABLE identity.pending_logins (
    -- SHA-256 of the OAuth state parameter, and of the cookie that binds it to one browser.
    state_hash bytea CONSTRAINT pending_logins_pkey PRIMARY KEY,
    cookie_hash bytea NOT NULL,
    -- The URL to redirect to after the sign-in, validated at the start.
    redirect text NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX pending_logins_expires_at_idx ON identity.pending_logins (expires_at);
