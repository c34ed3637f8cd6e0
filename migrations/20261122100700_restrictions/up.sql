-- The names of the organization, projects and zones that a token is restricted to, while the token's user is a member
-- of the organization. This view comes last, because it reads tables of contexts that reference identity.
CREATE VIEW identity.token_restrictions AS
    SELECT t.id AS token_id, o.slug AS org,
        CASE WHEN o.id IS NOT NULL AND t.restricted_project_ids IS NOT NULL THEN ARRAY(
            SELECT p.name FROM projects.projects p WHERE p.org_id = o.id AND p.id = ANY (t.restricted_project_ids) AND p.deleted_at IS NULL ORDER BY p.name
        ) END AS projects,
        CASE WHEN o.id IS NOT NULL AND t.restricted_zone_ids IS NOT NULL THEN ARRAY(
            SELECT z.name FROM dns.zones z WHERE z.org_id = o.id AND z.id = ANY (t.restricted_zone_ids) ORDER BY z.name
        ) END AS zones
    FROM identity.access_tokens t
    LEFT JOIN orgs.members m ON m.org_id = t.restricted_org_id AND m.user_id = t.user_id
    LEFT JOIN orgs.orgs o ON o.id = m.org_id
    WHERE t.restricted_org_id IS NOT NULL;
