-- Invariants that hold in every database at any time. Each paragraph describes a violation, and its statement returns
-- one row per violation.

-- returns the text form of an id in the API and in the audit log
CREATE FUNCTION pg_temp.public_id(prefix text, id uuid) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT prefix || '_' || string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + five::int, 1), '' ORDER BY i)
    FROM generate_series(0, 25) i, LATERAL (
        SELECT substring(B'00' || ('x' || replace(id::text, '-', ''))::bit(128) FROM 1 + 5 * i FOR 5)::bit(5) AS five) bits
$$;

-- an organization without an admin
SELECT o.id, o.slug FROM orgs.orgs o
WHERE NOT EXISTS (SELECT FROM orgs.members m WHERE m.org_id = o.id AND m.role = 'admin');

-- a zone whose rrset_count differs from its number of rrsets
SELECT z.id, z.name, z.rrset_count, count(r.zone_id) AS rows
FROM dns.zones z LEFT JOIN dns.rrsets r ON r.zone_id = z.id
GROUP BY z.id HAVING z.rrset_count <> count(r.zone_id);

-- a zone whose bytes differs from the total size of its rrsets
SELECT z.id, z.name, z.bytes, sum(octet_length(r.name) + octet_length(r.rdata)) AS rows
FROM dns.zones z LEFT JOIN dns.rrsets r ON r.zone_id = z.id
GROUP BY z.id HAVING z.bytes <> coalesce(sum(octet_length(r.name) + octet_length(r.rdata)), 0);

-- a zone whose journal_bytes differs from the total size of its journal
SELECT z.id, z.name, z.journal_bytes, count(c.zone_id) AS entries
FROM dns.zones z LEFT JOIN dns.changes c ON c.zone_id = z.id
GROUP BY z.id HAVING z.journal_bytes
    <> sum(coalesce(octet_length(c.old_rdata), 0) + coalesce(octet_length(c.new_rdata), 0));

-- an rrset or a journal entry that belongs neither to a zone nor to a deleted zone that waits for its purge
SELECT zone_id FROM (SELECT zone_id FROM dns.rrsets UNION SELECT zone_id FROM dns.changes) content
WHERE NOT EXISTS (SELECT FROM dns.zones z WHERE z.id = content.zone_id)
    AND NOT EXISTS (SELECT FROM dns.purges p WHERE p.zone_id = content.zone_id);

-- an organization whose zone count differs from its number of zones
SELECT o.id, o.slug, c.zones, count(z.id) AS rows
FROM orgs.orgs o LEFT JOIN dns.zone_counts c ON c.org_id = o.id LEFT JOIN dns.zones z ON z.org_id = o.id
GROUP BY o.id, c.zones HAVING coalesce(c.zones, 0) <> count(z.id);

-- an organization whose project count differs from its number of projects
SELECT o.id, o.slug, c.projects, count(p.id) AS rows
FROM orgs.orgs o LEFT JOIN projects.project_counts c ON c.org_id = o.id
    LEFT JOIN projects.projects p ON p.org_id = o.id AND p.deleted_at IS NULL
GROUP BY o.id, c.projects HAVING coalesce(c.projects, 0) <> count(p.id);

-- an organization whose total of bundles differs from the sum of their sizes
SELECT coalesce(t.org_id, b.org_id) AS org_id, t.size_bytes, b.bytes
FROM projects.bundle_totals t
    FULL JOIN (SELECT org_id, sum(size_bytes) AS bytes FROM projects.bundles GROUP BY org_id) b ON b.org_id = t.org_id
WHERE t.size_bytes IS DISTINCT FROM b.bytes;

-- a deployment whose bundle is not counted with its size
SELECT d.id, p.org_id, d.digest FROM projects.deployments d JOIN projects.projects p ON p.id = d.project_id
LEFT JOIN projects.bundles b ON b.org_id = p.org_id AND b.digest = d.digest
WHERE b.size_bytes IS DISTINCT FROM d.size_bytes;

