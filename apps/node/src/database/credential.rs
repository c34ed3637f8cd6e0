//! The node's own logins in a database. Their passwords exist only in the memory of the process.

use std::sync::Arc;

use postgres_protocol::password::scram_sha_256;
use protocol::Verifier;
use settings::Secret;
use sha256::hex;

use super::logins::NodeVerifiers;
use super::names::Names;
use super::server::{Address, Credentials};
use crate::random;

/// The node's logins in one database, with new passwords. `Debug` hides them.
#[derive(Debug, Clone)]
pub struct OwnLogins {
    pub verifiers: NodeVerifiers,
    /// The login of `env.db`.
    pub node: Arc<Credentials>,
    /// The login of app user auth.
    pub auth: Arc<Credentials>,
    /// The login of backups.
    pub dump: Arc<Credentials>,
}

impl OwnLogins {
    /// Creates the passwords.
    pub fn new(names: &Names, address: &Arc<Address>) -> std::io::Result<Self> {
        let credentials = |user: String, role: String, password: Secret| {
            Arc::new(Credentials { address: Arc::clone(address), database: names.database(), user, password, role })
        };
        let ((node_password, node), (auth_password, auth)) = (password()?, password()?);
        let (dump_password, dump) = password()?;
        Ok(Self {
            verifiers: NodeVerifiers { node, auth, dump },
            node: credentials(names.node(), names.database(), node_password),
            auth: credentials(names.auth(), names.auth(), auth_password),
            dump: credentials(names.dump(), names.database(), dump_password),
        })
    }
}

/// Creates a random password and its verifier. Postgres and its log receive only the verifier.
pub fn password() -> std::io::Result<(Secret, Verifier)> {
    let text = hex(&random::bytes::<24>()?);
    let verifier = Verifier::new(scram_sha_256(text.as_bytes()));
    Ok((Secret::new(text), verifier))
}
