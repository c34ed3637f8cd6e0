-- Who someone is: users and their login sessions.
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
