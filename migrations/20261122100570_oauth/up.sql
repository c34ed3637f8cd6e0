-- Connected apps: the OAuth 2.0 authorization server.
CREATE SCHEMA oauth;

CREATE TABLE oauth.clients (
    id uuid CONSTRAINT clients_pkey PRIMARY KEY,
    name text NOT NULL,
    redirect_uris text[] NOT NULL,
    scopes text[] NOT NULL,
    -- SHA-256 of the secret. Null for a public client.
    secret_hash bytea,
    -- Whether the client may use the device flow.
    device boolean NOT NULL,
    created_at timestamptz NOT NULL
);

-- The keys that sign access tokens. A key is published when it is created, and begins to sign later.
CREATE TABLE oauth.signing_keys (
    id uuid CONSTRAINT signing_keys_pkey PRIMARY KEY,
    -- The public P-256 key, as an uncompressed point (65 bytes).
    public_key bytea NOT NULL,
    -- The PKCS#8 document, sealed.
    private_key bytea NOT NULL,
    key_id text NOT NULL,
    created_at timestamptz NOT NULL,
    signs_from timestamptz NOT NULL
);

-- A grant exists as long as its tokens can be used. Ending a grant deletes its row, and with it its code. Its refresh
-- tokens then cannot be used, and are deleted later. A statement that changes tokens of a grant locks the row of the
-- grant first.
CREATE TABLE oauth.grants (
    id uuid CONSTRAINT grants_pkey PRIMARY KEY,
    client_id uuid NOT NULL CONSTRAINT grants_client_id_fkey REFERENCES oauth.clients (id) ON DELETE CASCADE,
    user_id uuid NOT NULL CONSTRAINT grants_user_id_fkey REFERENCES identity.users (id) ON DELETE CASCADE,
    scopes text[] NOT NULL,
    created_at timestamptz NOT NULL,
    last_used_at timestamptz,
    expires_at timestamptz NOT NULL,
    -- The sealed current refresh token. It is stored while a client may repeat the refresh that created it.
    successor bytea,
    key_id text,
    CONSTRAINT grants_successor_check CHECK ((successor IS NULL) = (key_id IS NULL))
);
-- For the listing of a user.
CREATE INDEX grants_user_id_idx ON oauth.grants (user_id, id);
CREATE INDEX grants_client_id_idx ON oauth.grants (client_id, user_id);
CREATE INDEX grants_expires_at_idx ON oauth.grants (expires_at);
CREATE INDEX grants_successor_idx ON oauth.grants (id) WHERE successor IS NOT NULL;

CREATE TABLE oauth.codes (
    code_hash bytea CONSTRAINT codes_pkey PRIMARY KEY,
    client_id uuid NOT NULL CONSTRAINT codes_client_id_fkey REFERENCES oauth.clients (id) ON DELETE CASCADE,
    user_id uuid NOT NULL CONSTRAINT codes_user_id_fkey REFERENCES identity.users (id) ON DELETE CASCADE,
    redirect_uri text NOT NULL,
    code_challenge text NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    -- Set by the exchange. A used code is kept as long as its grant.
    grant_id uuid CONSTRAINT codes_grant_id_fkey REFERENCES oauth.grants (id) ON DELETE CASCADE
);
CREATE INDEX codes_client_id_idx ON oauth.codes (client_id);
CREATE INDEX codes_user_id_idx ON oauth.codes (user_id);
CREATE INDEX codes_grant_id_idx ON oauth.codes (grant_id);
CREATE INDEX codes_expires_at_idx ON oauth.codes (expires_at) WHERE grant_id IS NULL;

CREATE TABLE oauth.refresh_tokens (
    token_hash bytea CONSTRAINT refresh_tokens_pkey PRIMARY KEY,
    -- There is no foreign key: the number of used tokens of a grant has no limit, so the statement that ends the grant
    -- must not delete them.
    grant_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    -- Set by the refresh that used the token and created its successor.
    rotated_at timestamptz,
    successor_hash bytea,
    CONSTRAINT refresh_tokens_successor_hash_check CHECK ((rotated_at IS NULL) = (successor_hash IS NULL))
);
CREATE INDEX refresh_tokens_grant_id_idx ON oauth.refresh_tokens (grant_id);
-- A grant has at most one refresh token that can be used.
CREATE UNIQUE INDEX refresh_tokens_current_key ON oauth.refresh_tokens (grant_id) WHERE rotated_at IS NULL;

-- Ended grants whose refresh tokens are not deleted yet. A background job deletes them in batches.
CREATE TABLE oauth.ended_grants (
    id uuid CONSTRAINT ended_grants_pkey PRIMARY KEY
);

CREATE FUNCTION oauth.record_ended_grants() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO oauth.ended_grants (id) SELECT id FROM removed;
    RETURN NULL;
END
$$;
CREATE TRIGGER grants_after_delete AFTER DELETE ON oauth.grants
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION oauth.record_ended_grants();

-- Requests of devices without a browser (RFC 8628).
CREATE TABLE oauth.device_codes (
    device_code_hash bytea CONSTRAINT device_codes_pkey PRIMARY KEY,
    user_code text NOT NULL CONSTRAINT device_codes_user_code_key UNIQUE,
    client_id uuid NOT NULL CONSTRAINT device_codes_client_id_fkey REFERENCES oauth.clients (id) ON DELETE CASCADE,
    -- SHA-256 of the client, and for a public client also of the address. Undecided requests with the same value share a
    -- limit. Null for a decided request.
    limit_key bytea,
    -- SHA-256 of the network of the address. Undecided requests of public clients with the same value share a limit.
    -- Null for a decided request, and for a confidential client.
    network_key bytea,
    scopes text[] NOT NULL,
    state text NOT NULL CONSTRAINT device_codes_state_check CHECK (state IN ('pending', 'approved', 'denied')),
    -- The user who decided.
    user_id uuid CONSTRAINT device_codes_user_id_fkey REFERENCES identity.users (id) ON DELETE CASCADE,
    -- The minimum number of seconds between two polls of the client.
    poll_interval integer NOT NULL,
    last_polled_at timestamptz,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    grant_id uuid CONSTRAINT device_codes_grant_id_fkey REFERENCES oauth.grants (id) ON DELETE CASCADE,
    CONSTRAINT device_codes_user_id_check CHECK ((state = 'pending') = (user_id IS NULL)),
    CONSTRAINT device_codes_limit_key_check CHECK ((state = 'pending') = (limit_key IS NOT NULL)),
    CONSTRAINT device_codes_network_key_check CHECK (state = 'pending' OR network_key IS NULL)
);
CREATE INDEX device_codes_client_id_idx ON oauth.device_codes (client_id);
-- For the limits of undecided requests.
CREATE INDEX device_codes_limit_key_idx ON oauth.device_codes (limit_key, expires_at) WHERE limit_key IS NOT NULL;
CREATE INDEX device_codes_network_key_idx ON oauth.device_codes (network_key, expires_at) WHERE network_key IS NOT NULL;
CREATE INDEX device_codes_user_id_idx ON oauth.device_codes (user_id);
CREATE INDEX device_codes_grant_id_idx ON oauth.device_codes (grant_id);
CREATE INDEX device_codes_expires_at_idx ON oauth.device_codes (expires_at) WHERE grant_id IS NULL;
