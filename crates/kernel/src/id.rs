//! Typed ids: a UUIDv7 in Postgres, a TypeID on the wire.
//!
//! A TypeID (public TypeID specification 0.3) is a prefix, an underscore and the UUID's 128 bits in 26 characters of
//! lowercase Crockford base32. Only the canonical spelling is accepted, so each id has exactly one text.

use uuid::Uuid;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 26;

/// An invalid id, with the expected prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be an id that starts with {0}_")]
pub struct InvalidId(pub &'static str);

fn encode(prefix: &str, id: Uuid) -> String {
    let mut text = String::with_capacity(prefix.len() + 1 + LENGTH);
    text.push_str(prefix);
    text.push('_');
    let bits = id.as_u128();
    for position in (0..LENGTH).rev() {
        let digit = (bits >> (5 * position)) & 31;
        text.push(ALPHABET.get(digit as usize).copied().unwrap_or(b'0').into());
    }
    text
}

fn decode(prefix: &'static str, text: &str) -> Result<Uuid, InvalidId> {
    let digits = text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')).ok_or(InvalidId(prefix))?;
    // 26 digits have 130 bits, so the first digit must be 0 to 7.
    if digits.len() != LENGTH || !matches!(digits.as_bytes().first(), Some(b'0'..=b'7')) {
        return Err(InvalidId(prefix));
    }
    let mut bits = 0u128;
    for digit in digits.bytes() {
        let value = ALPHABET.iter().position(|&known| known == digit).ok_or(InvalidId(prefix))?;
        bits = bits << 5 | value as u128;
    }
    Ok(Uuid::from_u128(bits))
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, diesel::AsExpression, diesel::FromSqlRow)]
        #[diesel(sql_type = diesel::sql_types::Uuid)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID, which must belong to an object of this type.
            #[must_use]
            pub const fn from_uuid(id: Uuid) -> Self {
                Self(id)
            }

            /// Returns the smallest id that can be created at this time, for use as a bound of a time range.
            #[must_use]
            pub fn earliest_at(time: crate::Time) -> Self {
                let millis = u64::try_from(time.unix_millis()).unwrap_or(0);
                Self(Uuid::from_u128(u128::from(millis) << 80))
            }

            /// Returns the UUID, as it is stored.
            #[must_use]
            pub const fn as_uuid(&self) -> Uuid {
                self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&encode($prefix, self.0))
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                decode($prefix, text).map(Self)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl From<$name> for serde_json::Value {
            fn from(id: $name) -> Self {
                Self::String(id.to_string())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl diesel::serialize::ToSql<diesel::sql_types::Uuid, diesel::pg::Pg> for $name {
            fn to_sql<'b>(
                &'b self,
                out: &mut diesel::serialize::Output<'b, '_, diesel::pg::Pg>,
            ) -> diesel::serialize::Result {
                diesel::serialize::ToSql::<diesel::sql_types::Uuid, diesel::pg::Pg>::to_sql(&self.0, out)
            }
        }

        impl diesel::deserialize::FromSql<diesel::sql_types::Uuid, diesel::pg::Pg> for $name {
            fn from_sql(bytes: diesel::pg::PgValue<'_>) -> diesel::deserialize::Result<Self> {
                <Uuid as diesel::deserialize::FromSql<diesel::sql_types::Uuid, diesel::pg::Pg>>::from_sql(bytes).map(Self)
            }
        }

        crate::string_schema!($name, |schema| schema
            .pattern(Some(concat!("^", $prefix, "_[0-7][0-9a-hjkmnp-tv-z]{25}$")))
            .description(Some(concat!("an id that starts with ", $prefix, "_")))
            .examples([concat!($prefix, "_01m7yhx300fbd828t5cy4tqkff")]));
    )+ };
}

ids! {
    /// A user.
    UserId = "usr";
    /// A login session.
    SessionId = "ses";
    /// A personal access token.
    TokenId = "pat";
    /// An SSH key.
    KeyId = "key";
    /// An organization.
    OrgId = "org";
    /// An invitation to an organization.
    InviteId = "inv";
    /// A notification of an organization.
    NotificationId = "ntf";
    /// A project.
    ProjectId = "prj";
    /// A deployment.
    DeploymentId = "dep";
    /// A node.
    NodeId = "nod";
    /// A DNS zone.
    ZoneId = "zon";
    /// A domain.
    DomainId = "dom";
    /// The object storage of a project.
    StorageId = "sto";
    /// A certificate.
    CertificateId = "crt";
    /// The database of a project.
    DatabaseId = "dbs";
    /// A token of a database, and the name of its login.
    DatabaseTokenId = "tok";
    /// An operation on a database.
    OperationId = "opn";
    /// An export of a database.
    ExportId = "exp";
    /// A connected app (`client_id` in OAuth 2.0).
    ClientId = "app";
    /// A user's grant to a connected app (`sid` in its access tokens).
    GrantId = "gnt";
    /// A key that signs the access tokens of connected apps (`kid` in their headers).
    SigningKeyId = "jwk";
    /// A git repository.
    RepositoryId = "rep";
    /// A mail that a project sent or received.
    MailId = "mail";
    /// A row of the audit log.
    AuditId = "aud";
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_uuid_round_trips(bits: u128) {
            let id = UserId::from_uuid(Uuid::from_u128(bits));
            prop_assert_eq!(id.to_string().parse::<UserId>(), Ok(id));
            prop_assert_eq!(id.to_string().len(), 30);
        }

        #[test]
        fn accepted_texts_round_trip(text in "(usr_)?[0-9a-zA-Z_]{24,28}") {
            if let Ok(id) = text.parse::<UserId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }

        #[test]
        fn texts_sort_like_their_uuids(a: u128, b: u128) {
            let (x, y) = (OrgId::from_uuid(Uuid::from_u128(a)), OrgId::from_uuid(Uuid::from_u128(b)));
            prop_assert_eq!(x.to_string().cmp(&y.to_string()), a.cmp(&b));
        }
    }

    /// The test vectors of the TypeID specification, with a prefix of this service.
    #[test]
    fn specification_vectors_parse() {
        for (text, uuid) in [
            ("usr_00000000000000000000000000", "00000000-0000-0000-0000-000000000000"),
            ("usr_00000000000000000000000001", "00000000-0000-0000-0000-000000000001"),
            ("usr_7zzzzzzzzzzzzzzzzzzzzzzzzz", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
            ("usr_0123456789abcdefghjkmnpqrs", "0110c853-1d09-52d8-d73e-1194e95b5f19"),
            ("usr_01h455vb4pex5vsknk084sn02q", "01890a5d-ac96-774b-bcce-b302099a8057"),
        ] {
            let id = text.parse::<UserId>().expect(text);
            assert_eq!(id.as_uuid().to_string(), uuid);
            assert_eq!(id.to_string(), text);
        }
        for text in [
            "",
            "usr",
            "usr_",
            "org_01h455vb4pex5vsknk084sn02q",
            "usr_01h455vb4pex5vsknk084sn02",
            "usr_01h455vb4pex5vsknk084sn02qq",
            "usr_8zzzzzzzzzzzzzzzzzzzzzzzzz",
            "usr_01H455VB4PEX5VSKNK084SN02Q",
            "usr_01h455vb4pex5vsknk084sn0iq",
            "usr_ooooooooooooooooooooooooooo",
            " usr_01h455vb4pex5vsknk084sn02q",
        ] {
            assert_eq!(text.parse::<UserId>(), Err(InvalidId("usr")), "{text:?}");
        }
    }
}
