-- Customers, subscriptions and AI credit of organizations.
CREATE SCHEMA billing;

-- The webhooks of the payments provider that were applied or recorded. Kept permanently, so that each is applied once.
CREATE TABLE billing.webhooks (
    -- The header `webhook-id`.
    id text CONSTRAINT webhooks_pkey PRIMARY KEY,
    event text NOT NULL,
    received_at timestamptz NOT NULL
);

-- Events that belong to no known organization. An operator decides about them.
CREATE TABLE billing.unassigned_events (
    webhook_id text CONSTRAINT unassigned_events_pkey PRIMARY KEY
        CONSTRAINT unassigned_events_webhook_id_fkey REFERENCES billing.webhooks (id),
    event text NOT NULL,
    -- The organization as the event names it.
    organization text,
    -- The body as it was received.
    body text NOT NULL,
    received_at timestamptz NOT NULL
);
CREATE INDEX unassigned_events_received_at_idx ON billing.unassigned_events (received_at);

-- The customers at the payments provider, as far as webhooks named them.
CREATE TABLE billing.customers (
    org_id uuid CONSTRAINT customers_pkey PRIMARY KEY
        CONSTRAINT customers_org_id_fkey REFERENCES orgs.orgs (id),
    -- The provider's id.
    customer_id text NOT NULL
);

-- Subscriptions of the pro product.
CREATE TABLE billing.subscriptions (
    -- The provider's id.
    id text CONSTRAINT subscriptions_pkey PRIMARY KEY,
    org_id uuid NOT NULL CONSTRAINT subscriptions_org_id_fkey REFERENCES orgs.orgs (id),
    -- The provider's word.
    status text NOT NULL,
    current_period_end timestamptz,
    cancel_at_period_end boolean NOT NULL,
    -- The provider's modification time. An older event changes nothing.
    modified_at timestamptz NOT NULL
);
CREATE INDEX subscriptions_org_id_idx ON billing.subscriptions (org_id);

-- The AI credit of organizations, in microcents: 1 cent is 1,000,000 microcents. The balance changes only together with
-- a row of the ledger, in one statement.
CREATE TABLE billing.accounts (
    org_id uuid CONSTRAINT accounts_pkey PRIMARY KEY
        CONSTRAINT accounts_org_id_fkey REFERENCES orgs.orgs (id),
    balance_micro_cents bigint NOT NULL,
    last_ledger_id bigint NOT NULL CONSTRAINT accounts_last_ledger_id_check CHECK (last_ledger_id > 0)
);

-- The changes of an account. The ids of an account have no gaps, and rise like the running balances.
CREATE TABLE billing.ledger (
    org_id uuid NOT NULL CONSTRAINT ledger_org_id_fkey REFERENCES billing.accounts (org_id),
    ledger_id bigint NOT NULL CONSTRAINT ledger_ledger_id_check CHECK (ledger_id > 0),
    kind text NOT NULL CONSTRAINT ledger_kind_check CHECK (kind IN ('call', 'topup', 'adjust')),
    amount_micro_cents bigint NOT NULL,
    -- After this row.
    balance_micro_cents bigint NOT NULL,
    -- The provider's order of a top-up. Each order is credited once.
    order_id text CONSTRAINT ledger_order_id_key UNIQUE,
    created_at timestamptz NOT NULL,
    CONSTRAINT ledger_pkey PRIMARY KEY (org_id, ledger_id),
    CONSTRAINT ledger_order_id_check CHECK ((kind = 'topup') = (order_id IS NOT NULL)),
    CONSTRAINT ledger_amount_check CHECK (kind <> 'topup' OR amount_micro_cents > 0)
);
CREATE TRIGGER ledger_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing.ledger
    FOR EACH STATEMENT EXECUTE FUNCTION store.reject_change();
