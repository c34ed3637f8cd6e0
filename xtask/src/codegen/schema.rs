//! `schema.rs` of every crate that keeps tables, written from a migrated database.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use diesel::QueryableByName;
use diesel::sql_types::Text;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::catalog::{self, Column, Relation};
use super::file::{File, rustfmt};

#[derive(QueryableByName)]
struct Name {
    #[diesel(sql_type = Text)]
    name: String,
}

const SCHEMAS: &str = "
    SELECT nspname::text AS name FROM pg_namespace
    WHERE nspname NOT IN ('public', 'information_schema') AND nspname NOT LIKE 'pg\\_%' ORDER BY nspname";

/// Path and text of each file: a schema of Postgres belongs to the crate of its name.
pub async fn files(conn: &mut AsyncPgConnection, root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for Name { name } in diesel::sql_query(SCHEMAS).load(conn).await? {
        let folder = format!("crates/{name}/src");
        ensure!(root.join(&folder).is_dir(), "the schema {name} has no crate: {folder} does not exist");
        files.push((format!("{folder}/schema.rs"), rustfmt(&text(conn, &name).await?)?));
    }
    Ok(files)
}

async fn text(conn: &mut AsyncPgConnection, schema: &str) -> Result<String> {
    let relations = catalog::relations(conn, schema).await?;
    let mut text = format!(
        "//! The Postgres schema `{schema}`, written by `cargo xtask codegen` from `migrations/`: change it there.\n"
    );
    for relation in &relations {
        table(&mut text, schema, relation)?;
    }
    for it in catalog::references(conn, schema).await? {
        write!(text, "\ndiesel::joinable!({} -> {} ({}));", it.child, it.parent, it.column)?;
    }
    if relations.len() > 1 {
        let names: Vec<&str> = relations.iter().map(|relation| relation.name.as_str()).collect();
        write!(text, "\ndiesel::allow_tables_to_appear_in_same_query!({});", names.join(", "))?;
    }
    Ok(text)
}

fn table(text: &mut String, schema: &str, relation: &Relation) -> Result<()> {
    write!(text, "\ndiesel::table! {{\n    {schema}.{} ({}) {{\n", relation.name, relation.key.join(", "))?;
    for column in &relation.columns {
        let rust = rust_type(column).with_context(|| format!("{schema}.{}", relation.name))?;
        writeln!(text, "        {} -> {rust},", column.name)?;
    }
    text.push_str("    }\n}\n");
    Ok(())
}

/// Arrays hold no nulls here; Postgres has no way to say so.
fn rust_type(column: &Column) -> Result<String> {
    let rust = match column.pg_type.as_str() {
        "uuid" => "Uuid",
        "text" => "Text",
        "text[]" => "Array<Text>",
        "uuid[]" => "Array<Uuid>",
        "bytea" => "Binary",
        "boolean" => "Bool",
        "integer" => "Integer",
        "bigint" => "BigInt",
        "jsonb" => "Jsonb",
        "inet" => "Inet",
        "timestamp with time zone" => "Timestamptz",
        other => bail!("column {}: no mapping for the type {other}", column.name),
    };
    Ok(if column.nullable { format!("Nullable<{rust}>") } else { rust.to_owned() })
}
