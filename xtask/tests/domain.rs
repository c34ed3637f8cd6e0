//! `xtask domain`, as an operator runs it.

#![expect(clippy::unwrap_used, reason = "tests panic on unexpected results")]

use std::process::{Command, Output};

use kernel::OrgId;
use testkit::TestDatabase;

const ORG: &str = "01890000-0000-7000-8000-000000000001";

fn unpaid(database: &TestDatabase, options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["domain", "unpaid", "--database-url", &database.url()]).args(options);
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn unpaid_renewals_are_listed_oldest_first() {
    let database = TestDatabase::create().await;
    let create = format!(
        "INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at) \
         VALUES ('{ORG}', 'acme', 'Acme', 'free', false, now())"
    );
    database.run(&create).await;
    for (number, day, state) in [(1, 3, "unbilled"), (2, 2, "declined"), (3, 1, "paid")] {
        let charge = format!(
            "INSERT INTO domains.charges (id, org_id, domain_id, name, purpose, renewed_until, cents, state, created_at) \
             VALUES (gen_random_uuid(), '{ORG}', gen_random_uuid(), 'shop{number}.com', 'renewal', \
             '2027-01-01T00:00:00Z', 1499, '{state}', '2026-01-0{day}T00:00:00Z')"
        );
        database.run(&charge).await;
    }
    let shown = unpaid(&database, &[]);
    let rows: Vec<Vec<&str>> = shown.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let (org, until) = (OrgId::from_uuid(ORG.parse().unwrap()).to_string(), "2027-01-01T00:00:00.000Z");
    let org = org.as_str();
    let expected = [
        ["2026-01-02T00:00:00.000Z", "shop2.com", org, until, "1499", "declined"],
        ["2026-01-03T00:00:00.000Z", "shop1.com", org, until, "1499", "unbilled"],
    ];
    assert_eq!(rows, expected, "{shown}");
    assert!(unpaid(&database, &["--limit", "1"]).ends_with("… there may be more\n"));
}
