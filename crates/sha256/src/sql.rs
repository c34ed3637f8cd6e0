//! The Postgres encoding of a digest.

use diesel::deserialize::{self, FromSql};
use diesel::pg::{Pg, PgValue};
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::Binary;

use crate::Digest;

impl ToSql<Binary, Pg> for Digest {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        ToSql::<Binary, Pg>::to_sql(self.0.as_slice(), out)
    }
}

impl FromSql<Binary, Pg> for Digest {
    fn from_sql(bytes: PgValue<'_>) -> deserialize::Result<Self> {
        let bytes = <Vec<u8> as FromSql<Binary, Pg>>::from_sql(bytes)?;
        Ok(Self(bytes.try_into().map_err(|_| "a stored digest is not 32 bytes")?))
    }
}
