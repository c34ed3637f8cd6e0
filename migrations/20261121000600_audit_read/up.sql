-- Reading the audit log of an organization: by event and by actor as well, each page from an index.
CREATE INDEX audit_org_id_event_idx ON store.audit (org_id, event, id);
CREATE INDEX audit_org_id_actor_id_idx ON store.audit (org_id, actor_id, id);

-- What organizations read of the audit log, and nothing more.
CREATE VIEW orgs.audit AS
    SELECT id, event, org_id, actor_id, target, data, request_id, created_at FROM store.audit;
