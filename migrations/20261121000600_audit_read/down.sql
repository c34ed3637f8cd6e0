DROP VIEW orgs.audit;
DROP INDEX store.audit_org_id_actor_id_idx;
DROP INDEX store.audit_org_id_event_idx;
