//! Every invariant holds of an empty database, and finds what is planted against it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::collections::BTreeSet;

use testkit::TestDatabase;

/// Somebody in good order: an organization, its admin, a project with a deployment that is placed, a zone.
const GOOD: &str = "
    INSERT INTO identity.users (id, provider, subject, created_at) VALUES (md5('u')::uuid, 'dev', 'u', now());
    INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at) VALUES (md5('o')::uuid, 'o', 'o', 'free', true, now());
    INSERT INTO orgs.members (org_id, user_id, role, joined_at) VALUES (md5('o')::uuid, md5('u')::uuid, 'admin', now());
    INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at)
        VALUES (md5('p')::uuid, md5('o')::uuid, 'p', 'public', 1, now());
    INSERT INTO projects.hostnames (name, project_id, kind, state, created_at)
        VALUES ('p.example', md5('p')::uuid, 'default', 'active', now());
    INSERT INTO projects.deployments (id, project_id, version, digest, size_bytes, manifest, has_worker, asset_count, created_by,
        created_by_subject, created_at)
        VALUES (md5('d')::uuid, md5('p')::uuid, 1, sha256('d'), 1, '{}', false, 1, md5('u')::uuid, 'u', now());
    UPDATE projects.projects SET live_version = 1;
    INSERT INTO convergence.nodes (id, name, token_hash, revision, created_at) VALUES (md5('n')::uuid, 'n', 'x', 5, now());
    INSERT INTO convergence.placements (project_id, node_id, state, epoch, created_at)
        VALUES (md5('p')::uuid, md5('n')::uuid, 'active', 1, now());
    INSERT INTO convergence.parts (project_id, part, node_id, revision, desired, updated_at)
        VALUES (md5('p')::uuid, 'site', md5('n')::uuid, 5,
            jsonb_build_object('version', 1, 'bundle', 'sha256:' || encode(sha256('d'), 'hex')), now());
    INSERT INTO dns.zones (id, org_id, name, path, serial, rrset_count, last_change, dnssec_state, ds, created_at)
        VALUES (md5('z')::uuid, md5('o')::uuid, 'z.example', 'example.z.', 7, 1, 3, 'off', '[]', now());
    INSERT INTO dns.rrsets (zone_id, name, kind, ttl, rdata) VALUES (md5('z')::uuid, 'www', 'CNAME', 300, 'x');
    INSERT INTO dns.changes (zone_id, number, from_serial, to_serial, name, kind)
        SELECT md5('z')::uuid, n, n + 3, n + 4, 'www', 'A' FROM generate_series(1, 3) n;
    INSERT INTO store.audit (id, event, org_id, credential, target, data, request_id, created_at) VALUES
        (md5('1')::uuid, 'project.create', md5('o')::uuid, 'x', pg_temp.public_id('prj', md5('p')::uuid), '{}', 'r', now()),
        (md5('2')::uuid, 'deployment.create', md5('o')::uuid, 'x', pg_temp.public_id('prj', md5('p')::uuid), '{\"version\": 1}', 'r', now());
    INSERT INTO orgs.invites (id, org_id, email, role, token_hash, invited_by, created_at, expires_at)
        VALUES (md5('i')::uuid, md5('o')::uuid, 'a@b.example', 'viewer', 'x', md5('u')::uuid, now(), now());
    INSERT INTO store.outbox (id, topic, key, payload, key_id, attempts, due_at, give_up_at, created_at)
        VALUES (md5('m')::uuid, 't', 'k', 'x', 'known', 0, now(), now(), now());
    INSERT INTO projects.hostnames (name, project_id, kind, state, created_at)
        VALUES ('c.example', md5('p')::uuid, 'custom', 'pending_dns', now());
    INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at, deleted_at)
        VALUES (md5('gone')::uuid, md5('o')::uuid, 'gone', 'public', 0, now(), now());
    INSERT INTO store.audit (id, event, org_id, credential, target, data, request_id, created_at)
        VALUES (md5('3')::uuid, 'project.create', md5('o')::uuid, 'x', pg_temp.public_id('prj', md5('gone')::uuid), '{}', 'r', now());";