-- a node whose placement count differs from its number of placements
SELECT n.id, n.name, n.placements, count(p.project_id) AS rows
FROM convergence.nodes n LEFT JOIN convergence.placements p ON p.node_id = n.id
GROUP BY n.id HAVING n.placements <> count(p.project_id);

-- an undeleted project whose last_version differs from its number of deployments
SELECT p.id, p.name, p.last_version, count(d.id) AS rows, max(d.version) AS highest
FROM projects.projects p LEFT JOIN projects.deployments d ON d.project_id = p.id WHERE p.deleted_at IS NULL
GROUP BY p.id HAVING p.last_version <> count(d.id) OR p.last_version <> coalesce(max(d.version), 0);

-- a zone journal with a gap, or whose last entry is not last_change_number
SELECT z.id, z.name, z.last_change_number, min(c.number) AS first, max(c.number) AS last, count(*) AS rows
FROM dns.zones z JOIN dns.changes c ON c.zone_id = z.id
GROUP BY z.id HAVING max(c.number) <> z.last_change_number OR max(c.number) - min(c.number) + 1 <> count(*);

-- a zone whose serial is behind the serial of its last journal entry
SELECT z.id, z.name, z.serial, c.to_serial
FROM dns.zones z JOIN dns.changes c ON c.zone_id = z.id AND c.number = z.last_change_number
WHERE (z.serial - c.to_serial + 4294967296) % 4294967296 >= 2147483648;

-- a desired-state part with a revision above its node's revision
SELECT p.project_id, p.part, p.revision, n.revision AS node
FROM convergence.parts p JOIN convergence.nodes n ON n.id = p.node_id WHERE p.revision > n.revision;

-- a desired-state part whose node is not the project's home node
SELECT p.project_id, p.part, p.node_id, c.node_id AS home
FROM convergence.parts p JOIN convergence.placements c ON c.project_id = p.project_id
WHERE p.node_id IS DISTINCT FROM c.node_id OR p.node_id IS NULL AND p.revision <> 0;

-- a site part that names another deployment than the live one
SELECT p.id, p.name, p.live_version, c.desired ->> 'version' AS placed
FROM projects.projects p JOIN convergence.parts c ON c.project_id = p.id AND c.part = 'site' JOIN projects.deployments d
    ON d.project_id = p.id AND d.version = p.live_version
WHERE p.deleted_at IS NULL AND c.desired IS NOT NULL
    AND ((c.desired ->> 'version')::int <> p.live_version OR c.desired ->> 'bundle' <> 'sha256:' || encode(d.digest, 'hex'));

-- a project with two serving deployments
SELECT d.project_id, array_agg(d.version) AS serving FROM projects.deployments d
WHERE d.status = 'serving' GROUP BY d.project_id HAVING count(*) > 1;

-- an undeleted project without a default hostname, or with a live deployment but no placement
SELECT p.id, p.name FROM projects.projects p
WHERE p.deleted_at IS NULL AND (
    NOT EXISTS (SELECT FROM projects.hostnames h WHERE h.project_id = p.id AND h.kind = 'default')
    OR p.live_version IS NOT NULL AND NOT EXISTS (SELECT FROM convergence.placements c WHERE c.project_id = p.id));

-- an accepted invitation without its audit row, or whose user is neither a member nor was removed
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

-- an active custom hostname whose ownership another organization proved last
SELECT h.name, h.project_id, f.org_id FROM projects.hostnames h JOIN projects.projects p ON p.id = h.project_id
JOIN projects.former_hostnames f ON f.name = h.name
WHERE h.state = 'active' AND h.kind = 'custom' AND f.org_id <> p.org_id;

-- a CNAME rrset next to another rrset with the same name
SELECT r.zone_id, r.name, array_agg(r.kind) AS kinds FROM dns.rrsets r
GROUP BY r.zone_id, r.name HAVING bool_or(r.kind = 'CNAME') AND count(*) > 1;

