//! Migrations on a million rows during writes to the largest tables: the migrations after the baseline, and an example
//! of each kind of schema change.

use std::time::Duration;

use anyhow::{Context as _, Result};
use diesel_async::{AsyncConnection as _, AsyncPgConnection, SimpleAsyncConnection as _};
use kernel::Secret;
use store::migrations::{self, ALL, Migration, Migrator};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use xtask::postgres::Cluster;

use super::Outcome;
use super::report::Finding;

/// The last migration of the baseline, which creates all tables.
const BASELINE: &str = "20261122100700";

/// An example of each kind of expanding change.
const EXAMPLES: &[Migration] = &[
    example(
        "90000000000100_columns",
        "ALTER TABLE projects.projects
            ADD COLUMN example_at timestamptz, ADD COLUMN example_version integer NOT NULL DEFAULT 0;
        CREATE INDEX projects_example_at_idx ON projects.projects (example_at) WHERE example_at IS NOT NULL;
        ALTER TABLE projects.hostnames
            ADD COLUMN example text CONSTRAINT hostnames_example_check CHECK (example IN ('one', 'other'));",
    ),
    example("90000000000200_index", "CREATE INDEX CONCURRENTLY users_example_idx ON identity.users (name, id);"),
    example(
        "90000000000300_unique_index",
        "CREATE UNIQUE INDEX CONCURRENTLY deployments_example_key ON projects.deployments (project_id, id) WHERE version > 0;",
    ),
    example("90000000000400_drop_index", "DROP INDEX projects.deployments_example_key;"),
    example(
        "90000000000500_check",
        "ALTER TABLE orgs.members ADD CONSTRAINT members_example_check CHECK (joined_at > 'epoch') NOT VALID;",
    ),
    example("90000000000600_check_valid", "ALTER TABLE orgs.members VALIDATE CONSTRAINT members_example_check;"),
    example(
        "90000000000700_counts",
        "CREATE TABLE projects.example_counts (org_id uuid PRIMARY KEY, projects bigint NOT NULL);
        CREATE FUNCTION projects.count_example() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            UPDATE projects.example_counts c SET projects = c.projects + n.projects
                FROM (SELECT org_id, count(*) AS projects FROM added GROUP BY org_id) n WHERE c.org_id = n.org_id;
            RETURN NULL;
        END
        $$;
        CREATE TRIGGER example_added AFTER INSERT ON projects.projects
            REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION projects.count_example();",
    ),
    // The creation of a project locks the organization of the project, so a count is exact from the moment the count is
    // inserted.
    example(
        "90000000000800_counts_existing",
        "DO $$
        DECLARE
            batch uuid[];
            last uuid := '00000000-0000-0000-0000-000000000000';
        BEGIN
            LOOP
                SELECT array_agg(id ORDER BY id) INTO batch FROM (
                    SELECT id FROM orgs.orgs WHERE id > last ORDER BY id LIMIT 2000 FOR NO KEY UPDATE) locked;
                EXIT WHEN batch IS NULL;
                INSERT INTO projects.example_counts
                    SELECT id, (SELECT count(*) FROM projects.projects p WHERE p.org_id = id) FROM unnest(batch) id
                    ON CONFLICT DO NOTHING;
                COMMIT;
                last := batch[cardinality(batch)];
            END LOOP;
        END
        $$",
    ),
];

const fn example(name: &'static str, up: &'static str) -> Migration {
    Migration { name, up, down: "" }
}

