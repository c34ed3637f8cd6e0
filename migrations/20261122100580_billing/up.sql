-- Customers, subscriptions and AI credit of organizations.
CREATE SCHEMA billing;

-- The webhooks of the payments provider that were applied or recorded. Rows are kept permanently, so that each webhook
-- is applied only once.
CREATE TABLE billing.webhooks (
    -- The header `webhook-id`.
    id text CONSTRAINT webhooks_pkey PRIMARY KEY,
    event text NOT NULL,
    received_at timestamptz NOT NULL
);

-- Events that belong to no known organization. An operator must decide what happens to them.
CREATE TABLE billing.unassigned_events (
    webhook_id text CONSTRAINT unassigned_events_pkey PRIMARY KEY
        CONSTRAINT unassigned_events_webhook_id_fkey REFERENCES billing.webhooks (id),
    event text NOT NULL,
    -- The organization, as the event names it.
    organization text,
    -- The body as it was received.
    body text NOT NULL,
    received_at timestamptz NOT NULL
);
CREATE INDEX unassigned_events_received_at_idx ON billing.unassigned_events (received_at);

-- The customers at the payments provider that a webhook named.
CREATE TABLE billing.customers (
    org_id uuid CONSTRAINT customers_pkey PRIMARY KEY
        CONSTRAINT customers_org_id_fkey REFERENCES orgs.orgs (id),
    -- The provider's id of the customer.
    customer_id text NOT NULL
);

-- Subscriptions that have the pro product, or had it before.
CREATE TABLE billing.subscriptions (
    -- The provider's id of the subscription.
    id text CONSTRAINT subscriptions_pkey PRIMARY KEY,
    org_id uuid NOT NULL CONSTRAINT subscriptions_org_id_fkey REFERENCES orgs.orgs (id),
    -- The status in the provider's terms, or `other_product`.
    status text NOT NULL,
    current_period_end timestamptz,
    cancel_at_period_end boolean NOT NULL,
    -- The provider's modification time. An older event does not change the row.
    modified_at timestamptz NOT NULL
);
CREATE INDEX subscriptions_org_id_idx ON billing.subscriptions (org_id);

-- The AI credit of organizations, in microcents: 1 cent is 1,000,000 microcents. The balance changes only together with
-- a row of the ledger, in one statement.
CREATE TABLE billing.accounts (
    org_id uuid CONSTRAINT accounts_pkey PRIMARY KEY
        CONSTRAINT accounts_org_id_fkey REFERENCES orgs.orgs (id),
    balance_micro_cents bigint NOT NULL,
    last_ledger_id bigint NOT NULL CONSTRAINT accounts_last_ledger_id_check CHECK (last_ledger_id > 0),
    -- The time of the last row of the ledger. Times increase like the ids, even if the clocks of two processes differ
    -- by up to a minute.
    last_ledger_at timestamptz NOT NULL,
    -- The estimated cost of the calls in progress: their input, and their expected output, or their reported output if
    -- it is more.
    held_micro_cents bigint NOT NULL DEFAULT 0
);

-- The automatic top-up of an account. The row is kept when auto top-up is turned off.
CREATE TABLE billing.auto_topups (
    org_id uuid CONSTRAINT auto_topups_pkey PRIMARY KEY
        CONSTRAINT auto_topups_org_id_fkey REFERENCES orgs.orgs (id),
    enabled boolean NOT NULL,
    amount_micro_cents bigint NOT NULL,
    threshold_micro_cents bigint NOT NULL,
    CONSTRAINT auto_topups_threshold_check CHECK (0 < threshold_micro_cents AND threshold_micro_cents < amount_micro_cents)
);

-- The charges of automatic top-ups. Only the event `order.paid`, or an operator in its place, changes a balance.
CREATE TABLE billing.topup_orders (
    id uuid CONSTRAINT topup_orders_pkey PRIMARY KEY,
    org_id uuid NOT NULL CONSTRAINT topup_orders_org_id_fkey REFERENCES orgs.orgs (id),
    amount_micro_cents bigint NOT NULL CONSTRAINT topup_orders_amount_check CHECK (amount_micro_cents > 0),
    -- The provider's draft order. It is stored before it is finalized, so that a retry finalizes the same order.
    order_id text CONSTRAINT topup_orders_order_id_key UNIQUE,
    state text NOT NULL CONSTRAINT topup_orders_state_check
        CHECK (state IN ('pending', 'charged', 'credited', 'declined', 'canceled')),
    created_at timestamptz NOT NULL
);
-- An account has at most one top-up in progress, which ends when its event arrives or an operator ends it.
CREATE UNIQUE INDEX topup_orders_open_key ON billing.topup_orders (org_id) WHERE state IN ('pending', 'charged');
CREATE INDEX topup_orders_org_id_created_at_idx ON billing.topup_orders (org_id, created_at);

-- The usage of AI models by projects. A row outlives its project, like the ledger.
CREATE TABLE billing.project_usage (
    project_id uuid CONSTRAINT project_usage_pkey PRIMARY KEY,
    -- The minute of the last admitted call, and the number of calls that were admitted in it.
    minute timestamptz NOT NULL,
    minute_calls integer NOT NULL,
    -- The sums over the project's rows of the ledger.
    calls bigint NOT NULL DEFAULT 0,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    spent_micro_cents bigint NOT NULL DEFAULT 0,
    -- The estimated cost of the project's calls in progress, as in the account.
    held_micro_cents bigint NOT NULL DEFAULT 0
);

