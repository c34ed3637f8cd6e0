//! The desired roles of a database.

use std::collections::BTreeSet;

use protocol::{Database, OperationPhase, Verifier};

use super::names::{self, Names};
use super::usage::Usage;

/// The smallest limit of temporary files, in bytes.
const MIN_TEMPORARY_BYTES: u64 = 1 << 30;
/// The connection limits: of the login of `DatabaseConnect`, of a token, of `env.db`, of app user auth and of backups.
const APP_CONNECTIONS: i32 = 20;
const TOKEN_CONNECTIONS: i32 = 5;
const NODE_CONNECTIONS: i32 = 16;
const AUTH_CONNECTIONS: i32 = 12;
const DUMP_CONNECTIONS: i32 = 8;

/// The roles that may log in to a database now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logins {
    /// All roles.
    Open {
        /// Whether sessions are read-only by default, because the database exceeds its limits.
        read_only: bool,
    },
    /// Only the login of backups.
    NodeOnly,
    /// No role.
    Closed,
}

/// The verifiers of the node's own logins. `Debug` hides them.
#[derive(Debug, Clone)]
pub struct NodeVerifiers {
    /// The login of `env.db`.
    pub node: Verifier,
    /// The login of app user auth.
    pub auth: Verifier,
    /// The login of backups.
    pub dump: Verifier,
}

/// The desired state of a database's roles and of its privileges. `Debug` shows no verifiers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredRoles {
    pub names: Names,
    pub state: Logins,
    pub logins: Vec<DesiredLogin>,
}

/// A desired login role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredLogin {
    pub name: String,
    /// The attributes that are set, such as `LOGIN`.
    pub attributes: BTreeSet<&'static str>,
    pub verifier: Verifier,
    /// RFC 3339 in UTC. `None` means no expiry.
    pub expires_at: Option<String>,
    pub connection_limit: i32,
    /// The roles of which this role is a member. If this role has `INHERIT`, it inherits their privileges.
    pub member_of: BTreeSet<String>,
    /// Names and values.
    pub settings: Vec<(&'static str, String)>,
}

impl Logins {
    /// Returns the roles that may log in to a database with this usage. `previous` is the last known result of
    /// [`max_login_bytes`].
    pub fn of(desired: &Database, usage: Usage, previous: Option<u64>) -> Self {
        match desired.operation.as_ref().map(|operation| operation.phase) {
            Some(OperationPhase::Draining | OperationPhase::Committing) => Self::Closed,
            Some(OperationPhase::Sealing) => Self::NodeOnly,
            None | Some(OperationPhase::Reactivating) => {
                let is_too_large = usage.bytes > max_login_bytes(desired.size_bytes, usage.bytes, previous);
                if desired.suspended || is_too_large || usage.refuses_logins() {
                    Self::NodeOnly
                } else {
                    Self::Open { read_only: usage.is_full(desired.size_bytes) }
                }
            }
        }
    }

    /// Returns the state as a label of metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open { read_only: false } => "open",
            Self::Open { read_only: true } => "read_only",
            Self::NodeOnly => "node_only",
            Self::Closed => "closed",
        }
    }
}

/// Returns the size above which a database refuses its logins: twice its limit. If the limit fell below the size, the
/// database refuses its logins only after it has grown by the limit, because the project needs them to shrink it. Each
/// smaller size reduces the result. `previous` is the last result; it is `None` for a database that this node has not
/// measured, such as a recovered one.
pub fn max_login_bytes(limit: u64, size: u64, previous: Option<u64>) -> u64 {
    let kept = previous.unwrap_or(u64::MAX).min(size.saturating_add(limit));
    kept.max(limit.saturating_mul(2))
}

impl DesiredRoles {
    /// Returns the desired roles of a database.
    pub fn new(names: Names, state: Logins, desired: &Database, own: &NodeVerifiers) -> Self {
        let role = names.database();
        let is_open = matches!(state, Logins::Open { .. });
        let access_mode = match state {
            Logins::Open { read_only: true } => vec![("default_transaction_read_only", "on".to_owned())],
            _ => Vec::new(),
        };
        let login = |name: String, verifier: Verifier, connection_limit: i32| DesiredLogin {
            name,
            attributes: is_open.then_some("LOGIN").into_iter().collect(),
            verifier,
            expires_at: None,
            connection_limit,
            member_of: BTreeSet::from([role.clone()]),
            settings: [settings(&role, desired.size_bytes), access_mode.clone()].concat(),
        };
        let app = desired.verifier.clone();
        let app = app.map(|verifier| login(names.app(), verifier, APP_CONNECTIONS));
        let tokens = desired.tokens.iter().filter(|token| names::is_token(&token.user));
        let tokens = tokens.map(|token| DesiredLogin {
            expires_at: token.expires_at.clone().filter(|time| is_time(time)),
            ..login(token.user.clone(), token.verifier.clone(), TOKEN_CONNECTIONS)
        });
        let node = login(names.node(), own.node.clone(), NODE_CONNECTIONS);
        let mut dump = dump_login(&names, state, own.dump.clone(), desired.size_bytes);
        let auth = auth_login(&names, state, own.auth.clone(), desired.size_bytes);
        let others: Vec<_> = app.into_iter().chain([node, auth]).chain(tokens).collect();
        // A login can own objects itself, which a dump must be able to read.
        dump.member_of.extend(others.iter().map(|login| login.name.clone()));
        let logins = others.into_iter().chain([dump]).collect();
        Self { names, state, logins }
    }

