-- DNS zones of organizations, and their catalog zone (RFC 9432).
CREATE SCHEMA dns;

CREATE TABLE dns.zones (
    id uuid CONSTRAINT zones_pkey PRIMARY KEY,
    -- The organization. Null only for the catalog zone.
    org_id uuid CONSTRAINT zones_org_id_fkey REFERENCES orgs.orgs (id),
    -- The absolute name in lowercase punycode, without the final dot.
    name text COLLATE "C" NOT NULL,
    -- The labels from the root down, each followed by a dot. The path of every name in the zone starts with this path.
    path text COLLATE "C" NOT NULL,
    serial bigint NOT NULL CONSTRAINT zones_serial_check CHECK (serial BETWEEN 0 AND 4294967295),
    -- The number of rows in dns.rrsets.
    rrset_count integer NOT NULL CONSTRAINT zones_rrset_count_check CHECK (rrset_count >= 0),
    -- The bytes of the columns name and rdata of these rows.
    bytes bigint NOT NULL CONSTRAINT zones_bytes_check CHECK (bytes >= 0),
    -- The number of the last journal entry.
    last_change_number bigint NOT NULL,
    -- The bytes of the columns old_rdata and new_rdata of the zone's rows in dns.changes.
    journal_bytes bigint NOT NULL CONSTRAINT zones_journal_bytes_check CHECK (journal_bytes >= 0),
    dnssec_state text NOT NULL CONSTRAINT zones_dnssec_state_check CHECK (dnssec_state IN ('off', 'signing', 'ds_pending')),
    -- The recorded DS records: an array of {keyTag, algorithm, digestType, digest}.
    ds jsonb NOT NULL,
    -- The DS records that the signer requested (CDS) when the service last recorded them in the column ds. Empty if it
    -- has not recorded any since DNSSEC was switched.
    cds jsonb NOT NULL DEFAULT '[]',
    -- Whether the zone stays signed although DNSSEC is off, until its registry and all resolvers have no DS record of
    -- it.
    is_unsigning boolean NOT NULL DEFAULT false,
    -- The last time at which the service began to remove a DS record from the registry, or stopped adding one; null if
    -- it has done neither since the zone was last unsigned.
    ds_removed_at timestamptz,
    -- The last signer check. Null before the first check.
    signer jsonb,
    -- The time at which the next signer check is due. Null if none is scheduled.
    signer_check_at timestamptz,
    created_at timestamptz NOT NULL,
    CONSTRAINT zones_ds_check CHECK (dnssec_state <> 'off' OR (ds = '[]' AND cds = '[]')),
    CONSTRAINT zones_is_unsigning_check CHECK (dnssec_state = 'off' OR NOT is_unsigning)
);
CREATE UNIQUE INDEX zones_name_key ON dns.zones (name);
CREATE UNIQUE INDEX zones_path_key ON dns.zones (path);
CREATE UNIQUE INDEX zones_catalog_key ON dns.zones ((org_id IS NULL)) WHERE org_id IS NULL;
CREATE INDEX zones_org_id_idx ON dns.zones (org_id, name);
CREATE INDEX zones_signer_check_at_idx ON dns.zones (signer_check_at) WHERE signer_check_at IS NOT NULL;

-- Rows of dns.rrsets and dns.changes have no foreign key: when their zone is deleted, they stay until a background job
-- deletes them.
CREATE TABLE dns.rrsets (
    -- The zone, or a row of dns.purges.
    zone_id uuid NOT NULL,
    -- The name relative to the zone, in lowercase. @ for the apex.
    name text COLLATE "C" NOT NULL,
    -- The name in a form whose order is the canonical order (RFC 4034 section 6.1): its labels from the right, each
    -- followed by a zero byte.
    sort_key bytea NOT NULL,
    kind text COLLATE "C" NOT NULL,
    ttl integer NOT NULL,
    -- The RDATA of each record in wire format, preceded by a two-byte length, in canonical order.
    rdata bytea NOT NULL CONSTRAINT rrsets_rdata_check CHECK (octet_length(rdata) > 0),
    -- The part of the platform that manages the rrset. Users cannot change such rrsets.
    managed_by text CONSTRAINT rrsets_managed_by_check CHECK (managed_by IN ('system', 'project', 'certificate')),
    CONSTRAINT rrsets_pkey PRIMARY KEY (zone_id, sort_key, kind)
);
-- The deletion of a zone reads its managed rrsets while it holds the lock of the catalog.
CREATE INDEX rrsets_managed_idx ON dns.rrsets (zone_id, sort_key, kind) WHERE managed_by IS NOT NULL;