/// A statement that breaks one thing, and the beginning of what it is called.
const PLANTS: [(&str, &str); 19] = [
    ("an organization without", "UPDATE orgs.members SET role = 'member'"),
    ("a zone whose count", "UPDATE dns.zones SET rrset_count = 2 WHERE org_id IS NOT NULL"),
    ("an organization whose count", "UPDATE projects.counts SET projects = 2"),
    ("a node whose count", "UPDATE convergence.nodes SET placements = 0"),
    ("a project whose last version", "UPDATE projects.projects SET last_version = 2 WHERE name = 'p'"),
    ("a journal of a zone with a gap", "DELETE FROM dns.changes WHERE number = 2"),
    ("a journal of a zone that ends at", "UPDATE dns.zones SET serial = 6 WHERE org_id IS NOT NULL"),
    ("a part of a desired state that is newer", "UPDATE convergence.nodes SET revision = 4"),
    ("a part of a desired state that is not", "UPDATE convergence.parts SET node_id = NULL, revision = 0"),
    ("a placement of another", "UPDATE convergence.parts SET desired = desired || '{\"bundle\": \"sha256:0\"}'"),
    (
        "a project with two live",
        "INSERT INTO projects.deployments SELECT md5('e')::uuid, project_id, 2, digest, size_bytes, manifest, has_worker, asset_count, \
         git_commit, git_message, git_branch, git_dirty, created_by, created_by_subject, created_at FROM projects.deployments; \
         INSERT INTO store.audit SELECT md5('4')::uuid, event, org_id, actor_id, credential, target, '{\"version\": 2}', request_id, \
         created_at FROM store.audit WHERE event = 'deployment.create'; \
         UPDATE projects.projects SET last_version = 2 WHERE name = 'p'; UPDATE projects.deployments SET status = 'serving'",
    ),
    ("a project that is not deleted", "DELETE FROM projects.hostnames WHERE kind = 'default'"),
    ("a used invitation", "UPDATE orgs.invites SET ended_at = now(), accepted_by = invited_by"),
    ("an active hostname", "UPDATE projects.hostnames SET state = 'active', verified_at = now() WHERE kind = 'custom'"),
    (
        "an rrset CNAME",
        "INSERT INTO dns.rrsets (zone_id, name, kind, ttl, rdata) VALUES (md5('z')::uuid, 'www', 'A', 300, 'x'); \
         UPDATE dns.zones SET rrset_count = 2 WHERE org_id IS NOT NULL",
    ),
    ("a sealed row", "UPDATE store.outbox SET key_id = 'forgotten'"),
    (
        "a write without",
        "INSERT INTO identity.ssh_keys (id, user_id, title, kind, fingerprint, public_key, created_at) \
         VALUES (md5('k')::uuid, md5('u')::uuid, 'k', 'rsa', 'f', 'k', now())",
    ),
    (
        "a write without",
        "INSERT INTO store.audit SELECT md5('5')::uuid, event, org_id, actor_id, credential, target, data, request_id, created_at \
         FROM store.audit WHERE event = 'deployment.create'",
    ),
    (
        "an audit row of something",
        "INSERT INTO store.audit SELECT md5('6')::uuid, event, org_id, actor_id, credential, 'nothing', data, request_id, created_at \
         FROM store.audit WHERE event = 'project.create' LIMIT 1",
    ),
];

/// The invariants that are broken.
async fn broken(database: &TestDatabase) -> BTreeSet<String> {
    let broken = chaos::broken(&database.url(), &["known"]).await.unwrap();
    broken.iter().map(|line| line.split(": {").next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn each_finds_what_is_planted_and_nothing_else() {
    let mut found = BTreeSet::new();
    let empty = TestDatabase::create().await;
    assert_eq!(broken(&empty).await, BTreeSet::new());
    for (name, plant) in PLANTS {
        let database = TestDatabase::create().await;
        database.run(&format!("{}{GOOD}", chaos::preparation())).await;
        assert_eq!(broken(&database).await, BTreeSet::new());
        database.run(plant).await;
        let broken = broken(&database).await;
        assert!(broken.len() == 1 && broken.first().unwrap().starts_with(name), "{name}: {broken:?}");
        found.extend(broken);
    }
    let all: BTreeSet<String> = chaos::invariants().into_iter().map(|invariant| invariant.fault).collect();
    assert_eq!(found, all);
}