    /// Returns the roles of a database that is not desired: the login of backups, and the owner of `svc_auth`, which
    /// cannot log in.
    pub fn withdrawn(names: Names, state: Logins, own: &NodeVerifiers) -> Self {
        let auth = auth_login(&names, Logins::Closed, own.auth.clone(), 0);
        let mut dump = dump_login(&names, state, own.dump.clone(), 0);
        dump.member_of.insert(auth.name.clone());
        Self { names, state, logins: vec![auth, dump] }
    }

    /// Returns whether a member of the owner is a login that is not desired any more.
    pub fn is_revoked(&self, member: &str) -> bool {
        let is_login = names::is_token(member) || [self.names.app(), self.names.node()].contains(&member.to_owned());
        is_login && !self.has_login(member)
    }

    /// Returns whether this login is desired.
    pub fn has_login(&self, name: &str) -> bool {
        self.logins.iter().any(|login| login.name == name)
    }

    /// Returns the privileges on the database, by role.
    pub fn privileges(&self) -> BTreeSet<(String, String)> {
        let owner = ["CONNECT", "CREATE", "TEMPORARY"].map(|privilege| (self.names.database(), privilege.to_owned()));
        let admitted = || self.logins.iter().filter(|login| login.attributes.contains("LOGIN"));
        let connect = admitted().map(|login| (login.name.clone(), "CONNECT".to_owned()));
        // It creates the schema `svc_auth`.
        let create = admitted().filter(|login| login.name == self.names.auth());
        let create = create.map(|login| (login.name.clone(), "CREATE".to_owned()));
        owner.into_iter().chain(connect).chain(create).collect()
    }

    /// Returns the names of all roles.
    pub fn role_names(&self) -> Vec<String> {
        [self.names.database()].into_iter().chain(self.logins.iter().map(|login| login.name.clone())).collect()
    }
}

/// Returns the login of backups. It bypasses row security, because a dump must contain all rows of tables with FORCE
/// ROW LEVEL SECURITY. It can connect only to its own database. Neither restores nor tenant code in `env.db` act as
/// this login.
fn dump_login(names: &Names, state: Logins, verifier: Verifier, size_limit: u64) -> DesiredLogin {
    let may_log_in = (state != Logins::Closed).then_some("LOGIN");
    DesiredLogin {
        name: names.dump(),
        attributes: ["INHERIT", "BYPASSRLS"].into_iter().chain(may_log_in).collect(),
        verifier,
        expires_at: None,
        connection_limit: DUMP_CONNECTIONS,
        member_of: BTreeSet::from([names.database()]),
        settings: settings(&names.database(), size_limit),
    }
}

/// Returns the login of app user auth, which owns the schema `svc_auth`. It is not a member of the owner, and the owner
/// is not a member of it, so neither can use the objects of the other. It may write even while the database exceeds its
/// size limit: visitors can then still sign out.
fn auth_login(names: &Names, state: Logins, verifier: Verifier, size_limit: u64) -> DesiredLogin {
    let may_log_in = matches!(state, Logins::Open { .. }).then_some("LOGIN");
    DesiredLogin {
        name: names.auth(),
        attributes: may_log_in.into_iter().collect(),
        verifier,
        expires_at: None,
        connection_limit: AUTH_CONNECTIONS,
        member_of: BTreeSet::new(),
        settings: settings(&names.auth(), size_limit),
    }
}

