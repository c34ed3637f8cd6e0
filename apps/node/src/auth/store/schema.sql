-- Version 1 of the schema of app user auth. The login of app user auth owns it. It contains only built-in types, and
-- no object refers to it, so a restore can load it before all other objects.
CREATE SCHEMA svc_auth;

-- The subscribers. `name`, `email`, `avatar_url` and `provider` are those of the last sign-in.
CREATE TABLE svc_auth.users (
    id uuid PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    provider text NOT NULL,
    name text,
    email text,
    avatar_url text
);

-- The accounts at providers. A provider identifies an account by its `subject`.
CREATE TABLE svc_auth.identities (
    provider text NOT NULL,
    subject text NOT NULL,
    -- The registration of the provider. Identities of an earlier registration have ended.
    registration bigint NOT NULL,
    user_id uuid NOT NULL REFERENCES svc_auth.users ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- The address that an OpenID provider calls verified, with its domain in lower case.
    verified_email text,
    -- The clients of the last and of the first sign-in. A provider can state another subject for each client. If they
    -- differ, it does not.
    client_id text NOT NULL,
    first_client_id text NOT NULL,
    PRIMARY KEY (provider, subject)
);
CREATE INDEX identities_user_id ON svc_auth.identities (user_id);
CREATE INDEX identities_client_id ON svc_auth.identities (provider, registration, client_id)
    WHERE first_client_id <> client_id;
CREATE INDEX identities_verified_email ON svc_auth.identities (verified_email) WHERE verified_email IS NOT NULL;

CREATE TABLE svc_auth.sessions (
    created_at timestamptz NOT NULL DEFAULT now(),
    -- The last request with the session; up to a day old.
    used_at timestamptz NOT NULL DEFAULT now(),
    -- The session has ended if one of these numbers differs from the current one.
    "grant" bigint NOT NULL,
    epoch bigint NOT NULL,
    registration bigint NOT NULL,
    user_id uuid NOT NULL REFERENCES svc_auth.users ON DELETE CASCADE,
    -- A digest of the state of the flow that created the session: a flow creates at most one.
    state uuid NOT NULL CONSTRAINT sessions_state UNIQUE,
    -- The SHA-256 of the token in the cookie.
    token bytea PRIMARY KEY,
    provider text NOT NULL
);
CREATE INDEX sessions_used_at ON svc_auth.sessions (used_at);
CREATE INDEX sessions_user_id ON svc_auth.sessions (user_id);

COMMENT ON SCHEMA svc_auth IS 'version 1';
