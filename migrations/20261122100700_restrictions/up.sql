-- All that identity reads of the targets that a token is restricted to: their names, as long as the token's user is a
-- member there. It reads tables of contexts that refer to identity, so it comes after them.
CREATE VIEW identity.restrictions AS
    SELECT t.id AS token_id, o.slug AS org,
        CASE WHEN o.id IS NOT NULL AND t.only_projects IS NOT NULL THEN ARRAY(
            SELECT p.name FROM projects.projects p WHERE p.org_id = o.id AND p.id = ANY (t.only_projects) AND p.deleted_at IS NULL ORDER BY p.name
        ) END AS projects,
        CASE WHEN o.id IS NOT NULL AND t.only_zones IS NOT NULL THEN ARRAY(
            SELECT z.name FROM dns.zones z WHERE z.org_id = o.id AND z.id = ANY (t.only_zones) ORDER BY z.name
        ) END AS zones
    FROM identity.access_tokens t
    LEFT JOIN orgs.members m ON m.org_id = t.only_org AND m.user_id = t.user_id
    LEFT JOIN orgs.orgs o ON o.id = m.org_id
    WHERE t.only_org IS NOT NULL;
