-- What every context writes in its own transactions: the audit log, the outbox, and the state of requests.
CREATE SCHEMA store;

CREATE TABLE store.audit (
    id uuid CONSTRAINT audit_pkey PRIMARY KEY,
    event text NOT NULL,
    org_id uuid,
    actor_id uuid,
    credential text NOT NULL,
    target text NOT NULL,
    data jsonb NOT NULL,
    request_id text NOT NULL,
    created_at timestamptz NOT NULL
);
-- Keyset pages of one organization's log, newest first; by event and by actor as well.
CREATE INDEX audit_org_id_idx ON store.audit (org_id, id);
CREATE INDEX audit_org_id_event_idx ON store.audit (org_id, event, id);
CREATE INDEX audit_org_id_actor_id_idx ON store.audit (org_id, actor_id, id);

-- Append-only for every role, including the owner of the table.
CREATE FUNCTION store.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: the table is append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON store.audit
    FOR EACH STATEMENT EXECUTE FUNCTION store.refuse_change();

-- Effects outside Postgres: written in the commit that causes them, delivered after it, then removed.
CREATE TABLE store.outbox (
    id uuid CONSTRAINT outbox_pkey PRIMARY KEY,
    topic text NOT NULL,
    key text NOT NULL,
    payload bytea NOT NULL,
    key_id text NOT NULL,
    attempts integer NOT NULL CONSTRAINT outbox_attempts_check CHECK (attempts >= 0),
    due_at timestamptz NOT NULL,
    give_up_at timestamptz NOT NULL,
    last_error text,
    dead_at timestamptz,
    created_at timestamptz NOT NULL
);
-- The due messages of a topic, longest due first.
CREATE INDEX outbox_topic_due_at_idx ON store.outbox (topic, due_at, id) WHERE dead_at IS NULL;
-- Withdrawing by key.
CREATE INDEX outbox_topic_key_idx ON store.outbox (topic, key);

-- The used part of each caller's rate, shared by the processes of one deployment. Losing it harms no caller, so it is
-- not logged.
CREATE UNLOGGED TABLE store.rates (
    key text CONSTRAINT rates_pkey PRIMARY KEY,
    -- When the caller has the whole rate again, in microseconds since 1970.
    full_at bigint NOT NULL,
    -- The permits granted by the last request for them.
    granted bigint NOT NULL
);
CREATE INDEX rates_full_at_idx ON store.rates (full_at);

-- Requests with an Idempotency-Key, and their stored responses.
CREATE TABLE store.idempotency (
    id uuid CONSTRAINT idempotency_pkey PRIMARY KEY,
    -- The credential, a digest of method and address, and the key that the client chose.
    caller text NOT NULL,
    route text NOT NULL,
    key text NOT NULL,
    -- SHA-256 of the body; null until it is known.
    body bytea,
    -- Raised when another request takes over from an abandoned one: the older one can commit nothing any more.
    attempt integer NOT NULL,
    lease_until timestamptz NOT NULL,
    -- Set by the transaction of the request itself.
    committed boolean NOT NULL,
    -- The response, sealed: it may contain a secret.
    answer bytea,
    key_id text,
    expires_at timestamptz NOT NULL,
    CONSTRAINT idempotency_caller_route_key_key UNIQUE (caller, route, key),
    CONSTRAINT idempotency_answer_check CHECK ((answer IS NULL) = (key_id IS NULL))
);
CREATE INDEX idempotency_expires_at_idx ON store.idempotency (expires_at);