-- a row sealed with an unknown key
SELECT sealed.place, sealed.id, sealed.key_id FROM (
    SELECT 'store.outbox' AS place, id, key_id FROM store.outbox
    UNION ALL SELECT 'store.idempotency', id, key_id FROM store.idempotency WHERE key_id IS NOT NULL
    UNION ALL SELECT 'resources.secrets', project_id, key_id FROM resources.secrets
    UNION ALL SELECT 'resources.auth_providers', project_id, key_id FROM resources.auth_providers
    UNION ALL SELECT 'databases.databases', id, key_id FROM databases.databases
    UNION ALL SELECT 'oauth.signing_keys', id, key_id FROM oauth.signing_keys
    UNION ALL SELECT 'oauth.grants', id, key_id FROM oauth.grants WHERE key_id IS NOT NULL
    UNION ALL SELECT 'git.nodes', node_id, key_id FROM git.nodes
    UNION ALL SELECT 'domains.contacts', domain_id, key_id FROM domains.contacts
    UNION ALL SELECT 'certificates.accounts', NULL, key_id FROM certificates.accounts
    UNION ALL SELECT 'certificates.certificates', id, key_id FROM certificates.certificates
    UNION ALL SELECT 'certificates.orders', id, key_id FROM certificates.orders WHERE key_id IS NOT NULL) sealed
WHERE sealed.key_id <> ALL (string_to_array(current_setting('svc.sealing_keys'), ','));

-- a secret whose version differs from the number of its audit rows since its last deletion
WITH audited AS MATERIALIZED (
    SELECT a.target, a.id, name, a.event = 'secret.set' AND NOT coalesce(a.data -> 'deleted' ? name, false) AS is_set
    FROM store.audit a, LATERAL (
        SELECT a.data ->> 'name' AS name WHERE a.data ? 'name'
        UNION ALL SELECT jsonb_array_elements_text(a.data -> 'set') WHERE a.data ? 'set'
        UNION ALL SELECT jsonb_array_elements_text(a.data -> 'deleted') WHERE a.data ? 'deleted') names
    WHERE a.event IN ('secret.set', 'secret.delete'))
SELECT s.project_id, s.name, s.version, count(a.id) AS audited
FROM resources.secrets s LEFT JOIN audited a ON a.target = pg_temp.public_id('prj', s.project_id) AND a.name = s.name
    AND a.is_set AND NOT EXISTS (
        SELECT FROM audited d WHERE d.target = a.target AND d.name = a.name AND NOT d.is_set AND d.id > a.id)
GROUP BY s.project_id, s.name, s.version HAVING count(a.id) <> s.version;

-- a secret with a revision above the revision of its set
SELECT s.project_id, s.name, s.revision, t.revision AS last FROM resources.secrets s
JOIN resources.secret_sets t ON t.project_id = s.project_id WHERE s.revision > t.revision;

-- an undeleted project whose parts of the desired state differ from its live version, secrets, grants and certificates
SELECT p.id, p.name, expected.part, expected.desired FROM projects.projects p, LATERAL (
    SELECT 'site' AS part, p.live_version IS NOT NULL AS desired
    UNION ALL SELECT 'secrets', EXISTS (SELECT FROM resources.secret_sets s WHERE s.project_id = p.id)
    UNION ALL SELECT 'storage', EXISTS (
        SELECT FROM resources.grants g WHERE g.project_id = p.id AND g.resource = 'storage')
    UNION ALL SELECT 'auth', EXISTS (SELECT FROM resources.grants g WHERE g.project_id = p.id AND g.resource = 'auth')
    UNION ALL SELECT 'email', EXISTS (SELECT FROM resources.email_domains e WHERE e.project_id = p.id)
    UNION ALL SELECT 'certificates', EXISTS (
        SELECT FROM certificates.certificates c JOIN certificates.names n ON n.name = c.name
        WHERE n.project_id = p.id AND n.wanted)
    UNION ALL SELECT 'database', EXISTS (SELECT FROM databases.databases d WHERE d.project_id = p.id)
        OR EXISTS (SELECT FROM databases.operations o WHERE o.project_id = p.id AND o.ended_at IS NULL)) expected
