//! Fills a database with organizations and deployed projects, by COPY.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The size of a database.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Organizations with one member each, in addition to the first organization.
    pub orgs: u32,
    /// Projects of the first organization: `p0`, `p1` and so on.
    pub first_org_projects: u32,
    /// Projects of all other organizations together.
    pub other_projects: u32,
}

/// The tables with one row per project.
const PROJECT_TABLES: &[(&str, &str)] = &[
    ("projects.projects", "id, org_id, name, access_mode, last_version, live_version, created_at"),
    ("projects.hostnames", "name, project_id, kind, state, created_at, verified_at"),
    (
        "projects.deployments",
        "id, project_id, version, digest, size_bytes, declares, has_worker, asset_count, created_by, \
         created_by_subject, created_at, status",
    ),
    ("convergence.placements", "project_id, node_id, state, epoch, created_at"),
    ("convergence.parts", "project_id, part, node_id, revision, desired, updated_at"),
    ("store.audit", "id, event, org_id, actor_id, credential, target, data, request_id, created_at"),
];

/// Runs a query with psql and returns its output.
pub fn query(psql: &Path, url: &str, question: &str) -> Result<String> {
    let output = Command::new(psql).args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", question, url]).output()?;
    ensure!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Fills a database whose first organization has this slug. Disables triggers and foreign key checks for speed.
pub fn fill(psql: &Path, url: &str, slug: &str, size: Size) -> Result<()> {
    let org = query(psql, url, &format!("SELECT id FROM orgs.orgs WHERE slug = '{slug}'"))?;
    let mut child = Command::new(psql)
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let mut psql = BufWriter::new(child.stdin.take().context("psql has no stdin")?);
    writeln!(psql, "SET session_replication_role = replica;")?;
    people(&mut psql, size)?;
    for (table, columns) in PROJECT_TABLES {
        copy(
            &mut psql,
            table,
            columns,
            (0..size.first_org_projects + size.other_projects).map(|number| {
                let owner = if number < size.first_org_projects { org.clone() } else { id(1, number % size.orgs) };
                row(table, number, &owner)
            }),
        )?;
    }
    // The counters that the disabled triggers maintain.
    writeln!(
        psql,
        "DELETE FROM projects.project_counts; INSERT INTO projects.project_counts SELECT org_id, count(*) FROM projects.projects GROUP BY org_id;"
    )?;
    writeln!(
        psql,
        "UPDATE convergence.nodes n SET placements = (SELECT count(*) FROM convergence.placements p WHERE p.node_id = n.id);"
    )?;
    writeln!(psql, "RESET session_replication_role;")?;
    writeln!(psql, "VACUUM (ANALYZE);")?;
    // Load all tables and indexes into memory, as in a database that has been in use for some time.
    writeln!(psql, "CREATE EXTENSION pg_prewarm;")?;
    writeln!(psql, "SELECT pg_prewarm(oid) FROM pg_class WHERE relkind IN ('r', 'i') AND relpersistence = 'p';")?;
    psql.into_inner().map_err(|error| error.into_error())?;
    ensure!(child.wait()?.success(), "psql failed to load the data");
    Ok(())
}

fn people(psql: &mut impl Write, Size { orgs, .. }: Size) -> Result<()> {
    let all = || 0..orgs;
    let users = all().map(|number| format!("{}\tdev\tuser{number}\t{TIME}", id(0, number)));
    copy(psql, "identity.users", "id, provider, subject, created_at", users)?;
    let rows = all().map(|number| format!("{}\torg{number}\tOrganization\tfree\tf\t{TIME}", id(1, number)));
    copy(psql, "orgs.orgs", "id, slug, name, plan, personal, created_at", rows)?;
    let members = all().map(|number| format!("{}\t{}\tadmin\t{TIME}", id(1, number), id(0, number)));
    copy(psql, "orgs.members", "org_id, user_id, role, joined_at", members)?;
    let node = format!("{}\tseed\t\\\\x{:064x}\t1\t{TIME}", id(2, 0), 0);
    copy(psql, "convergence.nodes", "id, name, token_hash, revision, created_at", [node].into_iter())
}

const TIME: &str = "2026-01-01T00:00:00Z";

fn row(table: &str, number: u32, org: &str) -> String {
    let (project, user) = (id(3, number), id(0, 0));
    match table {
        "projects.projects" => format!("{project}\t{org}\tp{number}\tpublic\t1\t1\t{TIME}"),
        "projects.hostnames" => format!("p{number}.seed.localhost\t{project}\tdefault\tactive\t{TIME}\t{TIME}"),
        "projects.deployments" => format!(
            "{}\t{project}\t1\t\\\\x{number:064x}\t4096\t{{}}\tf\t4\t{user}\tuser0\t{TIME}\tserving",
            id(4, number)
        ),
        "convergence.placements" => format!("{project}\t{}\tactive\t1\t{TIME}", id(2, 0)),
        "convergence.parts" => format!(
            "{project}\tsite\t{}\t{}\t{{\"hostnames\": [\"p{number}.seed.localhost\"]}}\t{TIME}",
            id(2, 0),
            number + 2
        ),
        _ => format!(
            "{}\tproject.create\t{org}\t{user}\tsession\t{project}\t{{\"name\": \"p{number}\"}}\trequest\t{TIME}",
            id(5, number)
        ),
    }
}

/// Returns an id of one kind of row. Ids ascend with the number and are older than the ids that a server generates.
fn id(kind: u8, number: u32) -> String {
    format!("01900000-0000-7000-8{kind:03x}-{number:012x}")
}

fn copy(psql: &mut impl Write, table: &str, columns: &str, rows: impl Iterator<Item = String>) -> Result<()> {
    writeln!(psql, "COPY {table} ({columns}) FROM STDIN;")?;
    for row in rows {
        writeln!(psql, "{row}")?;
    }
    Ok(writeln!(psql, "\\.")?)
}