/// Returns the settings of a login that acts as `role`.
pub fn settings(role: &str, size_limit: u64) -> Vec<(&'static str, String)> {
    vec![
        ("role", role.to_owned()),
        // This is only a default, which a session can change.
        ("statement_timeout", "10min".to_owned()),
        // A tenant could fill the disk with messages, and write forged lines into the server's log.
        ("log_min_messages", "fatal".to_owned()),
        // The node recognizes errors of dumps and restores by their English messages. Only a superuser can change this.
        ("lc_messages", "C".to_owned()),
        ("temp_file_limit", format!("{}kB", size_limit.max(MIN_TEMPORARY_BYTES) / 1024)),
    ]
}

/// Returns whether a text may be a time in RFC 3339. Postgres parses it later.
fn is_time(text: &str) -> bool {
    text.len() < 64 && text.bytes().all(|byte| byte.is_ascii_digit() || b"TZ:.+-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use protocol::{DatabaseOperation, DatabaseOperationKind};

    use super::*;

    fn database(size_bytes: u64) -> Database {
        Database {
            revision: 1,
            id: "dbs_01jd0000000000000000000000".to_owned(),
            verifier: Some(Verifier::new("SCRAM-SHA-256$hush".to_owned())),
            tokens: Vec::new(),
            size_bytes,
            backup_days: 7,
            epoch: 1,
            source: None,
            operation: None,
            exports: Vec::new(),
            suspended: false,
        }
    }

    #[test]
    fn logins_follow_usage_suspension_and_phase() {
        let mut desired = database(100);
        let of_size = |bytes: u64| Usage { bytes, ..Usage::default() };
        for (size, logins) in [
            (100, Logins::Open { read_only: false }),
            (101, Logins::Open { read_only: true }),
            (200, Logins::Open { read_only: true }),
            (202, Logins::NodeOnly),
        ] {
            assert_eq!(Logins::of(&desired, of_size(size), Some(200)), logins, "{size}");
        }
        for (files, age, logins) in [
            (100_000, 1_000_000_000, Logins::Open { read_only: false }),
            (100_001, 0, Logins::Open { read_only: true }),
            (200_000, 0, Logins::Open { read_only: true }),
            (200_001, 0, Logins::NodeOnly),
            (0, 1_000_000_001, Logins::NodeOnly),
        ] {
            let usage = Usage { bytes: 100, files, age };
            assert_eq!(Logins::of(&desired, usage, Some(200)), logins, "{usage:?}");
        }
        desired.suspended = true;
        assert_eq!(Logins::of(&desired, of_size(0), None), Logins::NodeOnly);
        for (phase, logins) in [
            (OperationPhase::Draining, Logins::Closed),
            (OperationPhase::Sealing, Logins::NodeOnly),
            (OperationPhase::Committing, Logins::Closed),
        ] {
            let (id, kind) = ("opn_1".to_owned(), DatabaseOperationKind::Delete);
            desired.operation = Some(DatabaseOperation { id, kind, phase, generation: None });
            assert_eq!(Logins::of(&desired, of_size(0), None), logins, "{phase:?}");
        }
    }

    #[test]
    fn lower_limit_refuses_logins_only_after_growth() {
        let mut max = None;
        for (limit, size, logins_until) in [
            (5_000, 10, 10_000),
            (5_000, 1_000, 10_000),
            // The limit falls.
            (100, 1_000, 1_100),
            (100, 1_050, 1_100),
            (100, 1_101, 1_100),
            // The database shrinks, and cannot grow to its previous size again.
            (100, 800, 900),
            (100, 1_000, 900),
            (100, 50, 200),
            (100, 1_000, 200),
            // The limit rises.
            (600, 1_000, 1_200),
            // The limit falls while the database exceeds it.
            (100, 1_150, 1_200),
        ] {
            max = Some(max_login_bytes(limit, size, max));
            assert_eq!(max, Some(logins_until), "{limit} {size}");
        }
        assert_eq!(max_login_bytes(100, 1_000, None), 1_100);
        assert_eq!(max_login_bytes(u64::MAX, u64::MAX, None), u64::MAX);
    }

    #[test]
    fn debug_shows_no_verifier() {
        let desired = database(100);
        let names = Names::new(&desired.id).unwrap();
        let verifier = Verifier::new("SCRAM-SHA-256$hush".to_owned());
        let own = NodeVerifiers { node: verifier.clone(), auth: verifier.clone(), dump: verifier };
        let roles = DesiredRoles::new(names, Logins::NodeOnly, &desired, &own);
        assert!(!format!("{roles:?} {desired:?} {own:?}").contains("hush"));
        let admitted = roles.privileges().into_iter().filter(|(_, privilege)| privilege == "CONNECT");
        let admitted: Vec<_> = admitted.map(|(role, _)| role.split_once('_').unwrap().0.to_owned()).collect();
        assert_eq!(admitted, ["db", "dump"]);
    }
}
