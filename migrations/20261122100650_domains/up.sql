-- Domains of organizations.
CREATE SCHEMA domains;

CREATE TABLE domains.domains (
    id uuid CONSTRAINT domains_pkey PRIMARY KEY,
    org_id uuid NOT NULL CONSTRAINT domains_org_id_fkey REFERENCES orgs.orgs (id),
    -- Lowercase punycode, without the final dot.
    name text COLLATE "C" NOT NULL,
    state text NOT NULL CONSTRAINT domains_state_check
        CHECK (state IN ('registering', 'active', 'external', 'expired', 'transferred_out')),
    -- During a purchase, the state before it; null for a new domain.
    previous_state text CONSTRAINT domains_previous_state_check CHECK (previous_state IN ('external', 'transferred_out')),
    -- As the registrar described the domain last; null for an imported domain.
    registered_at timestamptz,
    expires_at timestamptz,
    -- Null while a change of the lock is in progress, and if its result is unknown.
    locked boolean,
    -- The end of the registry's transfer lock.
    transferable_at timestamptz,
    -- The price of a further year.
    renewal_cents bigint,
    nameservers text[] NOT NULL,
    auto_renew boolean NOT NULL,
    -- Raised by every change. A reading of the registrar from before a change is discarded.
    revision bigint NOT NULL DEFAULT 0,
    -- When the domain is next read at the registrar; null if the registrar does not have it.
    next_sync_at timestamptz,
    -- The last notice of the expiry: the number of days, and the expiry.
    notified_days integer,
    notified_expiry timestamptz,
    created_at timestamptz NOT NULL,
    CONSTRAINT domains_previous_state_registering_check CHECK (previous_state IS NULL OR state = 'registering'),
    CONSTRAINT domains_registered_check
        CHECK (state NOT IN ('active', 'expired') OR num_nulls(registered_at, expires_at) = 0)
);
CREATE UNIQUE INDEX domains_org_id_name_key ON domains.domains (org_id, name);
-- A domain that was transferred away may be bought or imported by another organization.
CREATE UNIQUE INDEX domains_name_live_key ON domains.domains (name) WHERE state <> 'transferred_out';
CREATE INDEX domains_org_id_idx ON domains.domains (org_id, id);
CREATE INDEX domains_next_sync_at_idx ON domains.domains (next_sync_at) WHERE next_sync_at IS NOT NULL;
CREATE INDEX domains_expires_at_idx ON domains.domains (expires_at) WHERE state = 'active';

-- The contacts of purchases.
CREATE TABLE domains.contacts (
    domain_id uuid CONSTRAINT contacts_pkey PRIMARY KEY
        CONSTRAINT contacts_domain_id_fkey REFERENCES domains.domains (id) ON DELETE CASCADE,
    -- The contact as JSON, sealed with the domain's id as its row.
    key_id text NOT NULL,
    sealed bytea NOT NULL
);

-- The changes of domains. A row never contains a contact, a code or a text of the registrar.
CREATE TABLE domains.history (
    id uuid CONSTRAINT history_pkey PRIMARY KEY,
    domain_id uuid NOT NULL CONSTRAINT history_domain_id_fkey REFERENCES domains.domains (id) ON DELETE CASCADE,
    event text NOT NULL,
    -- The user; null for the platform and for changes at the registrar.
    actor_id uuid,
    data jsonb NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX history_domain_id_idx ON domains.history (domain_id, id);

-- The charges of purchases and renewals. A row outlives its domain.
CREATE TABLE domains.charges (
    -- The id of the saga of a purchase or a renewal. A random id for an automatic renewal at the registrar, which has
    -- no saga.
    id uuid CONSTRAINT charges_pkey PRIMARY KEY,
    org_id uuid NOT NULL CONSTRAINT charges_org_id_fkey REFERENCES orgs.orgs (id),
    domain_id uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    purpose text NOT NULL CONSTRAINT charges_purpose_check CHECK (purpose IN ('purchase', 'renewal')),
    -- The expiry that a renewal reached. Each expiry is charged once. Null for a purchase.
    renewed_until timestamptz,
    cents bigint NOT NULL CONSTRAINT charges_cents_check CHECK (cents > 0),
    -- The provider's draft order. Stored before it is finalized, so that a retry finalizes the same order.
    order_id text CONSTRAINT charges_order_id_key UNIQUE,
    state text NOT NULL CONSTRAINT charges_state_check CHECK (state IN ('pending', 'paid', 'declined', 'unbilled', 'refunded', 'canceled')),
    created_at timestamptz NOT NULL
);
CREATE INDEX charges_org_id_idx ON domains.charges (org_id, id);
CREATE UNIQUE INDEX charges_renewal_key ON domains.charges (domain_id, renewed_until)
    WHERE purpose = 'renewal' AND state <> 'canceled';
CREATE INDEX charges_unpaid_renewal_idx ON domains.charges (org_id, created_at, id)
    WHERE purpose = 'renewal' AND state IN ('pending', 'declined', 'unbilled');
