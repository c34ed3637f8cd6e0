//! The relations of one schema, from the Postgres catalog.

use anyhow::Result;
use diesel::QueryableByName;
use diesel::sql_types::{Array, Bool, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

/// A table or a view.
pub struct Relation {
    pub name: String,
    pub key: Vec<String>,
    pub columns: Vec<Column>,
}

/// A column with its Postgres type.
#[derive(QueryableByName)]
pub struct Column {
    #[diesel(sql_type = Text)]
    relation: String,
    #[diesel(sql_type = Text)]
    pub name: String,
    #[diesel(sql_type = Text)]
    pub pg_type: String,
    #[diesel(sql_type = Bool)]
    pub nullable: bool,
}

/// A foreign key with one column between two tables of the schema.
#[derive(QueryableByName)]
pub struct Reference {
    #[diesel(sql_type = Text)]
    pub child: String,
    #[diesel(sql_type = Text)]
    pub parent: String,
    #[diesel(sql_type = Text)]
    pub column: String,
}

#[derive(QueryableByName)]
struct Key {
    #[diesel(sql_type = Text)]
    relation: String,
    #[diesel(sql_type = Array<Text>)]
    columns: Vec<String>,
}

// The catalog reports every column of a view as nullable. Therefore, this query uses the nullability of the base
// table's column with the same name. That is correct for views that only select and filter, but not for columns of an
// outer join.
const COLUMNS: &str = "
    SELECT c.relname::text AS relation, a.attname::text AS name, format_type(a.atttypid, NULL) AS pg_type,
           NOT coalesce(base.attnotnull, a.attnotnull) AS nullable
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN LATERAL (
        SELECT bool_and(b.attnotnull) AS attnotnull
        FROM pg_rewrite r
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
        JOIN pg_attribute b ON b.attrelid = d.refobjid AND b.attnum = d.refobjsubid
        WHERE r.ev_class = c.oid AND b.attrelid <> c.oid AND b.attname = a.attname
    ) base ON c.relkind = 'v'
    WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
    ORDER BY c.relname, a.attnum";

const KEYS: &str = "
    SELECT c.relname::text AS relation,
           (SELECT array_agg(a.attname::text ORDER BY k.place)
            FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum) AS columns
    FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
    WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'p')";

const REFERENCES: &str = "
    SELECT child.relname::text AS child, parent.relname::text AS parent, a.attname::text AS column
    FROM pg_constraint f
    JOIN pg_class child ON child.oid = f.conrelid
    JOIN pg_class parent ON parent.oid = f.confrelid
    JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = f.conkey[1]
    WHERE f.contype = 'f' AND cardinality(f.conkey) = 1 AND f.conrelid <> f.confrelid
      AND child.relnamespace = $1::regnamespace AND parent.relnamespace = $1::regnamespace
    ORDER BY child.relname, parent.relname, a.attnum";

/// Returns the relations of a schema, ordered by name.
pub async fn relations(conn: &mut AsyncPgConnection, schema: &str) -> Result<Vec<Relation>> {
    let columns: Vec<Column> = diesel::sql_query(COLUMNS).bind::<Text, _>(schema).load(conn).await?;
    let keys: Vec<Key> = diesel::sql_query(KEYS).bind::<Text, _>(schema).load(conn).await?;
    let mut relations: Vec<Relation> = Vec::new();
    for column in columns {
        match relations.last_mut() {
            Some(relation) if relation.name == column.relation => relation.columns.push(column),
            _ => {
                let name = column.relation.clone();
                let key = keys.iter().find(|key| key.relation == name).map(|key| key.columns.clone());
                // Views have no primary key, but diesel needs one.
                let key = key.unwrap_or_else(|| vec![column.name.clone()]);
                relations.push(Relation { name, key, columns: vec![column] });
            }
        }
    }
    Ok(relations)
}

/// Returns the foreign keys of a schema that diesel can join by.
pub async fn references(conn: &mut AsyncPgConnection, schema: &str) -> Result<Vec<Reference>> {
    let mut all: Vec<Reference> = diesel::sql_query(REFERENCES).bind::<Text, _>(schema).load(conn).await?;
    // diesel cannot choose between two foreign keys that join the same tables.
    let pairs: Vec<[String; 2]> = all.iter().map(Reference::pair).collect();
    all.retain(|it| pairs.iter().filter(|pair| **pair == it.pair()).count() == 1);
    Ok(all)
}

impl Reference {
    fn pair(&self) -> [String; 2] {
        let mut pair = [self.child.clone(), self.parent.clone()];
        pair.sort();
        pair
    }
}
