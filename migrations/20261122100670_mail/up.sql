-- Mail of projects: the log, deliveries to workers, and suppressed recipients.
CREATE SCHEMA mail;

-- The projects that sent or received mail. The lock of a row serializes the submissions of its project, so that the
-- hourly limit is exact. A row outlives its project until the project's mail is deleted, so there is no foreign key.
CREATE TABLE mail.mailboxes (
    project_id uuid CONSTRAINT mailboxes_pkey PRIMARY KEY,
    -- The bytes of the stored mail: the sums of stored_bytes of the messages, by direction.
    received_bytes bigint NOT NULL DEFAULT 0 CONSTRAINT mailboxes_received_bytes_check CHECK (received_bytes >= 0),
    sent_bytes bigint NOT NULL DEFAULT 0 CONSTRAINT mailboxes_sent_bytes_check CHECK (sent_bytes >= 0),
    -- The time of the last notification about the hourly limit. Later refusals in the same hour raise no other one.
    limit_notice_at timestamptz,
    -- The time at which the project was purged. From then on, a job deletes its mail.
    purged_at timestamptz
);
CREATE INDEX mailboxes_purged_at_idx ON mail.mailboxes (purged_at) WHERE purged_at IS NOT NULL;

-- The log: a row for each mail that was sent or received. The partitions are the months (UTC) of the ids, which are
-- UUIDv7, so that a lookup by id reads one partition.
CREATE TABLE mail.messages (
    -- The node or the mail node creates the id.
    id uuid CONSTRAINT messages_pkey PRIMARY KEY,
    project_id uuid NOT NULL,
    direction text NOT NULL CONSTRAINT messages_direction_check CHECK (direction IN ('in', 'out')),
    -- The envelope. The null sender is empty.
    sender text NOT NULL,
    recipients text[] NOT NULL,
    subject text,
    outcome text NOT NULL CONSTRAINT messages_outcome_check
        CHECK (outcome IN ('queued', 'sent', 'delivered', 'bounced', 'complained', 'rejected', 'received')),
    detail text,
    -- The length of the raw message.
    size_bytes bigint NOT NULL CONSTRAINT messages_size_bytes_check CHECK (size_bytes >= 0),
    -- The bytes that count towards the limit of the project: those of the raw message, at least 4 KiB, and those of
    -- recipients and subject.
    stored_bytes bigint NOT NULL CONSTRAINT messages_stored_bytes_check CHECK (stored_bytes >= 0),
    -- The SPF result of a received mail.
    spf text,
    -- Whether the mail store has the raw message.
    has_raw boolean NOT NULL,
    -- The relay's id of a sent mail. The relay may use an id more than once.
    relay_id text,
    -- The time of the submission at the control plane, or of the reception at the mail node.
    created_at timestamptz NOT NULL,
    CONSTRAINT messages_spf_direction_check CHECK ((spf IS NULL) = (direction = 'out'))
) PARTITION BY RANGE (id);
CREATE INDEX messages_project_id_id_idx ON mail.messages (project_id, id);
CREATE INDEX messages_project_id_direction_id_idx ON mail.messages (project_id, direction, id);
-- For the counts of recent mail, and for the retention.
CREATE INDEX messages_project_id_direction_created_at_idx ON mail.messages (project_id, direction, created_at);
CREATE INDEX messages_relay_id_idx ON mail.messages (relay_id) WHERE relay_id IS NOT NULL;

-- The rows of months without a partition. They are there only if a clock is wrong by weeks, or before the job that
-- creates partitions has run for the first time.
CREATE TABLE mail.messages_default PARTITION OF mail.messages DEFAULT;

-- Returns the lowest UUIDv7 of a day (UTC).
CREATE FUNCTION mail.first_id(day date) RETURNS uuid LANGUAGE sql IMMUTABLE SET search_path = '' AS $$
    SELECT (pg_catalog.lpad(pg_catalog.to_hex(
        (EXTRACT(epoch FROM day::timestamp AT TIME ZONE 'UTC') * 1000)::bigint), 12, '0') || pg_catalog.repeat('0', 20))::uuid
$$;

