-- What must hold of every database at any time. Each paragraph is a fault and the statement that finds it: whatever it
-- answers is wrong. Of what reliability asks for, there is nothing yet to be asked about a ledger, orders, sagas and
-- revoked grants: they are not built, and their statements come with them.

-- how the API spells ids, and the audit log with it
CREATE FUNCTION pg_temp.public_id(prefix text, id uuid) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT prefix || '_' || string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + five::int, 1), '' ORDER BY i)
    FROM generate_series(0, 25) i, LATERAL (
        SELECT substring(B'00' || ('x' || replace(id::text, '-', ''))::bit(128) FROM 1 + 5 * i FOR 5)::bit(5) AS five) bits
$$;

-- an organization without an admin
SELECT o.id, o.slug FROM orgs.orgs o
WHERE NOT EXISTS (SELECT FROM orgs.members m WHERE m.org_id = o.id AND m.role = 'admin');

-- a zone whose count of rrsets is not that of its rows
SELECT z.id, z.name, z.rrset_count, count(r.zone_id) AS rows
FROM dns.zones z LEFT JOIN dns.rrsets r ON r.zone_id = z.id
GROUP BY z.id HAVING z.rrset_count <> count(r.zone_id);

-- an organization whose count of projects is not that of its rows
SELECT o.id, o.slug, c.projects, count(p.id) AS rows
FROM orgs.orgs o LEFT JOIN projects.counts c ON c.org_id = o.id
    LEFT JOIN projects.projects p ON p.org_id = o.id AND p.deleted_at IS NULL
GROUP BY o.id, c.projects HAVING coalesce(c.projects, 0) <> count(p.id);

-- a node whose count of placements is not that of its rows
SELECT n.id, n.name, n.placements, count(p.project_id) AS rows
FROM convergence.nodes n LEFT JOIN convergence.placements p ON p.node_id = n.id
GROUP BY n.id HAVING n.placements <> count(p.project_id);

-- a project whose last version is not the number of its deployments
SELECT p.id, p.name, p.last_version, count(d.id) AS rows, max(d.version) AS highest
FROM projects.projects p LEFT JOIN projects.deployments d ON d.project_id = p.id
GROUP BY p.id HAVING p.last_version <> count(d.id) OR p.last_version <> coalesce(max(d.version), 0);

-- a journal of a zone with a gap, or that ends elsewhere than the zone says
SELECT z.id, z.name, z.last_change, min(c.number) AS first, max(c.number) AS last, count(*) AS rows
FROM dns.zones z JOIN dns.changes c ON c.zone_id = z.id
GROUP BY z.id HAVING max(c.number) <> z.last_change OR max(c.number) - min(c.number) + 1 <> count(*);

-- a journal of a zone that ends at another serial than the zone's, which may only be ahead of it
SELECT z.id, z.name, z.serial, c.to_serial
FROM dns.zones z JOIN dns.changes c ON c.zone_id = z.id AND c.number = z.last_change
WHERE (z.serial - c.to_serial + 4294967296) % 4294967296 >= 2147483648;

-- a part of a desired state that is newer than its node
SELECT p.project_id, p.part, p.revision, n.revision AS node
FROM convergence.parts p JOIN convergence.nodes n ON n.id = p.node_id WHERE p.revision > n.revision;

-- a part of a desired state that is not at its project's home node
SELECT p.project_id, p.part, p.node_id, c.node_id AS home
FROM convergence.parts p JOIN convergence.placements c ON c.project_id = p.project_id
WHERE p.node_id IS DISTINCT FROM c.node_id OR p.node_id IS NULL AND p.revision <> 0;

-- a placement of another deployment than the live one
SELECT p.id, p.name, p.live_version, c.desired ->> 'version' AS placed
FROM projects.projects p JOIN convergence.parts c ON c.project_id = p.id AND c.part = 'site' JOIN projects.deployments d
    ON d.project_id = p.id AND d.version = p.live_version
WHERE p.deleted_at IS NULL AND c.desired IS NOT NULL
    AND ((c.desired ->> 'version')::int <> p.live_version OR c.desired ->> 'bundle' <> 'sha256:' || encode(d.digest, 'hex'));

-- a project with two live deployments
SELECT d.project_id, array_agg(d.version) AS serving FROM projects.deployments d
WHERE d.status = 'serving' GROUP BY d.project_id HAVING count(*) > 1;

