-- Tables that every context writes in its own transactions: the audit log, the outbox, and request state.
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
    created_at timestamptz NOT NULL,
    -- The user whose account the event concerns; null for events of organizations and of the platform.
    account_id uuid
);
-- For keyset pagination of an organization's log, newest first, optionally filtered by event or actor.
CREATE INDEX audit_org_id_idx ON store.audit (org_id, id);
CREATE INDEX audit_org_id_event_idx ON store.audit (org_id, event, id);
CREATE INDEX audit_org_id_actor_id_idx ON store.audit (org_id, actor_id, id);
-- For the log of an account.
CREATE INDEX audit_account_id_idx ON store.audit (account_id, id) WHERE account_id IS NOT NULL;

-- Rejects changes, so that the log is append-only for every role, including the owner of the table.
CREATE FUNCTION store.reject_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: the table is append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON store.audit
    FOR EACH STATEMENT EXECUTE FUNCTION store.reject_change();

-- Outbox messages: written in the commit that causes them, delivered after it, then deleted.
CREATE TABLE store.outbox (
    id uuid CONSTRAINT outbox_pkey PRIMARY KEY,
    topic text NOT NULL,
    -- The organization whose messages take turns with those of others. The nil UUID if the topic has no tenants.
    tenant_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    key text NOT NULL,
    payload bytea NOT NULL,
    key_id text NOT NULL,
    attempts integer NOT NULL CONSTRAINT outbox_attempts_check CHECK (attempts >= 0),
    next_attempt_at timestamptz NOT NULL,
    -- The time of the first failed attempt, at which the retry period begins. Null before it, and after the retry of a
    -- dead letter.
    failing_since timestamptz,
    last_error text,
    dead_lettered_at timestamptz,
    created_at timestamptz NOT NULL
);
-- For the tenants of a topic, and the due messages of a tenant, oldest first.
CREATE INDEX outbox_topic_tenant_id_next_attempt_at_idx ON store.outbox (topic, tenant_id, next_attempt_at, id)
    WHERE dead_lettered_at IS NULL;
-- For the due messages of a topic. The collation keeps it out of the plans of statements that need the index above.
CREATE INDEX outbox_topic_next_attempt_at_idx ON store.outbox (topic COLLATE "C", next_attempt_at)
    WHERE dead_lettered_at IS NULL;
-- For the withdrawal of messages by key.
CREATE INDEX outbox_topic_key_idx ON store.outbox (topic, key);

-- Rate limiter state per caller, shared by the processes of one installation. The table is unlogged, because losing it
-- harms no caller.
CREATE UNLOGGED TABLE store.rate_limits (
    key text CONSTRAINT rate_limits_pkey PRIMARY KEY,
    -- The time at which the caller's full quota is available again, in microseconds since 1970.
    reset_at bigint NOT NULL,
    -- The permits granted by the last reservation.
    granted bigint NOT NULL
);
CREATE INDEX rate_limits_reset_at_idx ON store.rate_limits (reset_at);

-- Requests with an Idempotency-Key header, and their stored responses.
CREATE TABLE store.idempotency (
    id uuid CONSTRAINT idempotency_pkey PRIMARY KEY,
    -- The identifier of the key: the credential, a digest of method and path, and the client's key.
    caller text NOT NULL,
    route text NOT NULL,
    key text NOT NULL,
    -- SHA-256 of the request body. Null until the body has been read.
    body bytea,
    -- The fencing number. A retry that takes over an expired lease increases it, so that the older attempt cannot
    -- commit.
    attempt integer NOT NULL,
    lease_expires_at timestamptz NOT NULL,
    -- Set in the transaction of the request.
    committed boolean NOT NULL,
    -- The response. It is sealed, because it may contain a secret.
    answer bytea,
    key_id text,
    expires_at timestamptz NOT NULL,
    CONSTRAINT idempotency_caller_route_key_key UNIQUE (caller, route, key),
    CONSTRAINT idempotency_answer_check CHECK ((answer IS NULL) = (key_id IS NULL))
);
CREATE INDEX idempotency_expires_at_idx ON store.idempotency (expires_at);

-- Work in several steps at providers, such as a purchase. Kept permanently.
CREATE TABLE store.sagas (
    id uuid CONSTRAINT sagas_pkey PRIMARY KEY,
    kind text NOT NULL,
    -- The object that the saga is about, such as a domain's id.
    key text NOT NULL,
    org_id uuid NOT NULL,
    -- The user who started it; null for the platform.
    user_id uuid,
    -- Never a secret or a contact.
    input jsonb NOT NULL,
    state text NOT NULL CONSTRAINT sagas_state_check CHECK (state IN ('running', 'waiting', 'done', 'failed', 'abandoned')),
    -- The current step; null before the first one.
    step text,
    -- The failed attempts since the last finished step.
    attempts integer NOT NULL,
    -- The time at which a background job continues the saga. While a runner has the lease, the end of the lease.
    next_attempt_at timestamptz NOT NULL,
    -- The number of the lease. The writes of a runner with an older number change nothing.
    lease integer NOT NULL,
    lease_until timestamptz,
    -- Never a text of a provider.
    last_error text,
    -- Why the finished steps are undone; null while the saga goes forward.
    refusal jsonb,
    -- Whether an operator asked for the end of the saga.
    is_abandoned boolean NOT NULL,
    created_at timestamptz NOT NULL,
    finished_at timestamptz,
    CONSTRAINT sagas_finished_check CHECK ((state IN ('done', 'failed', 'abandoned')) = (finished_at IS NOT NULL))
);
-- An object has one unfinished saga of a kind.
CREATE UNIQUE INDEX sagas_kind_key_open_key ON store.sagas (kind, key) WHERE finished_at IS NULL;
CREATE INDEX sagas_kind_next_attempt_at_idx ON store.sagas (kind, next_attempt_at) WHERE finished_at IS NULL;
CREATE INDEX sagas_kind_key_idx ON store.sagas (kind, key, finished_at);
-- For the purge.
CREATE INDEX sagas_finished_at_idx ON store.sagas (finished_at) WHERE finished_at IS NOT NULL;

-- The steps that were started.
CREATE TABLE store.saga_steps (
    saga_id uuid NOT NULL CONSTRAINT saga_steps_saga_id_fkey REFERENCES store.sagas (id) ON DELETE CASCADE,
    name text NOT NULL,
    -- The idempotency key at the provider.
    key text NOT NULL CONSTRAINT saga_steps_key_key UNIQUE,
    state text NOT NULL CONSTRAINT saga_steps_state_check CHECK (state IN ('started', 'done', 'refused', 'compensated')),
    attempts integer NOT NULL,
    -- The part of the provider's response that later steps need.
    response jsonb,
    -- No program reads these times: they show an operator how long the provider took.
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    -- When the last attempt began whose result is unknown, so that it may still be in progress. Null if the provider
    -- definitely did not execute any attempt.
    unanswered_at timestamptz,
    CONSTRAINT saga_steps_pkey PRIMARY KEY (saga_id, name)
);
