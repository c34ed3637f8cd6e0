//! Every invariant holds in an empty database and in a valid one, and detects its violation.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::collections::BTreeSet;

use testkit::TestDatabase;

/// Valid data: an organization with an admin, a placed project with a deployment, and a zone.
const VALID: &str = "
    INSERT INTO identity.users (id, provider, subject, created_at) VALUES (md5('u')::uuid, 'dev', 'u', now());
    INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at) VALUES (md5('o')::uuid, 'o', 'o', 'free', true, now());
    INSERT INTO orgs.members (org_id, user_id, role, joined_at) VALUES (md5('o')::uuid, md5('u')::uuid, 'admin', now());
    INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at)
        VALUES (md5('p')::uuid, md5('o')::uuid, 'p', 'public', 1, now());
    INSERT INTO projects.hostnames (name, project_id, kind, state, created_at)
        VALUES ('p.example', md5('p')::uuid, 'default', 'active', now());
    INSERT INTO projects.deployments (id, project_id, version, digest, size_bytes, declares, has_worker, asset_count, created_by,
        created_by_subject, created_at)
        VALUES (md5('d')::uuid, md5('p')::uuid, 1, sha256('d'), 1, '{}', false, 1, md5('u')::uuid, 'u', now());
    UPDATE projects.projects SET live_version = 1;
    INSERT INTO projects.bundles (org_id, digest, size_bytes) VALUES (md5('o')::uuid, sha256('d'), 1);
    INSERT INTO projects.bundle_totals (org_id, size_bytes) VALUES (md5('o')::uuid, 1);
    INSERT INTO convergence.nodes (id, name, token_hash, revision, created_at) VALUES (md5('n')::uuid, 'n', 'x', 6, now());
    INSERT INTO convergence.placements (project_id, node_id, state, epoch, created_at)
        VALUES (md5('p')::uuid, md5('n')::uuid, 'active', 1, now());
    INSERT INTO convergence.parts (project_id, part, node_id, revision, desired, updated_at)
        VALUES (md5('p')::uuid, 'site', md5('n')::uuid, 5,
            jsonb_build_object('version', 1, 'bundle', 'sha256:' || encode(sha256('d'), 'hex')), now());
    INSERT INTO dns.zones (id, org_id, name, path, serial, rrset_count, bytes, last_change_number, journal_bytes, dnssec_state, ds,
        created_at)
        VALUES (md5('z')::uuid, md5('o')::uuid, 'z.example', 'example.z.', 7, 1, 4, 3, 6, 'off', '[]', now());
    INSERT INTO dns.rrsets (zone_id, name, sort_key, kind, ttl, rdata)
        VALUES (md5('z')::uuid, 'www', 'www', 'CNAME', 300, 'x');
    INSERT INTO dns.changes (zone_id, number, from_serial, to_serial, name, kind, old_rdata, new_rdata)
        SELECT md5('z')::uuid, n, n + 3, n + 4, 'www', 'A', 'x', 'y' FROM generate_series(1, 3) n;
    INSERT INTO dns.purges (zone_id) VALUES (md5('gone zone')::uuid);
    INSERT INTO dns.rrsets (zone_id, name, sort_key, kind, ttl, rdata)
        VALUES (md5('gone zone')::uuid, 'www', 'www', 'A', 300, 'x');
    INSERT INTO store.audit (id, event, org_id, credential, target, data, request_id, created_at) VALUES
        (md5('1')::uuid, 'project.create', md5('o')::uuid, 'x', pg_temp.public_id('prj', md5('p')::uuid), '{}', 'r', now()),
        (md5('2')::uuid, 'deployment.create', md5('o')::uuid, 'x', pg_temp.public_id('prj', md5('p')::uuid), '{\"version\": 1}', 'r', now());
    INSERT INTO orgs.invites (id, org_id, email, role, token_hash, invited_by, created_at, expires_at)
        VALUES (md5('i')::uuid, md5('o')::uuid, 'a@b.example', 'viewer', 'x', md5('u')::uuid, now(), now());
    INSERT INTO store.outbox (id, topic, key, payload, key_id, attempts, next_attempt_at, created_at)
        VALUES (md5('m')::uuid, 't', 'k', 'x', 'known', 0, now(), now());
    INSERT INTO resources.secret_sets (project_id, revision) VALUES (md5('p')::uuid, 1);
    INSERT INTO resources.secrets (project_id, name, version, revision, key_id, sealed, size_bytes, updated_at, updated_by)
        SELECT md5('p')::uuid, name, version, 1, 'known', 'x'::bytea, 1, now(), md5('u')::uuid FROM (VALUES ('A', 2), ('B', 1)) s (name, version);
    INSERT INTO store.audit (id, event, org_id, credential, target, data, request_id, created_at)
        SELECT ('00000000-0000-0000-0000-00000000000' || number)::uuid, event, md5('o')::uuid, 'x',
            pg_temp.public_id('prj', md5('p')::uuid), data::jsonb, 'r', now()
        FROM (VALUES (1, 'secret.set', '{\"name\": \"A\"}'), (2, 'secret.set', '{\"set\": [\"B\"], \"deleted\": [\"A\"]}'),
            (3, 'secret.set', '{\"set\": [\"A\"], \"deleted\": []}'), (4, 'secret.set', '{\"name\": \"A\"}'),
            (5, 'secret.delete', '{\"name\": \"C\"}')) changes (number, event, data);
    INSERT INTO git.counts VALUES (md5('p')::uuid, 1);
    INSERT INTO git.repositories (id, project_id, name, visibility, default_branch, created_at, updated_at, last_update)
        VALUES (md5('r')::uuid, md5('p')::uuid, 'r', 'private', 'main', now(), now(), 3);
    INSERT INTO git.ref_updates (repository_id, number, name, old_oid, new_oid, forced, created_at)
        SELECT md5('r')::uuid, number, 'refs/heads/main', 'a', 'b', false, now() FROM generate_series(1, 3) number;
    INSERT INTO git.deploys (repository_id, number, branch, commit_oid, pusher_id, credential, status, version)
        VALUES (md5('r')::uuid, 3, 'main', 'b', md5('u')::uuid, 'x', 'deployed', 1);
    INSERT INTO store.audit (id, event, org_id, credential, target, data, request_id, created_at) VALUES
        (md5('10')::uuid, 'repo.create', md5('o')::uuid, 'x', pg_temp.public_id('rep', md5('r')::uuid), '{}', 'r', now()),
        (md5('11')::uuid, 'oauth.grant.create', NULL, 'x', pg_temp.public_id('gnt', md5('g')::uuid), '{}', 'r', now());
    INSERT INTO oauth.clients (id, name, redirect_uris, scopes, device, created_at)
        SELECT md5(name)::uuid, name, '{}', '{}', true, now() FROM (VALUES ('app'), ('other app')) clients (name);
    INSERT INTO oauth.grants (id, client_id, user_id, scopes, created_at, expires_at)
        VALUES (md5('g')::uuid, md5('app')::uuid, md5('u')::uuid, '{}', now(), now());
    INSERT INTO oauth.refresh_tokens (token_hash, grant_id, created_at, rotated_at, successor_hash)
        VALUES ('1', md5('g')::uuid, now(), now(), '2'), ('2', md5('g')::uuid, now(), NULL, NULL);
    INSERT INTO oauth.codes (code_hash, client_id, user_id, redirect_uri, code_challenge, scopes, created_at, expires_at, grant_id)
        VALUES ('c', md5('app')::uuid, md5('u')::uuid, 'x', 'x', '{}', now(), now(), md5('g')::uuid);
    INSERT INTO oauth.device_codes (device_code_hash, user_code, client_id, scopes, state, user_id, poll_interval, created_at,
        expires_at, grant_id)
        VALUES ('d', 'x', md5('app')::uuid, '{}', 'approved', md5('u')::uuid, 5, now(), now(), md5('g')::uuid);
    INSERT INTO oauth.signing_keys (id, public_key, private_key, key_id, created_at, signs_from)
        VALUES (md5('key')::uuid, 'x', 'x', 'known', now(), now());
    INSERT INTO git.nodes (node_id, url, key_id, sealed, announced_at) VALUES (md5('n')::uuid, 'x', 'known', 'x', now());
    INSERT INTO certificates.accounts (directory, key_id, sealed, created_at) VALUES ('x', 'known', 'x', now());
    INSERT INTO certificates.names (name, org_id, wanted, state, due_at, renew_at, created_at)
        VALUES ('tls.example', md5('o')::uuid, true, 'active', now(), now(), now());
    INSERT INTO certificates.certificates (id, name, directory, chain, key_id, sealed, not_before, not_after, created_at)
        VALUES (md5('crt')::uuid, 'tls.example', 'x', 'x', 'known', 'x', now(), now(), now());
    INSERT INTO certificates.orders (id, name, org_id, directory, url, key_id, sealed, created_at)
        VALUES (md5('ord')::uuid, 'tls.example', md5('o')::uuid, 'x', 'x', 'known', 'x', now());
    INSERT INTO billing.subscriptions (id, org_id, status, cancel_at_period_end, modified_at)
        VALUES ('sub', md5('o')::uuid, 'canceled', false, now());
    INSERT INTO billing.topup_orders (id, org_id, amount_micro_cents, order_id, state, created_at)
        VALUES (md5('tu')::uuid, md5('o')::uuid, 9, 'order', 'credited', now()),
            (md5('tp')::uuid, md5('o')::uuid, 9, NULL, 'pending', now());
    INSERT INTO store.outbox (id, topic, key, payload, key_id, attempts, next_attempt_at, created_at)
        VALUES (md5('topup')::uuid, 'billing.topup', md5('tp')::uuid::text, 'x', 'known', 0, now(), now());
    INSERT INTO billing.accounts (org_id, balance_micro_cents, last_ledger_id, last_ledger_at)
        VALUES (md5('o')::uuid, 4, 4, now());
    INSERT INTO billing.project_usage (project_id, minute, minute_calls, calls, input_tokens, output_tokens, spent_micro_cents)
        VALUES (md5('p')::uuid, now(), 2, 2, 30, 40, 3);
    INSERT INTO billing.ledger (org_id, ledger_id, kind, amount_micro_cents, balance_micro_cents, order_id, created_at)
        VALUES (md5('o')::uuid, 1, 'topup', 9, 9, 'order', now()), (md5('o')::uuid, 2, 'adjust', -2, 7, NULL, now());
    INSERT INTO billing.calls (id, node_id, input_tokens, seen_at, ended_at) VALUES (md5('c1')::uuid, md5('n')::uuid, 0, now(), now());
    INSERT INTO billing.ledger (org_id, ledger_id, kind, amount_micro_cents, balance_micro_cents, call_id, project_id, project,
        model, input_tokens, output_tokens, project_calls, project_input_tokens, project_output_tokens,
        project_spent_micro_cents, created_at)
        VALUES (md5('o')::uuid, 3, 'call', -1, 6, md5('c1')::uuid, md5('p')::uuid, 'p', 'm', 10, 20, 1, 10, 20, 1, now()),
            (md5('o')::uuid, 4, 'call', -2, 4, md5('c2')::uuid, md5('p')::uuid, 'p', 'm', 20, 20, 2, 30, 40, 3, now());
    INSERT INTO resources.grants (project_id, resource, granted_at) VALUES (md5('p')::uuid, 'storage', now());
    INSERT INTO convergence.parts (project_id, part, node_id, revision, desired, updated_at)
        SELECT md5('p')::uuid, part, md5('n')::uuid, revision, '{}'::jsonb, now()
        FROM (VALUES ('secrets', 3), ('storage', 4), ('database', 2)) parts (part, revision);
    INSERT INTO databases.sequences (project_id, revision, last_seq) VALUES (md5('p')::uuid, 3, 2);
    INSERT INTO databases.databases (id, project_id, created_at, key_id, sealed, verifier, applied_revision)
        VALUES (md5('db')::uuid, md5('p')::uuid, now(), 'known', 'x', 'v', 1);
    INSERT INTO databases.tokens (id, database_id, verifier, created_at, created_by, revoked_revision)
        VALUES (md5('t')::uuid, md5('db')::uuid, 'v', now(), md5('u')::uuid, 2);
    INSERT INTO databases.generations (project_id, seq, database_id, epoch, kind, size_bytes, sha256, key, created_at)
        VALUES (md5('p')::uuid, 2, md5('db')::uuid, 1, 'scheduled', 1, 'x', 'k', now());
    INSERT INTO databases.operations (id, project_id, database_id, kind, phase, seq, created_at, updated_at)
        VALUES (md5('op')::uuid, md5('p')::uuid, md5('db')::uuid, 'restore_generation', 'draining', 2, now(), now());
    UPDATE convergence.placements SET state = 'draining';
    INSERT INTO databases.exports (id, project_id, started_at, ended_at, error)
        VALUES (md5('ex')::uuid, md5('p')::uuid, now(), now(), 'x');
    INSERT INTO store.audit (id, event, org_id, credential, target, data, request_id, created_at) VALUES
        (md5('7')::uuid, 'database.token.create', md5('o')::uuid, 'x', pg_temp.public_id('prj', md5('p')::uuid),
            jsonb_build_object('token', pg_temp.public_id('tok', md5('t')::uuid)), 'r', now()),
        (md5('8')::uuid, 'database.restore', md5('o')::uuid, 'x', pg_temp.public_id('prj', md5('p')::uuid),
            jsonb_build_object('operation', pg_temp.public_id('opn', md5('op')::uuid)), 'r', now());
    INSERT INTO projects.hostnames (name, project_id, kind, state, created_at)
        VALUES ('c.example', md5('p')::uuid, 'custom', 'pending_dns', now());
    INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at, deleted_at)
        VALUES (md5('gone')::uuid, md5('o')::uuid, 'gone', 'public', 0, now(), now());
    INSERT INTO store.audit (id, event, org_id, credential, target, data, request_id, created_at)
        VALUES (md5('3')::uuid, 'project.create', md5('o')::uuid, 'x', pg_temp.public_id('prj', md5('gone')::uuid), '{}', 'r', now());
    INSERT INTO domains.domains (id, org_id, name, state, registered_at, expires_at, locked, nameservers, auto_renew, created_at)
        SELECT md5(name)::uuid, md5('o')::uuid, name, state, now(), now(), true, '{}', true, now()
        FROM (VALUES ('bought.example', 'active'), ('new.example', 'registering')) domains (name, state);
    INSERT INTO dns.reservations (name, path, org_id) VALUES ('new.example', 'example.new.', md5('o')::uuid);
    INSERT INTO store.sagas (id, kind, key, org_id, input, state, attempts, next_attempt_at, lease, is_abandoned, created_at, finished_at)
        SELECT md5('saga ' || name)::uuid, 'domains.purchase', pg_temp.public_id('dom', md5(name)::uuid), md5('o')::uuid, '{}', state, 0,
            now(), 1, false, now(), finished_at
        FROM (VALUES ('bought.example', 'done', now()), ('new.example', 'waiting', NULL)) sagas (name, state, finished_at);
    INSERT INTO store.saga_steps (saga_id, name, key, state, attempts, started_at)
        SELECT md5('saga bought.example')::uuid, name, name, 'done', 1, now()
        FROM (VALUES ('price'), ('order'), ('charge'), ('register'), ('zone'), ('nameservers')) steps (name);
    INSERT INTO domains.charges (id, org_id, domain_id, name, purpose, cents, order_id, state, created_at)
        VALUES (md5('saga bought.example')::uuid, md5('o')::uuid, md5('bought.example')::uuid, 'bought.example', 'purchase', 1, 'order',
            'paid', now());
    INSERT INTO resources.grants (project_id, resource, granted_at) VALUES (md5('p')::uuid, 'email', now());
    INSERT INTO resources.email_domains VALUES (md5('p')::uuid, 'p.o.mail.example');
    INSERT INTO convergence.parts (project_id, part, node_id, revision, desired, updated_at)
        VALUES (md5('p')::uuid, 'email', md5('n')::uuid, 1, '{}', now());
    INSERT INTO resources.grants (project_id, resource, granted_at) VALUES (md5('p')::uuid, 'auth', now());
    INSERT INTO resources.auth (project_id, session_days, provider_revision) VALUES (md5('p')::uuid, 30, 1);
    INSERT INTO resources.auth_providers (project_id, secret_name, registration, revision, client_id, key_id, sealed)
        VALUES (md5('p')::uuid, 'auth/codehost', 1, 1, 'id', 'known', 'x');
    INSERT INTO convergence.parts (project_id, part, node_id, revision, desired, updated_at)
        VALUES (md5('p')::uuid, 'auth', md5('n')::uuid, 6, '{}', now());
    INSERT INTO mail.mailboxes VALUES (md5('p')::uuid, 1, 1);
    INSERT INTO mail.messages (id, project_id, direction, sender, recipients, outcome, size_bytes, stored_bytes, spf, has_raw, created_at)
        VALUES (md5('out')::uuid, md5('p')::uuid, 'out', 'a', '{b}', 'queued', 1, 1, NULL, true, now()),
            (md5('in')::uuid, md5('p')::uuid, 'in', 'a', '{b}', 'received', 1, 1, 'pass', true, now());
    INSERT INTO mail.deliveries (mail_id, project_id, next_attempt_at, expires_at)
        VALUES (md5('in')::uuid, md5('p')::uuid, now(), now());
    INSERT INTO store.outbox (id, topic, key, payload, key_id, attempts, next_attempt_at, created_at)
        VALUES (md5('relay')::uuid, 'mail.relay', pg_temp.public_id('mail', md5('out')::uuid), 'x', 'known', 0, now(), now());";