-- The calls of AI models. A call is deducted in the transaction that ends it, so it is deducted only once. Rows are
-- deleted 30 days after the end.
CREATE TABLE billing.calls (
    -- The id, which the node creates.
    id uuid CONSTRAINT calls_pkey PRIMARY KEY,
    node_id uuid NOT NULL,
    -- Null for a call that its node ended before the request for its admission arrived. Such a call is never admitted.
    org_id uuid,
    project_id uuid,
    project text,
    model text,
    -- The prices at the time of the admission, in microcents per million tokens.
    input_price bigint,
    output_price bigint,
    -- The estimates that are deducted for a call whose node never settles it.
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL DEFAULT 0,
    -- The output that the account holds from the admission on: the limit of the request, or a default.
    expected_output_tokens bigint NOT NULL DEFAULT 0,
    -- The time at which the node last reported that the call is in progress.
    seen_at timestamptz NOT NULL,
    ended_at timestamptz,
    -- Whether the call ended with its estimate, because the node no longer reported it. A later report corrects the
    -- balance.
    is_lost boolean NOT NULL DEFAULT false,
    CONSTRAINT calls_admitted_check
        CHECK (num_nulls(org_id, project_id, project, model, input_price, output_price)
            IN (0, CASE WHEN ended_at IS NULL THEN 0 ELSE 6 END))
);
CREATE INDEX calls_seen_at_idx ON billing.calls (seen_at) WHERE ended_at IS NULL;
CREATE INDEX calls_ended_at_idx ON billing.calls (ended_at) WHERE ended_at IS NOT NULL;

-- The changes of an account. The ids of an account have no gaps, and increase like the times and the running balances.
CREATE TABLE billing.ledger (
    org_id uuid NOT NULL CONSTRAINT ledger_org_id_fkey REFERENCES billing.accounts (org_id),
    ledger_id bigint NOT NULL CONSTRAINT ledger_ledger_id_check CHECK (ledger_id > 0),
    kind text NOT NULL CONSTRAINT ledger_kind_check CHECK (kind IN ('call', 'topup', 'adjust')),
    amount_micro_cents bigint NOT NULL,
    -- The balance after this row.
    balance_micro_cents bigint NOT NULL,
    -- The provider's order of a top-up. Each order is credited only once.
    order_id text,
    -- The call, its project and its usage.
    call_id uuid CONSTRAINT ledger_call_id_key UNIQUE,
    project_id uuid,
    project text,
    model text,
    input_tokens bigint,
    output_tokens bigint,
    -- Whether the usage is an estimate.
    estimated boolean NOT NULL DEFAULT false,
    -- The sums of the project's calls up to this row. So the usage of 24 hours is the difference of two rows.
    project_calls bigint,
    project_input_tokens bigint,
    project_output_tokens bigint,
    project_spent_micro_cents bigint,
    created_at timestamptz NOT NULL,
    CONSTRAINT ledger_pkey PRIMARY KEY (org_id, ledger_id),
    CONSTRAINT ledger_order_id_check CHECK ((kind = 'topup') = (order_id IS NOT NULL)),
    CONSTRAINT ledger_call_id_check CHECK (CASE kind WHEN 'call' THEN 8 ELSE 0 END = num_nonnulls(
        call_id, project_id, input_tokens, output_tokens,
        project_calls, project_input_tokens, project_output_tokens, project_spent_micro_cents)),
    -- The row of a correction names the project and the model of its call.
    CONSTRAINT ledger_project_check CHECK (num_nonnulls(project, model)
        = ANY (CASE kind WHEN 'call' THEN '{2}' WHEN 'adjust' THEN '{0,2}' ELSE '{0}' END::integer[])),
    CONSTRAINT ledger_amount_check CHECK (CASE kind
        WHEN 'topup' THEN amount_micro_cents > 0 WHEN 'call' THEN amount_micro_cents <= 0 ELSE true END)
);
-- Without entries for calls, which are most of the rows.
CREATE UNIQUE INDEX ledger_order_id_key ON billing.ledger (order_id) WHERE order_id IS NOT NULL;
CREATE INDEX ledger_project_id_created_at_idx ON billing.ledger (project_id, created_at, ledger_id) WHERE kind = 'call';
CREATE TRIGGER ledger_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing.ledger
    FOR EACH STATEMENT EXECUTE FUNCTION store.reject_change();

-- The projects with organization, plan, home node and grant, as the admission of a call reads them.
CREATE VIEW billing.ai_projects AS
    SELECT p.id, p.name, p.org_id, o.plan, l.node_id, g.project_id IS NOT NULL AS is_granted
    FROM projects.projects p JOIN orgs.orgs o ON o.id = p.org_id
        LEFT JOIN convergence.placements l ON l.project_id = p.id
        LEFT JOIN resources.grants g ON g.project_id = p.id AND g.resource = 'ai'
    WHERE p.deleted_at IS NULL;
