//! The database of a project, and how to connect to it.

use serde::Serialize;

/// Whether a project has a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({ "db": true })))]
pub struct DatabaseStatus {
    pub db: bool,
}

/// The address of a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "host": "db1.svc.example",
        "port": 5432,
        "database": "db_01m7yhx300fbd828t5cy4tqkff",
        "sslmode": "verify-full",
    }))
)]
pub struct DatabaseEndpoint {
    pub host: String,
    pub port: i32,
    /// The name of the database. It never changes.
    pub database: String,
    /// The `sslmode` for the connection: `disable`, `require` or `verify-full`.
    pub sslmode: String,
}

/// The address and the login of a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "user": "app_01m7yhx300fbd828t5cy4tqkff",
        "password": "EXAMPLE",
        "url": "postgres://app_01m7yhx300fbd828t5cy4tqkff:EXAMPLE@db1.svc.example:5432/db_01m7yhx300fbd828t5cy4tqkff?sslmode=verify-full",
    }))
)]
pub struct DatabaseConnect {
    #[serde(flatten)]
    pub endpoint: DatabaseEndpoint,
    /// The login role of the project.
    pub user: String,
    pub password: Password,
    /// The address for a Postgres client, with user and password.
    pub url: Password,
}

/// A password, or an address that contains one. It is serializable for the responses that contain it. Its `Debug`
/// implementation does not show it.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Password(String);

impl Password {
    /// Wraps a plaintext.
    #[must_use]
    pub const fn new(plaintext: String) -> Self {
        Self(plaintext)
    }

    /// Returns the plaintext.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(…)")
    }
}

kernel::string_schema!(Password, |schema| schema
    .format(Some(utoipa::openapi::SchemaFormat::KnownFormat(utoipa::openapi::KnownFormat::Password)))
    .description(Some("a secret text; do not log it")));

impl DatabaseConnect {
    /// Composes the address of a login.
    #[must_use]
    pub fn new(endpoint: DatabaseEndpoint, user: String, password: Password) -> Self {
        let DatabaseEndpoint { host, port, database, sslmode } = &endpoint;
        // An IPv6 address needs brackets. No other part needs an escape.
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let url = format!("postgres://{user}:{}@{host}:{port}/{database}?sslmode={sslmode}", password.reveal());
        Self { endpoint, user, password, url: Password(url) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_contains_login_and_address_and_debug_hides_it() {
        let endpoint = |host: &str| DatabaseEndpoint {
            host: host.to_owned(),
            port: 5432,
            database: "db_x".to_owned(),
            sslmode: "require".to_owned(),
        };
        let connect = |host| DatabaseConnect::new(endpoint(host), "app_x".to_owned(), Password::new("hush".to_owned()));
        assert_eq!(connect("db1.example").url.reveal(), "postgres://app_x:hush@db1.example:5432/db_x?sslmode=require");
        assert_eq!(connect("::1").url.reveal(), "postgres://app_x:hush@[::1]:5432/db_x?sslmode=require");
        assert!(!format!("{:?}", connect("db1.example")).contains("hush"));
    }
}
