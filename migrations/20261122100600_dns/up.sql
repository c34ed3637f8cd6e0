-- DNS zones of organizations, and their catalog zone (RFC 9432).
CREATE SCHEMA dns;

CREATE TABLE dns.zones (
    id uuid CONSTRAINT zones_pkey PRIMARY KEY,
    -- Null only for the catalog zone.
    org_id uuid CONSTRAINT zones_org_id_fkey REFERENCES orgs.orgs (id),
    -- Absolute, lowercase punycode, without the final dot.
    name text COLLATE "C" NOT NULL,
    -- The labels from the root down, each followed by a dot. The path of every name in the zone starts with this path.
    path text COLLATE "C" NOT NULL,
    serial bigint NOT NULL CONSTRAINT zones_serial_check CHECK (serial BETWEEN 0 AND 4294967295),
    -- The number of rows in dns.rrsets.
    rrset_count integer NOT NULL CONSTRAINT zones_rrset_count_check CHECK (rrset_count >= 0),
    -- The number of the last journal entry.
    last_change_number bigint NOT NULL,
    dnssec_state text NOT NULL CONSTRAINT zones_dnssec_state_check CHECK (dnssec_state IN ('off', 'signing', 'ds_pending')),
    -- The recorded DS records: an array of {keyTag, algorithm, digestType, digest}.
    ds jsonb NOT NULL,
    -- The last signer check; null before the first.
    signer jsonb,
    -- When the next signer check is due; null if none is scheduled.
    signer_check_at timestamptz,
    created_at timestamptz NOT NULL,
    CONSTRAINT zones_ds_check CHECK (dnssec_state <> 'off' OR ds = '[]')
);
CREATE UNIQUE INDEX zones_name_key ON dns.zones (name);
CREATE UNIQUE INDEX zones_path_key ON dns.zones (path);
CREATE UNIQUE INDEX zones_catalog_key ON dns.zones ((org_id IS NULL)) WHERE org_id IS NULL;
CREATE INDEX zones_org_id_idx ON dns.zones (org_id, name);
CREATE INDEX zones_signer_check_at_idx ON dns.zones (signer_check_at) WHERE signer_check_at IS NOT NULL;

CREATE TABLE dns.rrsets (
    zone_id uuid NOT NULL CONSTRAINT rrsets_zone_id_fkey REFERENCES dns.zones (id),
    -- Relative to the zone, lowercase; @ for the apex.
    name text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    ttl integer NOT NULL,
    -- The RDATA of each record in wire format, preceded by a two-byte length, in canonical order.
    rdata bytea NOT NULL CONSTRAINT rrsets_rdata_check CHECK (octet_length(rdata) > 0),
    -- Set for rrsets that users may not change.
    managed_by text CONSTRAINT rrsets_managed_by_check CHECK (managed_by IN ('system', 'project', 'certificate')),
    CONSTRAINT rrsets_pkey PRIMARY KEY (zone_id, name, kind)
);

-- The journal of rrset changes by serial, for incremental zone transfers. Only the newest entries are kept.
CREATE TABLE dns.changes (
    zone_id uuid NOT NULL CONSTRAINT changes_zone_id_fkey REFERENCES dns.zones (id),
    -- Consecutive within the kept entries.
    number bigint NOT NULL,
    from_serial bigint NOT NULL,
    to_serial bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    old_ttl integer,
    old_rdata bytea,
    new_ttl integer,
    new_rdata bytea,
    CONSTRAINT changes_pkey PRIMARY KEY (zone_id, number)
);

-- The catalog zone. Its name is a setting, and its records are relative to it.
INSERT INTO dns.zones (id, name, path, serial, rrset_count, last_change_number, dnssec_state, ds, created_at)
    VALUES ('00000000-0000-0000-0000-000000000000', '', '', 0, 2, 0, 'off', '[]', 'epoch');
INSERT INTO dns.rrsets (zone_id, name, kind, ttl, rdata, managed_by) VALUES
    ('00000000-0000-0000-0000-000000000000', '@', 'NS', 0, '\x000907696e76616c696400', 'system'),
    ('00000000-0000-0000-0000-000000000000', 'version', 'TXT', 0, '\x00020132', 'system');