WHERE p.deleted_at IS NULL AND expected.desired <> EXISTS (
    SELECT FROM convergence.parts c WHERE c.project_id = p.id AND c.part = expected.part AND c.desired IS NOT NULL);

-- an undeleted project whose placement state differs from the phase of its database operation
SELECT c.project_id, c.state, o.id, o.phase FROM convergence.placements c
LEFT JOIN databases.operations o ON o.project_id = c.project_id AND o.ended_at IS NULL
WHERE c.ended_at IS NULL AND (o.id IS NOT NULL AND o.phase <> c.state
    OR o.id IS NULL AND c.state IN ('draining', 'sealing', 'committing', 'reactivating'));

-- an operation on a database that no longer exists, unless it is the deletion itself
SELECT o.id, o.project_id, o.kind, o.phase FROM databases.operations o
LEFT JOIN databases.databases d ON d.project_id = o.project_id
WHERE o.ended_at IS NULL AND (d.id IS DISTINCT FROM o.database_id) <> (o.kind = 'delete' AND o.phase = 'committing');

-- a pending export of a project that has no database, or whose database has an operation in progress
SELECT e.id, e.project_id, o.id AS operation_id FROM databases.exports e
LEFT JOIN databases.databases d ON d.project_id = e.project_id
LEFT JOIN databases.operations o ON o.project_id = e.project_id AND o.ended_at IS NULL
WHERE e.ended_at IS NULL AND (d.id IS NULL OR o.id IS NOT NULL);

-- a generation with a number above the last number of its project, or with a later epoch than the placement
SELECT g.project_id, g.seq, g.epoch, s.last_seq, c.epoch AS placed FROM databases.generations g
JOIN databases.sequences s ON s.project_id = g.project_id
LEFT JOIN convergence.placements c ON c.project_id = g.project_id
WHERE g.seq > s.last_seq OR g.epoch > c.epoch;

-- a token that still exists although the node applied its revocation, or whose revocation has a future revision
SELECT t.id, t.revoked_revision, d.applied_revision, s.revision FROM databases.tokens t
JOIN databases.databases d ON d.id = t.database_id JOIN databases.sequences s ON s.project_id = d.project_id
WHERE t.revoked_revision <= d.applied_revision OR t.revoked_revision > s.revision;

-- objects of a missing project without the part deletedStorage, or of an existing project with this part
SELECT s.project_id, s.prefix, s.purged_at FROM resources.storage s
LEFT JOIN projects.projects p ON p.id = s.project_id
LEFT JOIN convergence.parts c ON c.project_id = s.project_id AND c.part = 'deletedStorage' AND c.desired IS NOT NULL
WHERE (p.id IS NULL) <> (c.project_id IS NOT NULL) OR (p.id IS NULL) <> (s.purged_at IS NOT NULL);

-- an existing project whose backups must be deleted
SELECT p.id, p.name FROM projects.projects p
JOIN convergence.parts c ON c.project_id = p.id AND c.part = 'deletedBackups' AND c.desired IS NOT NULL;

