//! The tables of backups in the node's own database.

/// Statements that create the tables, if they do not exist.
pub const TABLES: &str = "
    -- The dumps in the backup store: generations and exports.
    CREATE TABLE IF NOT EXISTS svc.dumps (
        -- The object, relative to the store.
        key text PRIMARY KEY,
        project text NOT NULL,
        -- The database's id, dbs_...
        database text NOT NULL,
        kind text NOT NULL CHECK (kind IN ('scheduled', 'pre_restore', 'final', 'export')),
        epoch bigint NOT NULL,
        -- The operation or the export for which it was made.
        cause text,
        -- The time of its content: all writes that committed before are in it.
        created_at timestamptz NOT NULL,
        -- False while it is being written. Its object is deleted if it is never stored.
        stored boolean NOT NULL DEFAULT false,
        size_bytes bigint,
        sha256 text,
        -- Whether the control plane has accepted the report.
        reported boolean NOT NULL DEFAULT false,
        -- When its digest was last compared.
        checked_at timestamptz,
        -- Whether a check found it missing or corrupt.
        damaged boolean NOT NULL DEFAULT false,
        -- The days for which it is kept, and a time before which it is not deleted.
        days integer NOT NULL,
        keep_until timestamptz,
        CHECK (NOT stored OR size_bytes IS NOT NULL AND sha256 IS NOT NULL)
    );
    -- Whether the deletion of its object has begun because the dump was interrupted. It is then never stored.
    ALTER TABLE svc.dumps ADD COLUMN IF NOT EXISTS abandoned boolean NOT NULL DEFAULT false;
    -- The order of the reports. A clock that is set back does not change it.
    ALTER TABLE svc.dumps ADD COLUMN IF NOT EXISTS number bigserial;
    -- Whether another node may have written the database before the dump. Its generation is then not reported.
    ALTER TABLE svc.dumps ADD COLUMN IF NOT EXISTS outdated boolean NOT NULL DEFAULT false;
    CREATE UNIQUE INDEX IF NOT EXISTS dumps_cause ON svc.dumps (cause) WHERE stored;
    CREATE INDEX IF NOT EXISTS dumps_project ON svc.dumps (project, created_at);
    -- The state of the schedule.
    CREATE TABLE IF NOT EXISTS svc.backups (
        project text PRIMARY KEY,
        database text NOT NULL,
        -- When the last backup succeeded or was skipped; before it, when the node first saw the database.
        scheduled_at timestamptz NOT NULL,
        -- The time up to which generations contain all writes.
        fresh_at timestamptz,
        -- Identifies the content of the last generation.
        fingerprint text,
        checked_at timestamptz,
        error text
    );
";
