-- What every context writes in its own commits: the audit log.
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

-- Append-only for everybody, the owner of the table included.
CREATE FUNCTION store.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: the table is append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON store.audit
    FOR EACH STATEMENT EXECUTE FUNCTION store.refuse_change();