-- a created object without exactly one audit row
WITH created AS MATERIALIZED (
    SELECT 'project.create' AS event, pg_temp.public_id('prj', p.id) AS target, p.org_id, '{}'::jsonb AS data
        FROM projects.projects p
    UNION ALL SELECT 'deployment.create', pg_temp.public_id('prj', d.project_id), p.org_id, jsonb_build_object('version', d.version)
        FROM projects.deployments d JOIN projects.projects p ON p.id = d.project_id
    UNION ALL SELECT 'database.token.create', pg_temp.public_id('prj', d.project_id), p.org_id,
        jsonb_build_object('token', pg_temp.public_id('tok', t.id))
        FROM databases.tokens t JOIN databases.databases d ON d.id = t.database_id JOIN projects.projects p ON p.id = d.project_id
    UNION ALL SELECT CASE o.kind WHEN 'delete' THEN 'database.delete' ELSE 'database.restore' END,
        pg_temp.public_id('prj', o.project_id), p.org_id, jsonb_build_object('operation', pg_temp.public_id('opn', o.id))
        FROM databases.operations o JOIN projects.projects p ON p.id = o.project_id
    UNION ALL SELECT 'token.create', pg_temp.public_id('pat', t.id), NULL, '{}' FROM identity.access_tokens t
    UNION ALL SELECT 'ssh_key.add', pg_temp.public_id('key', k.id), NULL, '{}' FROM identity.ssh_keys k
    UNION ALL SELECT 'repo.create', pg_temp.public_id('rep', r.id), p.org_id, '{}'
        FROM git.repositories r JOIN projects.projects p ON p.id = r.project_id
    UNION ALL SELECT 'oauth.grant.create', pg_temp.public_id('gnt', g.id), NULL, '{}' FROM oauth.grants g)
SELECT created.event, created.target, created.data, count(a.id) AS audited
FROM created LEFT JOIN store.audit a ON a.event = created.event AND a.target = created.target
    AND a.org_id IS NOT DISTINCT FROM created.org_id AND a.data @> created.data
GROUP BY created.event, created.target, created.data HAVING count(a.id) <> 1;

-- an audit row for an object that does not exist and was not deleted
WITH created AS MATERIALIZED (
    SELECT 'project.create' AS event, pg_temp.public_id('prj', p.id) AS target, NULL::int AS version FROM projects.projects p
    UNION ALL SELECT 'deployment.create', pg_temp.public_id('prj', d.project_id), d.version FROM projects.deployments d
    UNION ALL SELECT 'token.create', pg_temp.public_id('pat', t.id), NULL FROM identity.access_tokens t)
SELECT a.id, a.event, a.target FROM store.audit a
LEFT JOIN created ON created.event = a.event AND created.target = a.target
    AND created.version IS NOT DISTINCT FROM CASE a.event WHEN 'deployment.create' THEN (a.data ->> 'version')::int END
WHERE a.event IN ('project.create', 'deployment.create', 'token.create') AND created.target IS NULL
    AND NOT EXISTS (SELECT FROM store.audit deleted WHERE deleted.event = 'project.delete' AND deleted.target = a.target);

-- an account of AI credit whose balance or last ledger id differs from its ledger
SELECT org_id, a.balance_micro_cents, a.last_ledger_id, l.balance, l.last
FROM billing.accounts a FULL JOIN (
    SELECT org_id, sum(amount_micro_cents) AS balance, max(ledger_id) AS last FROM billing.ledger GROUP BY org_id) l
    USING (org_id)
WHERE (a.balance_micro_cents, a.last_ledger_id) IS DISTINCT FROM (l.balance, l.last);

-- a row of a ledger whose id follows a gap, or whose running balance is not the sum of the rows up to it
SELECT org_id, ledger_id, balance_micro_cents FROM (
    SELECT org_id, ledger_id, balance_micro_cents, row_number() OVER rows AS id, sum(amount_micro_cents) OVER rows AS sum
    FROM billing.ledger WINDOW rows AS (PARTITION BY org_id ORDER BY ledger_id)) l
WHERE ledger_id <> id OR balance_micro_cents <> sum;

-- a row of a call whose running sums are not the sums of the project's calls up to it
SELECT org_id, ledger_id, project_id FROM (
    SELECT org_id, ledger_id, project_id,
        ARRAY[project_calls, project_input_tokens, project_output_tokens, project_spent_micro_cents]::numeric[] AS recorded,
        ARRAY[count(*) OVER rows, sum(input_tokens) OVER rows, sum(output_tokens) OVER rows, -sum(amount_micro_cents) OVER rows]
            AS sums
    FROM billing.ledger WHERE kind = 'call' WINDOW rows AS (PARTITION BY project_id ORDER BY ledger_id)) l
