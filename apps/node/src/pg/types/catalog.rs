//! Looks up types that are not built in.

use std::str;

use postgres_protocol::Oid;

use super::{Scalar, Type, built_in_scalar};

/// Looks up types by an array of their ids. A domain counts as its base type, as in the descriptions of Postgres. A
/// type counts as an array only if it is the array type of its element type: `int2vector`, for example, has elements,
/// but is printed in another format. Every name and operator is qualified, because the search path is that of the
/// tenant.
pub const LOOKUP: &str = "\
    WITH RECURSIVE base(oid, id) AS (
        SELECT wanted.oid, wanted.oid FROM pg_catalog.unnest($1::pg_catalog.oid[]) AS wanted(oid)
        UNION ALL
        SELECT base.oid, t.typbasetype FROM base JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) base.id WHERE t.typtype OPERATOR(pg_catalog.=) 'd'
    ),
    found AS (
        SELECT base.oid, t.oid AS id, t.typname, e.oid AS element, e.typname AS element_name, e.typdelim
        FROM base
        JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) base.id AND t.typtype OPERATOR(pg_catalog.<>) 'd'
        LEFT JOIN pg_catalog.pg_type e ON e.oid OPERATOR(pg_catalog.=) t.typelem AND e.typarray OPERATOR(pg_catalog.=) t.oid
    ),
    element_base(element, id) AS (
        SELECT DISTINCT found.element, found.element FROM found WHERE found.element IS NOT NULL
        UNION ALL
        SELECT b.element, t.typbasetype FROM element_base b JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) b.id
        WHERE t.typtype OPERATOR(pg_catalog.=) 'd'
    )
    SELECT found.oid, COALESCE(found.element_name, found.typname), found.element IS NOT NULL,
           COALESCE((SELECT b.id FROM element_base b JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) b.id AND t.typtype OPERATOR(pg_catalog.<>) 'd'
                     WHERE b.element OPERATOR(pg_catalog.=) found.element), found.id),
           found.typdelim
    FROM found";

/// Reads a row of [`LOOKUP`]. Returns `None` if it is malformed.
pub fn parse_row(row: &[Option<&[u8]>]) -> Option<(Oid, Type)> {
    let &[Some(id), Some(name), Some(is_array), Some(scalar), delimiter] = row else { return None };
    let oid = |text: &[u8]| str::from_utf8(text).ok()?.parse::<Oid>().ok();
    let name = String::from_utf8_lossy(name);
    let is_array = is_array == b"t";
    let name = if is_array { format!("{name}[]") } else { name.into_owned() };
    let array = delimiter.filter(|_| is_array).and_then(|text| text.first().copied());
    Some((oid(id)?, Type { name: name.into(), scalar: built_in_scalar(oid(scalar)?).unwrap_or(Scalar::Text), array }))
}