/// Inserts a million rows into each of the largest tables, and the rows that these reference. It disables triggers,
/// because the checks of foreign keys take as long as the inserts.
const SEED: &str = "
    SET session_replication_role = replica;
    INSERT INTO identity.users (id, provider, subject, email, created_at)
        SELECT md5(n::text)::uuid, 'dev', 'user' || n, 'user' || n || '@example.org', now() FROM generate_series(1, 1000000) n;
    INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at)
        SELECT md5(n::text)::uuid, 'org' || n, 'org' || n, 'free', true, now() FROM generate_series(1, 100000) n;
    INSERT INTO orgs.members (org_id, user_id, role, joined_at)
        SELECT md5((n % 100000 + 1)::text)::uuid, md5(n::text)::uuid, 'admin', now() FROM generate_series(1, 1000000) n;
    INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at)
        SELECT md5(n::text)::uuid, md5((n % 100000 + 1)::text)::uuid, 'project' || n, 'public', 1, now()
        FROM generate_series(1, 1000000) n;
    INSERT INTO projects.deployments (id, project_id, version, digest, size_bytes, declares, has_worker, asset_count, created_by,
            created_by_subject, created_at)
        SELECT md5(n::text)::uuid, md5(n::text)::uuid, 1, sha256(n::text::bytea), 1, '{}', false, 1, md5(n::text)::uuid, 'user' || n, now()
        FROM generate_series(1, 1000000) n;
    INSERT INTO projects.hostnames (name, project_id, kind, state, created_at)
        SELECT 'project' || n || '.example.org', md5(n::text)::uuid, 'default', 'active', now() FROM generate_series(1, 1000000) n;
    INSERT INTO convergence.placements (project_id, state, epoch, created_at)
        SELECT md5(n::text)::uuid, 'pending', 1, now() FROM generate_series(1, 1000000) n;
    INSERT INTO convergence.parts (project_id, part, revision, desired, updated_at)
        SELECT md5(n::text)::uuid, 'site', 0, jsonb_build_object('version', 1, 'bundle', n), now() FROM generate_series(1, 1000000) n;
    INSERT INTO billing.accounts (org_id, balance_micro_cents, last_ledger_id, last_ledger_at)
        SELECT id, 10, 10, now() FROM orgs.orgs;
    INSERT INTO billing.ledger (org_id, ledger_id, kind, amount_micro_cents, balance_micro_cents, created_at)
        SELECT org_id, n, 'adjust', 1, n, now() FROM billing.accounts, generate_series(1, 10) n;
    INSERT INTO dns.rrsets (zone_id, name, sort_key, kind, ttl, rdata)
        SELECT md5((n % 100000 + 1)::text)::uuid, 'name' || n, ('name' || n)::bytea, 'A', 300, 'x' FROM generate_series(1, 1000000) n;
    INSERT INTO mail.messages (id, project_id, direction, sender, recipients, outcome, size_bytes, stored_bytes, spf, has_raw, created_at)
        SELECT md5(n::text)::uuid, md5(n::text)::uuid, 'in', 'a@example.org', '{b@example.org}', 'received', 1, 1, 'pass', false, now()
        FROM generate_series(1, 1000000) n;
    INSERT INTO store.audit (id, event, org_id, credential, target, data, request_id, created_at)
        SELECT md5(n::text)::uuid, 'project.create', md5((n % 100000 + 1)::text)::uuid, 'x', 'project' || n, '{}', 'x', now()
        FROM generate_series(1, 1000000) n";

/// A write to each of the largest tables. `NUMBER` is replaced by the number of a row.
const WRITES: [&str; 12] = [
    "UPDATE identity.users SET name = 'x' WHERE id = md5('NUMBER')::uuid",
    "UPDATE orgs.orgs SET name = 'x' WHERE id = md5('NUMBER')::uuid",
    "UPDATE orgs.members SET role = 'admin' WHERE user_id = md5('NUMBER')::uuid",
    "UPDATE projects.projects SET access_version = 1 WHERE id = md5('NUMBER')::uuid",
    "UPDATE projects.deployments SET git_branch = 'x' WHERE project_id = md5('NUMBER')::uuid",
    "UPDATE projects.hostnames SET last_error = 'x' WHERE project_id = md5('NUMBER')::uuid",
    "UPDATE convergence.placements SET epoch = 2 WHERE project_id = md5('NUMBER')::uuid",
    "UPDATE convergence.parts SET updated_at = now() WHERE project_id = md5('NUMBER')::uuid",
    "INSERT INTO billing.ledger (org_id, ledger_id, kind, amount_micro_cents, balance_micro_cents, created_at)
        SELECT org_id, max(ledger_id) + 1, 'adjust', 1, 1, now() FROM billing.ledger WHERE org_id = md5('NUMBER')::uuid
        GROUP BY org_id",
    "UPDATE dns.rrsets SET ttl = 60 WHERE zone_id = md5('NUMBER')::uuid",
    "UPDATE mail.messages SET detail = 'x' WHERE id = md5('NUMBER')::uuid",
    "INSERT INTO store.audit (id, event, credential, target, data, request_id, created_at)
        VALUES (gen_random_uuid(), 'project.create', 'x', 'projectNUMBER', '{}', 'x', now())",
];