/// The start of an invariant's description, and a statement that violates that invariant.
const VIOLATIONS: [(&str, &str); 97] = [
    ("an organization without", "UPDATE orgs.members SET role = 'member'"),
    ("a zone whose rrset_count", "UPDATE dns.zones SET rrset_count = 2 WHERE org_id IS NOT NULL"),
    ("a zone whose bytes", "UPDATE dns.zones SET bytes = 5 WHERE org_id IS NOT NULL"),
    ("a zone whose journal_bytes", "UPDATE dns.zones SET journal_bytes = 5 WHERE org_id IS NOT NULL"),
    (
        "an rrset or a journal entry",
        "INSERT INTO dns.changes (zone_id, number, from_serial, to_serial, name, kind) \
             VALUES (md5('other zone')::uuid, 1, 1, 2, 'www', 'A')",
    ),
    ("an rrset or a journal entry", "DELETE FROM dns.purges"),
    ("an organization whose zone count", "UPDATE dns.zone_counts SET zones = 2"),
    ("an organization whose project count", "UPDATE projects.project_counts SET projects = 2"),
    ("an organization whose total of bundles", "UPDATE projects.bundle_totals SET size_bytes = 2"),
    ("a deployment whose bundle", "UPDATE projects.bundles SET digest = sha256('e')"),
    ("a node whose placement count", "UPDATE convergence.nodes SET placements = 0"),
    ("an undeleted project whose last_version", "UPDATE projects.projects SET last_version = 2 WHERE name = 'p'"),
    (
        "a zone journal with a gap",
        "DELETE FROM dns.changes WHERE number = 2; UPDATE dns.zones SET journal_bytes = 4 WHERE org_id IS NOT NULL",
    ),
    ("a zone whose serial is behind", "UPDATE dns.zones SET serial = 6 WHERE org_id IS NOT NULL"),
    ("a desired-state part with a revision", "UPDATE convergence.nodes SET revision = 4"),
    (
        "an existing project whose backups",
        "INSERT INTO convergence.parts (project_id, part, node_id, revision, desired, updated_at) \
             VALUES (md5('p')::uuid, 'deletedBackups', md5('n')::uuid, 0, '{}', now())",
    ),
    ("a desired-state part whose node", "UPDATE convergence.parts SET node_id = NULL, revision = 0"),
    ("a secret whose version", "UPDATE resources.secrets SET version = 3 WHERE name = 'A'"),
    ("a secret whose version", "UPDATE resources.secrets SET name = 'C' WHERE name = 'B'"),
    ("an undeleted project whose parts", "UPDATE convergence.parts SET desired = NULL WHERE part = 'secrets'"),
    ("an undeleted project whose parts", "DELETE FROM resources.grants WHERE resource = 'storage'"),
    ("an undeleted project whose parts", "UPDATE convergence.parts SET desired = NULL WHERE part = 'site'"),
    ("an undeleted project whose parts", "DELETE FROM convergence.parts WHERE part = 'site'"),
    (
        "objects of a missing project",
        "INSERT INTO resources.storage (project_id, prefix) VALUES (md5('q')::uuid, md5('s')::uuid)",
    ),
    (
        "a site part that names another",
        "UPDATE convergence.parts SET desired = desired || '{\"bundle\": \"sha256:0\"}' WHERE part = 'site'",
    ),
    (
        "a project with two serving",
        "INSERT INTO projects.deployments SELECT md5('e')::uuid, project_id, 2, digest, size_bytes, declares, has_worker, asset_count, \
         git_commit, git_message, git_branch, git_dirty, created_by, created_by_subject, created_at FROM projects.deployments; \
         INSERT INTO store.audit SELECT md5('4')::uuid, event, org_id, actor_id, credential, target, '{\"version\": 2}', request_id, \
         created_at FROM store.audit WHERE event = 'deployment.create'; \
         UPDATE projects.projects SET last_version = 2 WHERE name = 'p'; UPDATE projects.deployments SET status = 'serving'",
    ),
    ("an undeleted project without", "DELETE FROM projects.hostnames WHERE kind = 'default'"),
    ("an accepted invitation", "UPDATE orgs.invites SET ended_at = now(), accepted_by = invited_by"),
    ("an active hostname", "UPDATE projects.hostnames SET state = 'active', verified_at = now() WHERE kind = 'custom'"),
    (
        "a CNAME rrset",
        "INSERT INTO dns.rrsets (zone_id, name, sort_key, kind, ttl, rdata) \
             VALUES (md5('z')::uuid, 'www', 'www', 'A', 300, 'x'); \
         UPDATE dns.zones SET rrset_count = 2, bytes = 8 WHERE org_id IS NOT NULL",
    ),
    ("a row sealed", "UPDATE store.outbox SET key_id = 'forgotten'"),
    ("a row sealed", "UPDATE resources.secrets SET key_id = 'forgotten'"),
    ("a row sealed", "UPDATE oauth.signing_keys SET key_id = 'forgotten'"),
    ("a row sealed", "UPDATE oauth.grants SET successor = 'x', key_id = 'forgotten'"),
    ("a row sealed", "UPDATE git.nodes SET key_id = 'forgotten'"),
    ("a row sealed", "UPDATE certificates.accounts SET key_id = 'forgotten'"),
    ("a row sealed", "UPDATE certificates.certificates SET key_id = 'forgotten'"),
    ("a row sealed", "UPDATE certificates.orders SET key_id = 'forgotten'"),
    ("a secret with a revision", "UPDATE resources.secrets SET revision = 2 WHERE name = 'A'"),
    (
        "an active custom hostname",
        "UPDATE projects.hostnames SET state = 'active', verified_at = now(), proof = 'txt' WHERE kind = 'custom'; \
         INSERT INTO projects.former_hostnames VALUES ('c.example', md5('q')::uuid, now())",
    ),
    ("an automatic top-up", "UPDATE billing.topup_orders SET state = 'declined' WHERE state = 'credited'"),
    ("an automatic top-up", "UPDATE billing.topup_orders SET order_id = 'unpaid' WHERE state = 'credited'"),
    ("a pending automatic top-up", "DELETE FROM store.outbox WHERE topic = 'billing.topup'"),
    ("an organization with subscriptions", "UPDATE billing.subscriptions SET status = 'past_due'"),
    (
        "a live repository of a project",
        "DELETE FROM git.deploys; UPDATE git.counts SET repositories = 0; \
         UPDATE git.repositories SET project_id = md5('q')::uuid",
    ),
    ("a deploy of a push", "UPDATE git.deploys SET number = 4"),
    ("a deploy of a push", "UPDATE git.deploys SET version = 2"),
    (
        "a grant of a connected app",
        "UPDATE oauth.refresh_tokens SET rotated_at = now(), successor_hash = '1' WHERE rotated_at IS NULL",
    ),
    ("a refresh token of a grant", "DELETE FROM oauth.grants; DELETE FROM oauth.ended_grants"),
    ("a used refresh token", "UPDATE oauth.refresh_tokens SET successor_hash = '3' WHERE rotated_at IS NOT NULL"),
    ("a code that was exchanged", "UPDATE oauth.codes SET client_id = md5('other app')::uuid"),
    ("a code that was exchanged", "UPDATE oauth.device_codes SET state = 'denied'"),
    ("a row sealed", "UPDATE databases.databases SET key_id = 'forgotten'"),
    ("an undeleted project whose parts", "UPDATE convergence.parts SET desired = NULL WHERE part = 'database'"),
    ("an undeleted project whose placement", "UPDATE convergence.placements SET state = 'active'"),
    ("an operation on a database", "UPDATE databases.operations SET database_id = md5('x')::uuid"),
    ("a pending export", "UPDATE databases.exports SET ended_at = NULL, error = NULL"),
    ("a generation with a number", "UPDATE databases.sequences SET last_seq = 1"),
    ("an account of AI credit", "UPDATE billing.accounts SET balance_micro_cents = 8"),
    ("an account of AI credit", "UPDATE billing.accounts SET last_ledger_id = 5"),
    (
        "a row of a ledger",
        "INSERT INTO billing.ledger (org_id, ledger_id, kind, amount_micro_cents, balance_micro_cents, created_at) \
             VALUES (md5('o')::uuid, 6, 'adjust', 0, 4, now()); \
         UPDATE billing.accounts SET last_ledger_id = 6",
    ),
    (
        "a row of a ledger",
        "INSERT INTO billing.ledger (org_id, ledger_id, kind, amount_micro_cents, balance_micro_cents, created_at) \
             VALUES (md5('o')::uuid, 5, 'adjust', 1, 4, now()); \
         UPDATE billing.accounts SET last_ledger_id = 5, balance_micro_cents = 5",
    ),
    (
        "a row of a call whose running sums",
        "ALTER TABLE billing.ledger DISABLE TRIGGER ledger_append_only; \
         UPDATE billing.ledger SET project_input_tokens = 29 WHERE ledger_id = 4",
    ),
    ("a project whose usage", "UPDATE billing.project_usage SET spent_micro_cents = 4"),
    ("a project whose usage", "DELETE FROM billing.project_usage"),
    ("an account or a project that holds", "UPDATE billing.accounts SET held_micro_cents = 1"),
    ("an account or a project that holds", "UPDATE billing.project_usage SET held_micro_cents = 1"),
    (
        "a call that was deducted",
        "UPDATE billing.calls SET ended_at = NULL, org_id = md5('o')::uuid, \
         project_id = md5('p')::uuid, project = 'p', model = 'm', input_price = 1, output_price = 1",
    ),
    ("a saga without an owner", "UPDATE store.sagas SET org_id = md5('q')::uuid"),
    ("a finished saga with a step", "UPDATE store.saga_steps SET state = 'started' WHERE name = 'nameservers'"),
    (
        "a domain that is being registered",
        "UPDATE store.sagas SET state = 'failed', finished_at = now() WHERE state = 'waiting'",
    ),
    (
        "a domain charged twice",
        "INSERT INTO domains.charges SELECT md5('c3')::uuid, org_id, domain_id, name, purpose, renewed_until, cents, 'order 2', state, \
         created_at FROM domains.charges",
    ),
    ("a completed purchase", "UPDATE domains.charges SET state = 'declined'"),
    ("a bought domain whose purchase", "DELETE FROM store.saga_steps WHERE name = 'zone'"),
    ("a reserved name", "UPDATE dns.reservations SET name = 'other.example', path = 'example.other.'"),
    ("a project whose count of repositories", "UPDATE git.counts SET repositories = 2"),
    ("a repository whose updates", "UPDATE git.repositories SET last_update = 4"),
    ("a repository whose updates", "DELETE FROM git.ref_updates WHERE number = 2"),
    ("a mail domain without", "DELETE FROM resources.grants WHERE resource = 'email'"),
    ("a row sealed", "UPDATE resources.auth_providers SET key_id = 'forgotten'"),
    ("an undeleted project whose parts", "UPDATE convergence.parts SET desired = NULL WHERE part = 'auth'"),
    ("app sign-in without", "DELETE FROM resources.auth"),
    (
        "app sign-in without",
        "UPDATE databases.operations SET kind = 'delete', seq = NULL; \
         INSERT INTO store.audit SELECT md5('9')::uuid, 'database.delete', org_id, actor_id, credential, target, data, request_id, \
         created_at FROM store.audit WHERE event = 'database.restore'",
    ),
    ("an identity provider", "UPDATE resources.auth SET provider_revision = 0"),
    ("a queued mail", "DELETE FROM store.outbox WHERE topic = 'mail.relay'"),
    ("a pending delivery whose", "UPDATE mail.messages SET outcome = 'rejected' WHERE direction = 'in'"),
    ("a mailbox whose byte counts", "UPDATE mail.mailboxes SET sent_bytes = sent_bytes + 1"),
    ("a mail of a project", "DELETE FROM mail.mailboxes"),
    ("a managed record", "UPDATE dns.rrsets SET managed_by = 'certificate'"),
    (
        "a name that is active without a certificate",
        "INSERT INTO certificates.names (name, org_id, wanted, state, due_at, created_at) \
         VALUES ('p.example', md5('o')::uuid, true, 'active', now(), now())",
    ),
    ("a token that", "UPDATE databases.databases SET applied_revision = 2"),
    (
        "a created object without",
        "INSERT INTO databases.tokens (id, database_id, verifier, created_at, created_by) \
         VALUES (md5('t2')::uuid, md5('db')::uuid, 'v', now(), md5('u')::uuid)",
    ),
    (
        "a created object without",
        "INSERT INTO identity.ssh_keys (id, user_id, title, kind, fingerprint, public_key, created_at) \
         VALUES (md5('k')::uuid, md5('u')::uuid, 'k', 'rsa', 'f', 'k', now())",
    ),
    (
        "a created object without",
        "INSERT INTO oauth.grants (id, client_id, user_id, scopes, created_at, expires_at) \
             SELECT md5('g2')::uuid, client_id, user_id, scopes, created_at, expires_at FROM oauth.grants; \
         INSERT INTO oauth.refresh_tokens (token_hash, grant_id, created_at) VALUES ('3', md5('g2')::uuid, now())",
    ),
    (
        "a created object without",
        "INSERT INTO store.audit SELECT md5('12')::uuid, event, org_id, actor_id, credential, target, data, request_id, created_at \
         FROM store.audit WHERE event = 'repo.create'",
    ),
    (
        "a created object without",
        "INSERT INTO store.audit SELECT md5('5')::uuid, event, org_id, actor_id, credential, target, data, request_id, created_at \
         FROM store.audit WHERE event = 'deployment.create'",
    ),
    (
        "an audit row for an object",
        "INSERT INTO store.audit SELECT md5('6')::uuid, event, org_id, actor_id, credential, 'nothing', data, request_id, created_at \
         FROM store.audit WHERE event = 'project.create' LIMIT 1",
    ),
];

/// Returns the descriptions of the violated invariants.
async fn violated(database: &TestDatabase) -> BTreeSet<String> {
    let violations = chaos::violations(&database.url(), &["known"]).await.unwrap();
    violations.iter().map(|line| line.split(": {").next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn each_invariant_detects_only_its_own_violation() {
    let mut found = BTreeSet::new();
    let empty = TestDatabase::create().await;
    assert_eq!(violated(&empty).await, BTreeSet::new());
    let valid = TestDatabase::create().await;
    valid.run(&format!("{}{VALID}", chaos::setup_sql())).await;
    assert_eq!(violated(&valid).await, BTreeSet::new());
    for (description, statement) in VIOLATIONS {
        let database = valid.copy().await;
        database.run(statement).await;
        let violated = violated(&database).await;
        assert!(
            violated.len() == 1 && violated.first().unwrap().starts_with(description),
            "{description}: {violated:?}"
        );
        found.extend(violated);
    }
    let all: BTreeSet<String> = chaos::invariants().into_iter().map(|invariant| invariant.description).collect();
    assert_eq!(found, all);
}
