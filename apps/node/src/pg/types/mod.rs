//! The types of parameters and columns, and their values in worker code (spec/runtime.md, `env.db`).

mod array;
mod catalog;
mod decode;
mod encode;
mod time;

use std::borrow::Cow;
use std::collections::HashMap;

use postgres_protocol::Oid;

pub use self::catalog::{LOOKUP, parse_row};
pub use self::decode::write_value;
pub use self::encode::{Encoded, encode};

/// The largest number of looked-up types that a session keeps until it ends. Further types are looked up at each use.
const MAX_LOOKED_UP: usize = 1000;

/// A type as worker code sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Type {
    /// The name in `pg_type`, followed by `[]` for arrays.
    pub name: Cow<'static, str>,
    /// The type, or the type of the elements of an array.
    pub scalar: Scalar,
    /// The delimiter of the elements, if it is an array.
    pub array: Option<u8>,
}

/// How a value that is not an array appears in worker code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    Bool,
    /// A number without a fraction.
    Integer,
    /// A number; also `NaN` and infinities.
    Float,
    /// The value of the JSON text.
    Json,
    /// A `Uint8Array`.
    Bytes,
    /// ISO 8601 text of `timestamp` and `timestamptz`.
    Timestamp,
    /// ISO 8601 text of `date`.
    Date,
    /// The text that Postgres prints.
    Text,
}

/// The types of Postgres that most projects use: the id, the id of the array, the name, and the kind of the value.
const BUILT_IN: [(Oid, Oid, &str, Scalar); 24] = [
    (16, 1000, "bool", Scalar::Bool),
    (17, 1001, "bytea", Scalar::Bytes),
    (19, 1003, "name", Scalar::Text),
    (20, 1016, "int8", Scalar::Text),
    (21, 1005, "int2", Scalar::Integer),
    (23, 1007, "int4", Scalar::Integer),
    (25, 1009, "text", Scalar::Text),
    (26, 1028, "oid", Scalar::Text),
    (114, 199, "json", Scalar::Json),
    (700, 1021, "float4", Scalar::Float),
    (701, 1022, "float8", Scalar::Float),
    (869, 1041, "inet", Scalar::Text),
    (1042, 1014, "bpchar", Scalar::Text),
    (1043, 1015, "varchar", Scalar::Text),
    (1082, 1182, "date", Scalar::Date),
    (1083, 1183, "time", Scalar::Text),
    (1114, 1115, "timestamp", Scalar::Timestamp),
    (1184, 1185, "timestamptz", Scalar::Timestamp),
    (1186, 1187, "interval", Scalar::Text),
    (1266, 1270, "timetz", Scalar::Text),
    (1700, 1231, "numeric", Scalar::Text),
    (2249, 2287, "record", Scalar::Text),
    (2950, 2951, "uuid", Scalar::Text),
    (3802, 3807, "jsonb", Scalar::Json),
];

/// The types that a session knows.
#[derive(Default)]
pub struct Types(HashMap<Oid, Type>);

impl Types {
    /// Returns the type with this id; `None` if it must be looked up.
    pub fn get(&self, id: Oid) -> Option<Type> {
        built_in(id).or_else(|| self.0.get(&id).cloned())
    }

    /// Adds types that were looked up.
    pub fn extend(&mut self, types: impl IntoIterator<Item = (Oid, Type)>) {
        if self.0.len() >= MAX_LOOKED_UP {
            self.0.clear();
        }
        self.0.extend(types);
    }
}

/// Returns the kind of the values of a built-in type.
fn built_in_scalar(id: Oid) -> Option<Scalar> {
    BUILT_IN.iter().find(|(scalar, ..)| *scalar == id).map(|(.., kind)| *kind)
}

fn built_in(id: Oid) -> Option<Type> {
    let (scalar, _, name, kind) = BUILT_IN.iter().find(|(scalar, array, ..)| *scalar == id || *array == id)?;
    let is_array = *scalar != id;
    let name = if is_array { Cow::Owned(format!("{name}[]")) } else { Cow::Borrowed(*name) };
    Some(Type { name, scalar: *kind, array: is_array.then_some(b',') })
}

impl Type {
    /// Returns how the binding's module converts the JSON of a value: `f` for a float, `b` for bytes, otherwise empty.
    /// The letter is in upper case for arrays.
    pub const fn conversion(&self) -> &'static str {
        match (self.scalar, self.array) {
            (Scalar::Float, None) => "f",
            (Scalar::Float, Some(_)) => "F",
            (Scalar::Bytes, None) => "b",
            (Scalar::Bytes, Some(_)) => "B",
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_types_are_known() {
        let types = Types::default();
        assert_eq!(types.get(23).unwrap(), Type { name: "int4".into(), scalar: Scalar::Integer, array: None });
        let array = types.get(1001).unwrap();
        assert_eq!((&*array.name, array.array, array.conversion()), ("bytea[]", Some(b','), "B"));
        assert_eq!(types.get(22), None);
    }
}