-- Creates the partition of a month, and moves the month's rows from the default partition to it. Returns false if the
-- partition exists. Executes as the owner of the tables, because the role of the server cannot create tables.
CREATE FUNCTION mail.create_partition(month date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
DECLARE
    name text := 'messages_' || pg_catalog.to_char(month, 'YYYY_MM');
    lower_id uuid := mail.first_id(pg_catalog.date_trunc('month', month)::date);
    upper_id uuid := mail.first_id((pg_catalog.date_trunc('month', month) + interval '1 month')::date);
BEGIN
    IF pg_catalog.to_regclass('mail.' || name) IS NOT NULL THEN
        RETURN false;
    END IF;
    -- Two servers do not create the partition concurrently, and no row of the month appears in the default partition.
    LOCK TABLE mail.messages_default IN ACCESS EXCLUSIVE MODE;
    IF pg_catalog.to_regclass('mail.' || name) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE pg_catalog.format('CREATE TABLE mail.%I (LIKE mail.messages INCLUDING ALL)', name);
    EXECUTE pg_catalog.format('WITH moved AS (DELETE FROM mail.messages_default WHERE id >= %L AND id < %L RETURNING *) '
        'INSERT INTO mail.%I SELECT * FROM moved', lower_id, upper_id, name);
    EXECUTE pg_catalog.format('ALTER TABLE mail.messages ATTACH PARTITION mail.%I FOR VALUES FROM (%L) TO (%L)',
        name, lower_id, upper_id);
    RETURN true;
END $$;

-- Drops the empty partitions of months that ended before this day, and returns their number. The retention of mail
-- empties them.
CREATE FUNCTION mail.drop_partitions(before date) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
DECLARE
    partition text;
    occupied boolean;
    dropped integer := 0;
BEGIN
    FOR partition IN
        SELECT c.relname FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'mail.messages'::regclass AND c.relname ~ '^messages_\d{4}_\d{2}$'
            AND pg_catalog.to_date(pg_catalog.right(c.relname, 7), 'YYYY_MM') + interval '1 month' <= before
    LOOP
        EXECUTE pg_catalog.format('SELECT EXISTS (SELECT FROM mail.%I)', partition) INTO occupied;
        CONTINUE WHEN occupied;
        -- No row appears between the check and the drop. Queries lock the parent first.
        LOCK TABLE mail.messages IN ACCESS EXCLUSIVE MODE;
        EXECUTE pg_catalog.format('LOCK TABLE mail.%I IN ACCESS EXCLUSIVE MODE', partition);
        EXECUTE pg_catalog.format('SELECT EXISTS (SELECT FROM mail.%I)', partition) INTO occupied;
        CONTINUE WHEN occupied;
        EXECUTE pg_catalog.format('DROP TABLE mail.%I', partition);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;

-- Received mail that a worker must still handle.
CREATE TABLE mail.deliveries (
    mail_id uuid CONSTRAINT deliveries_pkey PRIMARY KEY,
    project_id uuid NOT NULL,
    -- The number of the last attempt; 0 before the first one.
    attempts integer NOT NULL DEFAULT 0 CONSTRAINT deliveries_attempts_check CHECK (attempts >= 0),
    -- The number of attempts that a node reported as failed, which determines the delay of the next one. An attempt whose
    -- claim was lost is not among them.
    failures integer NOT NULL DEFAULT 0 CONSTRAINT deliveries_failures_check CHECK (failures >= 0),
    -- The node that claimed the mail. Null while no attempt is in progress.
    node_id uuid,
    -- The time of the next attempt. While a node has the mail, the end of its lease.
    next_attempt_at timestamptz NOT NULL,
    -- The time after which there is no further attempt: 24 hours after the first claim. Before it, 30 days after the
    -- commit.
    expires_at timestamptz NOT NULL
);
CREATE INDEX deliveries_project_id_next_attempt_at_idx ON mail.deliveries (project_id, next_attempt_at);
CREATE INDEX deliveries_expires_at_idx ON mail.deliveries (expires_at);
CREATE INDEX deliveries_node_id_idx ON mail.deliveries (node_id) WHERE node_id IS NOT NULL;

-- Recipients that a project may not send to, because a mail to them bounced permanently or they complained.
CREATE TABLE mail.suppressions (
    project_id uuid NOT NULL,
    -- In lower case.
    address text COLLATE "C" NOT NULL,
    reason text NOT NULL CONSTRAINT suppressions_reason_check CHECK (reason IN ('bounce', 'complaint')),
    detail text,
    created_at timestamptz NOT NULL,
    CONSTRAINT suppressions_pkey PRIMARY KEY (project_id, address)
);
-- For the deletion of the oldest ones of a project that has too many.
CREATE INDEX suppressions_project_id_reason_created_at_idx ON mail.suppressions (project_id, reason, created_at);

-- The notifications of the relay's service, so that each one is applied only once. Rows are deleted with the last mail
-- that has the relay's id, or after a day without such a mail.
CREATE TABLE mail.notifications (
    -- The id of the notification.
    id text CONSTRAINT notifications_pkey PRIMARY KEY,
    relay_id text NOT NULL,
    -- The event, with the recipients that no mail with the relay's id has: the relay can send a notification before the
    -- server has stored the relay's response. Null for an applied event.
    pending jsonb,
    received_at timestamptz NOT NULL
);
CREATE INDEX notifications_relay_id_idx ON mail.notifications (relay_id);
CREATE INDEX notifications_pending_idx ON mail.notifications (relay_id) WHERE pending IS NOT NULL;

-- The columns of projects that this context reads. Deleted projects are excluded. The home node is null while the
-- project is suspended. This is a condition of the join, because Postgres cannot use an index for a computed column.
CREATE VIEW mail.projects AS
    SELECT p.id, p.name, p.org_id, o.slug, o.plan, d.domain AS email_domain, l.node_id AS home_node_id,
        o.pro_retention_until
    FROM projects.projects p JOIN orgs.orgs o ON o.id = p.org_id
        LEFT JOIN resources.email_domains d ON d.project_id = p.id
        LEFT JOIN convergence.placements l
            ON l.project_id = p.id AND l.ended_at IS NULL AND l.state <> 'suspended'
    WHERE p.deleted_at IS NULL;
