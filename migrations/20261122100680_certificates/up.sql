-- TLS certificates of hostnames, issued through ACME (RFC 8555).
CREATE SCHEMA certificates;

-- The accounts at the certificate authorities.
CREATE TABLE certificates.accounts (
    -- The URL of the directory of the authority.
    directory text CONSTRAINT accounts_pkey PRIMARY KEY,
    -- The sealed credentials: the URL and the private key of the account.
    key_id text NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamptz NOT NULL
);

-- The authorities that limit the rate of this installation. No request is sent to them before the time.
CREATE TABLE certificates.pauses (
    directory text CONSTRAINT pauses_pkey PRIMARY KEY,
    until timestamptz NOT NULL
);

-- The names that need a certificate.
CREATE TABLE certificates.names (
    -- A hostname, or a name of the platform: the wildcard of its domain, or the hostname of the API.
    name text CONSTRAINT names_pkey PRIMARY KEY,
    -- The organization of the project. For a name of the platform, the organization that hosts the platform's zones, or the
    -- nil id without such an organization.
    org_id uuid NOT NULL,
    -- The project of the hostname. Null for a name of the platform.
    project_id uuid,
    -- False once the name needs no certificate. The next run then deletes the row and everything that belongs to it.
    wanted boolean NOT NULL,
    state text NOT NULL CONSTRAINT names_state_check CHECK (state IN ('pending', 'active', 'failed')),
    -- The time of the next run. A run moves it to the end of its lease.
    due_at timestamptz NOT NULL,
    -- The number of the run, which fences the writes of earlier runs.
    run bigint NOT NULL DEFAULT 0,
    -- The number of failed orders since the last certificate.
    failures integer NOT NULL DEFAULT 0,
    last_error text,
    -- The time at which the certificate is renewed. Null without a certificate.
    renew_at timestamptz,
    -- The expiry about which the organization was last notified.
    notified_expiry timestamptz,
    created_at timestamptz NOT NULL
);
CREATE INDEX names_due_at_idx ON certificates.names (due_at);
CREATE INDEX names_project_id_idx ON certificates.names (project_id, name);

-- The current certificates. An id never changes its content.
CREATE TABLE certificates.certificates (
    id uuid CONSTRAINT certificates_pkey PRIMARY KEY,
    name text NOT NULL CONSTRAINT certificates_name_key UNIQUE
        CONSTRAINT certificates_name_fkey REFERENCES certificates.names (name),
    directory text NOT NULL,
    -- PEM, the certificate of the name first.
    chain text NOT NULL,
    -- The sealed private key: PKCS #8 as PEM.
    key_id text NOT NULL,
    sealed bytea NOT NULL,
    not_before timestamptz NOT NULL,
    not_after timestamptz NOT NULL,
    -- The identifier of the certificate for renewal information (RFC 9773 section 4.1). Null if the certificate names no
    -- key of its issuer.
    renewal_id text,
    created_at timestamptz NOT NULL
);

-- The orders in progress.
CREATE TABLE certificates.orders (
    id uuid CONSTRAINT orders_pkey PRIMARY KEY,
    name text NOT NULL CONSTRAINT orders_name_key UNIQUE
        CONSTRAINT orders_name_fkey REFERENCES certificates.names (name),
    -- The organization whose zone contains the TXT record.
    org_id uuid NOT NULL,
    directory text NOT NULL,
    -- The URL of the order at the authority.
    url text NOT NULL,
    -- The challenge that is published. Null if the authority requires none.
    challenge text CONSTRAINT orders_challenge_check CHECK (challenge IN ('dns-01', 'http-01')),
    -- The token of the challenge; its path in HTTP-01.
    token text,
    -- The TXT record of DNS-01, or the key authorization of HTTP-01.
    response text,
    -- The zone that contains the TXT record.
    zone text,
    -- The sealed private key of the certificate: PKCS #8 as PEM. It is stored before the request to issue.
    key_id text,
    sealed bytea,
    created_at timestamptz NOT NULL,
    CONSTRAINT orders_response_check CHECK (num_nulls(challenge, token, response) IN (0, 3)),
    CONSTRAINT orders_zone_check CHECK ((zone IS NOT NULL) = (challenge IS NOT DISTINCT FROM 'dns-01')),
    CONSTRAINT orders_sealed_check CHECK (num_nulls(key_id, sealed) IN (0, 2))
);
CREATE INDEX orders_token_idx ON certificates.orders (token);

-- The hostnames that are served.
CREATE VIEW certificates.hostnames AS
    SELECT h.name, h.project_id, p.org_id, p.name AS project
        FROM projects.hostnames h JOIN projects.projects p ON p.id = h.project_id
        WHERE h.state = 'active' AND p.live_version IS NOT NULL AND p.deleted_at IS NULL;

-- The columns of organizations that this context reads.
CREATE VIEW certificates.org_plans AS SELECT id, plan, created_by FROM orgs.orgs;

-- The certificates of active hostnames: the only columns of this context that projects reads. A wildcard covers the
-- default hostnames.
CREATE VIEW projects.hostname_tls AS
    SELECT h.name, n.state, n.last_error, n.expires_at
        FROM projects.hostnames h CROSS JOIN LATERAL (
            SELECT n.state, n.last_error,
                    (SELECT c.not_after FROM certificates.certificates c WHERE c.name = n.name) AS expires_at
                FROM certificates.names n
                WHERE n.wanted AND n.name = ANY (ARRAY[h.name,
                    CASE WHEN h.kind = 'default' THEN '*' || substr(h.name, strpos(h.name, '.')) END])
                ORDER BY n.state = 'active' DESC, n.name LIMIT 1
        ) n
        WHERE h.state = 'active';