WHERE recorded <> sums;

-- a project whose usage of AI models differs from its ledger
SELECT project_id FROM billing.project_usage u FULL JOIN (
    SELECT project_id, count(*) AS calls, sum(input_tokens) AS input, sum(output_tokens) AS output,
        -sum(amount_micro_cents) AS spent FROM billing.ledger WHERE kind = 'call' GROUP BY project_id) l USING (project_id)
WHERE (u.calls, u.input_tokens, u.output_tokens, u.spent_micro_cents)
    IS DISTINCT FROM (coalesce(l.calls, 0), coalesce(l.input, 0), coalesce(l.output, 0), coalesce(l.spent, 0));

-- an account or a project that holds another amount than the estimated cost of its open calls
WITH open AS (
    SELECT org_id, project_id, div(input_tokens::numeric * input_price + 999999, 1000000)
        + div(greatest(output_tokens, expected_output_tokens)::numeric * output_price + 999999, 1000000) AS cost
    FROM billing.calls WHERE ended_at IS NULL)
SELECT org_id AS id, held_micro_cents FROM billing.accounts a
WHERE held_micro_cents <> (SELECT coalesce(sum(cost), 0) FROM open o WHERE o.org_id = a.org_id)
UNION ALL SELECT project_id, held_micro_cents FROM billing.project_usage u
WHERE held_micro_cents <> (SELECT coalesce(sum(cost), 0) FROM open o WHERE o.project_id = u.project_id);

-- a call that was deducted from the credit and is still open
SELECT c.id FROM billing.calls c JOIN billing.ledger l ON l.call_id = c.id WHERE c.ended_at IS NULL;

-- an automatic top-up that is credited without a row of the ledger, or that has a row and is not credited
SELECT t.id, t.org_id, t.state, t.order_id FROM billing.topup_orders t
LEFT JOIN billing.ledger l ON l.order_id = t.order_id WHERE (t.state = 'credited') <> (l.order_id IS NOT NULL);

-- a pending automatic top-up without an outbox message
SELECT t.id, t.org_id FROM billing.topup_orders t
LEFT JOIN store.outbox o ON o.topic = 'billing.topup' AND o.key = t.id::text
WHERE t.state = 'pending' AND o.id IS NULL;

-- an organization with subscriptions whose plan does not follow from them
SELECT o.id, o.plan, s.is_live FROM orgs.orgs o JOIN (
    SELECT org_id, bool_or(status IN ('active', 'trialing', 'past_due')) AS is_live
    FROM billing.subscriptions GROUP BY org_id) s ON s.org_id = o.id
WHERE (o.plan = 'pro') <> s.is_live;

-- a project whose count of repositories differs from its number of live repositories
SELECT project_id, c.repositories, r.live FROM git.counts c FULL JOIN (
    SELECT project_id, count(*) AS live FROM git.repositories r JOIN projects.projects p ON p.id = r.project_id
    WHERE erase_at IS NULL GROUP BY project_id) r USING (project_id)
WHERE coalesce(c.repositories, 0) <> coalesce(r.live, 0);

-- a repository whose updates of refs have a gap in their numbers, or do not end with last_update
SELECT r.id, r.last_update FROM git.repositories r LEFT JOIN (
    SELECT repository_id, max(number) AS last, max(number) - min(number) + 1 - count(*) AS missing
    FROM git.ref_updates GROUP BY repository_id) u ON u.repository_id = r.id
WHERE r.last_update <> coalesce(u.last, 0) OR u.missing <> 0;

-- a live repository of a project that does not exist
SELECT r.id, r.project_id FROM git.repositories r LEFT JOIN projects.projects p ON p.id = r.project_id
WHERE r.erase_at IS NULL AND p.id IS NULL;

