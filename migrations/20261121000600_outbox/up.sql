-- Effects outside Postgres: written in the commit that causes them, delivered after it, and then removed.
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
-- What is due of a topic, longest due first.
CREATE INDEX outbox_topic_due_at_idx ON store.outbox (topic, due_at, id) WHERE dead_at IS NULL;
-- What is withdrawn.
CREATE INDEX outbox_topic_key_idx ON store.outbox (topic, key);