-- a project that is not deleted, and has no default hostname or is deployed without a placement
SELECT p.id, p.name FROM projects.projects p
WHERE p.deleted_at IS NULL AND (
    NOT EXISTS (SELECT FROM projects.hostnames h WHERE h.project_id = p.id AND h.kind = 'default')
    OR p.live_version IS NOT NULL AND NOT EXISTS (SELECT FROM convergence.placements c WHERE c.project_id = p.id));

-- a used invitation without its audit row, or whose user neither is a member nor was removed
SELECT i.id, i.org_id, i.accepted_by FROM orgs.invites i
WHERE i.accepted_by IS NOT NULL AND (
    NOT EXISTS (
        SELECT FROM store.audit a WHERE a.org_id = i.org_id AND a.event = 'member.accept'
            AND a.target = pg_temp.public_id('inv', i.id))
    OR NOT EXISTS (SELECT FROM orgs.members m WHERE m.org_id = i.org_id AND m.user_id = i.accepted_by)
    AND NOT EXISTS (
        SELECT FROM store.audit a WHERE a.org_id = i.org_id AND a.event IN ('member.remove', 'member.leave')
            AND a.target = pg_temp.public_id('usr', i.accepted_by)));

-- an active hostname without a proof
SELECT h.name, h.project_id FROM projects.hostnames h
WHERE h.state = 'active' AND h.kind = 'custom' AND (h.proof IS NULL OR h.verified_at IS NULL);

-- an rrset CNAME beside another of its name
SELECT r.zone_id, r.name, array_agg(r.kind) AS kinds FROM dns.rrsets r
GROUP BY r.zone_id, r.name HAVING bool_or(r.kind = 'CNAME') AND count(*) > 1;

-- a sealed row with an unknown key
SELECT sealed.place, sealed.id, sealed.key_id FROM (
    SELECT 'store.outbox' AS place, id, key_id FROM store.outbox
    UNION ALL SELECT 'store.idempotency', id, key_id FROM store.idempotency WHERE key_id IS NOT NULL) sealed
WHERE sealed.key_id <> ALL (string_to_array(current_setting('svc.sealing_keys'), ','));

-- a write without its audit row, or with two
WITH made AS MATERIALIZED (
    SELECT 'project.create' AS event, pg_temp.public_id('prj', p.id) AS target, p.org_id, '{}'::jsonb AS data
        FROM projects.projects p
    UNION ALL SELECT 'deployment.create', pg_temp.public_id('prj', d.project_id), p.org_id, jsonb_build_object('version', d.version)
        FROM projects.deployments d JOIN projects.projects p ON p.id = d.project_id
    UNION ALL SELECT 'token.create', pg_temp.public_id('pat', t.id), NULL, '{}' FROM identity.access_tokens t
    UNION ALL SELECT 'ssh_key.add', pg_temp.public_id('key', k.id), NULL, '{}' FROM identity.ssh_keys k)
SELECT made.event, made.target, made.data, count(a.id) AS audited
FROM made LEFT JOIN store.audit a ON a.event = made.event AND a.target = made.target
    AND a.org_id IS NOT DISTINCT FROM made.org_id AND a.data @> made.data
GROUP BY made.event, made.target, made.data HAVING count(a.id) <> 1;

-- an audit row of something that was made, and neither is there nor was deleted
WITH made AS MATERIALIZED (
    SELECT 'project.create' AS event, pg_temp.public_id('prj', p.id) AS target, NULL::int AS version FROM projects.projects p
    UNION ALL SELECT 'deployment.create', pg_temp.public_id('prj', d.project_id), d.version FROM projects.deployments d
    UNION ALL SELECT 'token.create', pg_temp.public_id('pat', t.id), NULL FROM identity.access_tokens t)
SELECT a.id, a.event, a.target FROM store.audit a
LEFT JOIN made ON made.event = a.event AND made.target = a.target
    AND made.version IS NOT DISTINCT FROM CASE a.event WHEN 'deployment.create' THEN (a.data ->> 'version')::int END
WHERE a.event IN ('project.create', 'deployment.create', 'token.create') AND made.target IS NULL
    AND NOT EXISTS (SELECT FROM store.audit gone WHERE gone.event = 'project.delete' AND gone.target = a.target);