-- a deploy of a push that is not listed yet, or whose deployment does not exist
SELECT d.repository_id, d.number, d.version FROM git.deploys d JOIN git.repositories r ON r.id = d.repository_id
LEFT JOIN projects.deployments p ON p.project_id = r.project_id AND p.version = d.version
WHERE d.number > r.last_update OR r.erase_at IS NULL AND d.version IS NOT NULL AND p.id IS NULL;

-- a grant of a connected app without a refresh token that can be used
SELECT g.id, g.client_id FROM oauth.grants g
WHERE NOT EXISTS (SELECT FROM oauth.refresh_tokens r WHERE r.grant_id = g.id AND r.rotated_at IS NULL);

-- a refresh token of a grant that neither exists nor was ended
SELECT r.grant_id, r.rotated_at FROM oauth.refresh_tokens r
WHERE NOT EXISTS (SELECT FROM oauth.grants g WHERE g.id = r.grant_id)
    AND NOT EXISTS (SELECT FROM oauth.ended_grants e WHERE e.id = r.grant_id);

-- a used refresh token whose successor is not a token of the same grant
SELECT r.grant_id, r.rotated_at FROM oauth.refresh_tokens r JOIN oauth.grants g ON g.id = r.grant_id
WHERE r.successor_hash IS NOT NULL AND NOT EXISTS (
    SELECT FROM oauth.refresh_tokens s WHERE s.token_hash = r.successor_hash AND s.grant_id = r.grant_id);

-- a code that was exchanged for a grant of another app or user, or a device code without an approval
SELECT 'code' AS kind, g.id FROM oauth.codes c JOIN oauth.grants g ON g.id = c.grant_id
WHERE (c.client_id, c.user_id) <> (g.client_id, g.user_id)
UNION ALL SELECT 'device code', g.id FROM oauth.device_codes d JOIN oauth.grants g ON g.id = d.grant_id
WHERE (d.client_id, d.user_id) IS DISTINCT FROM (g.client_id, g.user_id) OR d.state <> 'approved';

-- a saga without an owner: its organization does not exist
SELECT s.id, s.kind, s.org_id FROM store.sagas s WHERE NOT EXISTS (SELECT FROM orgs.orgs o WHERE o.id = s.org_id);

-- a finished saga with a step that is neither finished nor undone
SELECT s.id, s.kind, s.state, t.name, t.state AS step FROM store.sagas s JOIN store.saga_steps t ON t.saga_id = s.id
WHERE s.state = 'done' AND t.state <> 'done' OR s.state IN ('failed', 'abandoned') AND t.state IN ('started', 'done');

-- a domain that is being registered without an unfinished purchase
SELECT d.id, d.name FROM domains.domains d WHERE d.state = 'registering' AND NOT EXISTS (
    SELECT FROM store.sagas s WHERE s.kind = 'domains.purchase' AND s.finished_at IS NULL AND s.refusal IS NULL
        AND s.key = pg_temp.public_id('dom', d.id));

-- a domain charged twice: more paid purchases than completed ones
SELECT c.domain_id, c.name, count(*) AS charges FROM domains.charges c
WHERE c.purpose = 'purchase' AND c.state = 'paid'
    -- Completed sagas are deleted after 90 days.
    AND c.created_at > now() - interval '90 days' AND NOT EXISTS (
        SELECT FROM store.sagas s WHERE s.id = c.id AND (s.state = 'done' OR s.finished_at IS NULL))
GROUP BY c.domain_id, c.name;

-- a completed purchase whose charge is not paid
SELECT c.id, c.name, c.state FROM domains.charges c JOIN store.sagas s ON s.id = c.id
WHERE c.purpose = 'purchase' AND s.state = 'done' AND c.state <> 'paid';

-- a bought domain whose purchase created no zone
SELECT s.id, s.key FROM store.sagas s WHERE s.kind = 'domains.purchase' AND s.state = 'done' AND NOT EXISTS (
    SELECT FROM store.saga_steps t WHERE t.saga_id = s.id AND t.name = 'zone' AND t.state = 'done');

