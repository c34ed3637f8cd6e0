//! A text description of the schema of a database, and a test that it shows every change.

use std::fmt::Write as _;

use testkit::TestDatabase;

use super::migrations::empty;

/// Describes the schema with at least one line per object.
pub async fn describe(database: &TestDatabase) -> String {
    let mut text = String::new();
    for row in database.rows(include_str!("description.sql")).await {
        let text_of = |column: &str| row.get(column).and_then(|it| it.as_str()).unwrap().to_owned();
        writeln!(text, "{} {}: {}", text_of("kind"), text_of("name"), text_of("definition")).unwrap();
    }
    text
}

/// Changes of the schema, each with the statement that reverts it.
const CHANGES: &[[&str; 2]] = &[
    ["CREATE SCHEMA a", "DROP SCHEMA a"],
    ["GRANT USAGE ON SCHEMA own TO pg_monitor", "REVOKE USAGE ON SCHEMA own FROM pg_monitor"],
    ["CREATE TABLE own.a ()", "DROP TABLE own.a"],
    ["CREATE TABLE own.a PARTITION OF own.parts FOR VALUES IN (1)", "DROP TABLE own.a"],
    ["GRANT SELECT ON own.t TO pg_monitor", "REVOKE SELECT ON own.t FROM pg_monitor"],
    ["GRANT SELECT (x) ON own.t TO pg_monitor", "REVOKE SELECT (x) ON own.t FROM pg_monitor"],
    ["ALTER TABLE own.t ENABLE ROW LEVEL SECURITY", "ALTER TABLE own.t DISABLE ROW LEVEL SECURITY"],
    ["ALTER TABLE own.t SET (fillfactor = 50)", "ALTER TABLE own.t RESET (fillfactor)"],
    ["ALTER TABLE own.t ADD a int", "ALTER TABLE own.t DROP a"],
    ["ALTER TABLE own.t ALTER y TYPE bigint", "ALTER TABLE own.t ALTER y TYPE int"],
    ["ALTER TABLE own.t ALTER x SET NOT NULL", "ALTER TABLE own.t ALTER x DROP NOT NULL"],
    ["ALTER TABLE own.t ALTER x SET DEFAULT 1", "ALTER TABLE own.t ALTER x DROP DEFAULT"],
    ["ALTER TABLE own.t ADD a int GENERATED ALWAYS AS IDENTITY", "ALTER TABLE own.t DROP a"],
    ["ALTER TABLE own.t ADD CONSTRAINT a CHECK (x > 0)", "ALTER TABLE own.t DROP CONSTRAINT a"],
    ["ALTER TABLE own.t ADD CONSTRAINT a UNIQUE (x)", "ALTER TABLE own.t DROP CONSTRAINT a"],
    ["ALTER TABLE own.t ADD CONSTRAINT a FOREIGN KEY (x) REFERENCES own.k", "ALTER TABLE own.t DROP CONSTRAINT a"],
    ["CREATE INDEX a ON own.t (x) WHERE x > 0", "DROP INDEX own.a"],
    ["CREATE TRIGGER a BEFORE UPDATE ON own.t EXECUTE FUNCTION own.f()", "DROP TRIGGER a ON own.t"],
    ["ALTER TABLE own.t DISABLE TRIGGER g", "ALTER TABLE own.t ENABLE TRIGGER g"],
    ["CREATE RULE a AS ON DELETE TO own.t DO INSTEAD NOTHING", "DROP RULE a ON own.t"],
    ["CREATE POLICY a ON own.t USING (x > 0)", "DROP POLICY a ON own.t"],
    ["CREATE VIEW own.a AS SELECT x FROM own.t", "DROP VIEW own.a"],
    [
        "CREATE OR REPLACE VIEW own.v AS SELECT x + 1 AS x FROM own.t",
        "CREATE OR REPLACE VIEW own.v AS SELECT x FROM own.t",
    ],
    ["CREATE MATERIALIZED VIEW own.a AS SELECT 1", "DROP MATERIALIZED VIEW own.a"],
    ["CREATE SEQUENCE own.a", "DROP SEQUENCE own.a"],
    ["ALTER SEQUENCE own.s INCREMENT 2", "ALTER SEQUENCE own.s INCREMENT 1"],
    ["ALTER SEQUENCE own.s OWNED BY own.t.x", "ALTER SEQUENCE own.s OWNED BY NONE"],
    ["CREATE STATISTICS own.a ON x, y FROM own.t", "DROP STATISTICS own.a"],
    ["CREATE FUNCTION own.a() RETURNS int LANGUAGE sql RETURN 1", "DROP FUNCTION own.a"],
    [
        "CREATE OR REPLACE FUNCTION own.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE OR REPLACE FUNCTION own.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    ],
    ["GRANT ALL ON FUNCTION own.f TO pg_monitor", "REVOKE ALL ON FUNCTION own.f FROM pg_monitor"],
    ["CREATE TYPE own.a AS ENUM ('b')", "DROP TYPE own.a"],
    ["CREATE DOMAIN own.a AS int CHECK (value > 0)", "DROP DOMAIN own.a"],
    ["ALTER DOMAIN own.d SET NOT NULL", "ALTER DOMAIN own.d DROP NOT NULL"],
    ["CREATE AGGREGATE own.a (int) (SFUNC = int4pl, STYPE = int)", "DROP AGGREGATE own.a (int)"],
    ["CREATE CAST (own.e AS int) WITH INOUT", "DROP CAST (own.e AS int)"],
    ["CREATE OPERATOR own.<#> (FUNCTION = int4pl, LEFTARG = int, RIGHTARG = int)", "DROP OPERATOR own.<#> (int, int)"],
    ["CREATE COLLATION own.a FROM \"C\"", "DROP COLLATION own.a"],
    ["CREATE PUBLICATION a", "DROP PUBLICATION a"],
    [
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC",
        "ALTER DEFAULT PRIVILEGES REVOKE SELECT ON TABLES FROM PUBLIC",
    ],
    ["COMMENT ON COLUMN own.t.x IS 'a'", "COMMENT ON COLUMN own.t.x IS NULL"],
];

#[tokio::test]
async fn description_shows_every_kind_of_change() {
    let (database, _) = empty().await;
    database
        .run(
            "CREATE SCHEMA own; GRANT USAGE ON SCHEMA own TO pg_read_all_data;
             CREATE TABLE own.k (x int PRIMARY KEY);
             CREATE TABLE own.t (x int, y int); GRANT SELECT ON own.t TO pg_read_all_data;
             GRANT SELECT (x) ON own.t TO pg_read_all_data;
             CREATE TABLE own.parts (x int) PARTITION BY LIST (x);
             CREATE FUNCTION own.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
             GRANT ALL ON FUNCTION own.f TO pg_read_all_data;
             CREATE TRIGGER g BEFORE INSERT ON own.t EXECUTE FUNCTION own.f();
             CREATE VIEW own.v AS SELECT x FROM own.t; CREATE SEQUENCE own.s;
             CREATE DOMAIN own.d AS int; CREATE TYPE own.e AS ENUM ('a');",
        )
        .await;
    let before = describe(&database).await;
    for [change, undo] in CHANGES {
        database.run(change).await;
        assert!(describe(&database).await != before, "not shown: {change}");
        database.run(undo).await;
        assert!(describe(&database).await == before, "not reverted: {undo}");
    }
}