pub async fn run() -> Result<Outcome> {
    let (mut outcome, cluster) = (Outcome::default(), Cluster::bench()?);
    let url = cluster.url("postgres");
    let first = ALL.iter().position(|migration| migration.version() > BASELINE).unwrap_or(ALL.len());
    let (baseline, later) = ALL.split_at(first);
    let mut connection = migrations::connect(Secret::new(url.clone())).await?;
    migrator_for(baseline).up(&mut connection).await?;
    // A plain connection, without the statement timeout of the migration connection.
    let mut seeding = AsyncPgConnection::establish(&url).await?;
    // Afterwards, neither autovacuum nor the write-back of these rows disturbs the migrations.
    for statement in [SEED, "VACUUM (ANALYZE)", "CHECKPOINT"] {
        seeding.batch_execute(statement).await?;
    }
    let mut results = Vec::new();
    for migration in later.chunks(1).chain(EXAMPLES.chunks(1)) {
        let (stop, stopped) = watch::channel(false);
        let mut writers = JoinSet::new();
        for statement in WRITES {
            writers.spawn(write_until(url.clone(), statement, stopped.clone()));
        }
        sleep(Duration::from_millis(300)).await;
        let start = Instant::now();
        let applied = migrator_for(migration).up(&mut connection).await?;
        let duration = start.elapsed();
        stop.send_replace(true);
        let mut longest = Duration::ZERO;
        while let Some(stall) = writers.join_next().await {
            longest = longest.max(stall??);
        }
        let name = applied.first().context("a migration was not applied")?.name;
        results.push((name, duration, longest));
    }
    let longest = results.iter().map(|(_, _, stall)| *stall).max().unwrap_or_default();
    let each: Vec<String> = results
        .iter()
        .map(|(name, duration, stall)| {
            let name = name.split_once('_').map_or(*name, |(_, name)| name);
            format!("{name} {:.1} s ({} ms)", duration.as_secs_f64(), stall.as_millis())
        })
        .collect();
    outcome.findings.push(Finding::new(
        "a release on the next schema",
        "no write stalls for more than 1 s on a million rows",
        longest <= Duration::from_secs(1),
        format!(
            "longest write during a migration {} ms; duration of each migration (and its longest write): {}",
            longest.as_millis(),
            each.join(", ")
        ),
    ));
    outcome
        .skipped
        .push("the previous release's tests on the next schema (there is no previous release yet)".to_owned());
    Ok(outcome)
}

fn migrator_for(migrations: &'static [Migration]) -> Migrator {
    Migrator { migrations, ..Migrator::default() }
}

/// Writes a row about 100 times per second until stopped. Returns the duration of the longest write.
async fn write_until(url: String, statement: &'static str, stopped: watch::Receiver<bool>) -> Result<Duration> {
    let mut connection = AsyncPgConnection::establish(&url).await?;
    let (mut longest, mut number) = (Duration::ZERO, 1_u64);
    while !*stopped.borrow() {
        number = number * 48271 % 99_991;
        let start = Instant::now();
        connection.batch_execute(&statement.replace("NUMBER", &number.to_string())).await?;
        longest = longest.max(start.elapsed());
        sleep(Duration::from_millis(10)).await;
    }
    Ok(longest)
}
