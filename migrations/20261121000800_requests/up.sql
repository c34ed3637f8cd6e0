-- What the processes of one deployment tell each other about requests.

-- How far each caller's rate is used up. Losing it costs nobody anything, so it is not worth a log.
CREATE UNLOGGED TABLE store.rates (
    key text CONSTRAINT rates_pkey PRIMARY KEY,
    -- When the caller will have everything again, in microseconds since 1970.
    full_at bigint NOT NULL,
    -- What the last request for permits was granted.
    granted bigint NOT NULL
);
CREATE INDEX rates_full_at_idx ON store.rates (full_at);

-- Requests that came with an Idempotency-Key, and what they were answered.
CREATE TABLE store.idempotency (
    id uuid CONSTRAINT idempotency_pkey PRIMARY KEY,
    -- The credential, a digest of method and address, and the key that the client chose.
    caller text NOT NULL,
    route text NOT NULL,
    key text NOT NULL,
    -- SHA-256 of the body; null until it is known.
    body bytea,
    -- Raised whenever another request takes over from one that was given up: the older one can commit nothing any more.
    attempt integer NOT NULL,
    lease_until timestamptz NOT NULL,
    -- Set by the very transaction that the request is about.
    committed boolean NOT NULL,
    -- The answer, sealed: it may hold a secret.
    answer bytea,
    key_id text,
    expires_at timestamptz NOT NULL,
    CONSTRAINT idempotency_caller_route_key_key UNIQUE (caller, route, key),
    CONSTRAINT idempotency_answer_check CHECK ((answer IS NULL) = (key_id IS NULL))
);
CREATE INDEX idempotency_expires_at_idx ON store.idempotency (expires_at);