-- a reserved name without a domain that is being registered
SELECT r.name, r.org_id FROM dns.reservations r WHERE NOT EXISTS (
    SELECT FROM domains.domains d WHERE d.name = r.name AND d.org_id = r.org_id AND d.state = 'registering');

-- a mail domain without a grant or of a deleted project, or a grant of email without a mail domain
SELECT coalesce(e.project_id, g.project_id) AS project_id, e.domain, p.deleted_at
FROM resources.email_domains e
FULL JOIN (SELECT project_id FROM resources.grants WHERE resource = 'email') g ON g.project_id = e.project_id
LEFT JOIN projects.projects p ON p.id = coalesce(e.project_id, g.project_id)
WHERE g.project_id IS NULL OR p.id IS NULL OR (e.domain IS NULL) <> (p.deleted_at IS NOT NULL);

-- app sign-in without settings or a database, or whose database is being deleted
SELECT g.project_id, a.grant_number, d.id AS database_id, o.id AS operation_id FROM resources.grants g
JOIN projects.projects p ON p.id = g.project_id AND p.deleted_at IS NULL
LEFT JOIN resources.auth a ON a.project_id = g.project_id
LEFT JOIN databases.databases d ON d.project_id = g.project_id
LEFT JOIN databases.operations o ON o.project_id = g.project_id AND o.kind = 'delete' AND o.ended_at IS NULL
WHERE g.resource = 'auth' AND (a.project_id IS NULL OR d.id IS NULL OR o.id IS NOT NULL);

-- an identity provider with a revision above the last one of its project
SELECT i.project_id, i.secret_name, i.revision, a.provider_revision FROM resources.auth_providers i
JOIN resources.auth a ON a.project_id = i.project_id WHERE i.revision > a.provider_revision;

-- a queued mail without an outbox message
SELECT m.id, m.project_id FROM mail.messages m
LEFT JOIN store.outbox o ON o.topic = 'mail.relay' AND o.key = pg_temp.public_id('mail', m.id)
WHERE m.outcome = 'queued' AND o.id IS NULL;

-- a pending delivery whose mail is not in the log, is outgoing, or was rejected
SELECT d.mail_id, d.project_id, m.direction, m.outcome FROM mail.deliveries d
LEFT JOIN mail.messages m ON m.id = d.mail_id AND m.project_id = d.project_id
WHERE m.outcome IS DISTINCT FROM 'received';

-- a mailbox whose byte counts differ from its stored messages
SELECT b.project_id, b.received_bytes, b.sent_bytes, m.received, m.sent FROM mail.mailboxes b, LATERAL (
    SELECT coalesce(sum(stored_bytes) FILTER (WHERE direction = 'in'), 0) AS received,
        coalesce(sum(stored_bytes) FILTER (WHERE direction = 'out'), 0) AS sent
    FROM mail.messages WHERE project_id = b.project_id) m
WHERE (b.received_bytes, b.sent_bytes) <> (m.received, m.sent);

-- a mail of a project without a mailbox
SELECT m.id, m.project_id FROM mail.messages m
LEFT JOIN mail.mailboxes b ON b.project_id = m.project_id WHERE b.project_id IS NULL;

-- a managed record of a challenge without an order
SELECT z.name AS zone, r.name FROM dns.rrsets r JOIN dns.zones z ON z.id = r.zone_id
WHERE r.managed_by = 'certificate' AND NOT EXISTS (
    SELECT FROM certificates.orders o WHERE o.challenge = 'dns-01' AND o.zone = z.name
        AND '_acme-challenge.' || regexp_replace(o.name, '^\*\.', '') = r.name || '.' || z.name);

-- a name that is active without a certificate, or that has a certificate and waits for its first one
SELECT n.name, n.state, c.id FROM certificates.names n LEFT JOIN certificates.certificates c ON c.name = n.name
WHERE n.wanted AND (n.state = 'active' AND c.id IS NULL OR n.state = 'pending' AND c.id IS NOT NULL);