-- The journal of rrset changes by serial, for incremental zone transfers and for reads that take longer than a
-- transaction. Only the newest entries are kept.
CREATE TABLE dns.changes (
    -- The zone, or a row of dns.purges.
    zone_id uuid NOT NULL,
    -- The number of the entry. The numbers of the kept entries are consecutive.
    number bigint NOT NULL,
    from_serial bigint NOT NULL,
    to_serial bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    old_ttl integer,
    old_rdata bytea,
    old_managed_by text,
    new_ttl integer,
    new_rdata bytea,
    CONSTRAINT changes_pkey PRIMARY KEY (zone_id, number)
);

-- Deleted zones whose rrsets and journal the background job still has to delete.
CREATE TABLE dns.purges (
    zone_id uuid CONSTRAINT purges_pkey PRIMARY KEY
);

-- Deleted zones. Each row is kept while the zone's delegation may still name the platform's nameservers.
CREATE TABLE dns.deleted_zones (
    -- The id, name and path of the zone, as in dns.zones.
    id uuid CONSTRAINT deleted_zones_pkey PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    -- The organization that deleted the zone.
    org_id uuid NOT NULL CONSTRAINT deleted_zones_org_id_fkey REFERENCES orgs.orgs (id),
    -- A serial that is newer than that of the zone at the nameservers and at the signer.
    serial bigint NOT NULL CONSTRAINT deleted_zones_serial_check CHECK (serial BETWEEN 0 AND 4294967295),
    deleted_at timestamptz NOT NULL,
    -- The time at which the background job next looks up the delegation.
    next_check_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX deleted_zones_name_key ON dns.deleted_zones (name);
CREATE INDEX deleted_zones_path_idx ON dns.deleted_zones (path);
CREATE INDEX deleted_zones_org_id_idx ON dns.deleted_zones (org_id, deleted_at);
CREATE INDEX deleted_zones_next_check_at_idx ON dns.deleted_zones (next_check_at);

-- Names that are being registered. No other organization can create a zone that overlaps with one.
CREATE TABLE dns.reservations (
    -- The name and path, as in dns.zones.
    name text COLLATE "C" CONSTRAINT reservations_pkey PRIMARY KEY,
    path text COLLATE "C" NOT NULL,
    org_id uuid NOT NULL CONSTRAINT reservations_org_id_fkey REFERENCES orgs.orgs (id)
);
CREATE INDEX reservations_path_idx ON dns.reservations (path);
CREATE INDEX reservations_org_id_idx ON dns.reservations (org_id);

-- The number of zones per organization. Triggers maintain it, because count(*) gets slower with each row.
CREATE TABLE dns.zone_counts (
    org_id uuid CONSTRAINT zone_counts_pkey PRIMARY KEY CONSTRAINT zone_counts_org_id_fkey REFERENCES orgs.orgs (id) ON DELETE CASCADE,
    zones bigint NOT NULL CONSTRAINT zone_counts_zones_check CHECK (zones >= 0)
);

CREATE FUNCTION dns.count_inserted_zones() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dns.zone_counts AS c (org_id, zones)
        SELECT org_id, count(*) FROM added WHERE org_id IS NOT NULL GROUP BY org_id ORDER BY org_id
        ON CONFLICT (org_id) DO UPDATE SET zones = c.zones + EXCLUDED.zones;
    RETURN NULL;
END
$$;
CREATE TRIGGER zones_after_insert AFTER INSERT ON dns.zones
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION dns.count_inserted_zones();

CREATE FUNCTION dns.count_deleted_zones() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE dns.zone_counts c SET zones = c.zones - deleted.zones
        FROM (SELECT org_id, count(*) AS zones FROM removed WHERE org_id IS NOT NULL GROUP BY org_id) deleted
        WHERE c.org_id = deleted.org_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER zones_after_delete AFTER DELETE ON dns.zones
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION dns.count_deleted_zones();

-- The catalog zone. Its name is a setting, and its records are relative to it.
INSERT INTO dns.zones (id, name, path, serial, rrset_count, bytes, last_change_number, journal_bytes, dnssec_state, ds, created_at)
    VALUES ('00000000-0000-0000-0000-000000000000', '', '', 0, 2, 23, 0, 0, 'off', '[]', 'epoch');
INSERT INTO dns.rrsets (zone_id, name, sort_key, kind, ttl, rdata, managed_by) VALUES
    ('00000000-0000-0000-0000-000000000000', '@', '', 'NS', 0, '\x000907696e76616c696400', 'system'),
    ('00000000-0000-0000-0000-000000000000', 'version', '\x76657273696f6e00', 'TXT', 0, '\x00020132', 'system');
