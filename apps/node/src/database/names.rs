//! The names of roles and databases.
//!
//! Every tenant can read the names in the shared catalogs, so a name contains only a random id. The node owns all names
//! of these forms.

/// A regular expression of the roles that the node owns.
pub const ROLES: &str = "^(db|app|node|dump|load|auth|tok)_[0-9a-z]{26}$";

/// The names of a database and of the roles that belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The random part of the database's id.
    suffix: String,
}

impl Names {
    /// Returns the names for an id `dbs_…`; `None` if the id is malformed.
    pub fn new(id: &str) -> Option<Self> {
        let suffix = id.strip_prefix("dbs_").filter(|suffix| is_suffix(suffix))?;
        Some(Self { suffix: suffix.to_owned() })
    }

    /// Returns the name of the database, which is also the name of the role that owns it and everything in it.
    pub fn database(&self) -> String {
        format!("db_{}", self.suffix)
    }

    /// Returns the name of the login of `DatabaseConnect`.
    pub fn app(&self) -> String {
        format!("app_{}", self.suffix)
    }

    /// Returns the name of the login of `env.db`.
    pub fn node(&self) -> String {
        format!("node_{}", self.suffix)
    }

    /// Returns the name of the login of backups.
    pub fn dump(&self) -> String {
        format!("dump_{}", self.suffix)
    }

    /// Returns the name of the login of restores.
    pub fn load(&self) -> String {
        format!("load_{}", self.suffix)
    }

    /// Returns the name of the login of app user auth, which owns the schema `svc_auth`.
    pub fn auth(&self) -> String {
        format!("auth_{}", self.suffix)
    }
}

/// Returns whether a name is that of a token's role.
pub fn is_token(name: &str) -> bool {
    name.strip_prefix("tok_").is_some_and(is_suffix)
}

/// Returns whether a name is that of a login of app user auth, in any database.
pub fn is_auth(name: &str) -> bool {
    name.strip_prefix("auth_").is_some_and(is_suffix)
}

/// Returns the id of the database with this name.
pub fn id(database: &str) -> String {
    format!("dbs_{}", database.trim_start_matches("db_"))
}

/// Returns the name of the login of app user auth in the database with this name.
pub fn auth(database: &str) -> String {
    format!("auth_{}", database.trim_start_matches("db_"))
}

/// Returns the name of the database that an operation prepares; `None` if the operation's id is malformed.
pub fn prepared(operation: &str) -> Option<String> {
    let suffix = operation.split_once('_').map(|(_, suffix)| suffix).filter(|suffix| is_suffix(suffix))?;
    Some(format!("new_{suffix}"))
}

/// Returns whether a name is that of a prepared database.
pub fn is_prepared(name: &str) -> bool {
    name.strip_prefix("new_").is_some_and(is_suffix)
}

fn is_suffix(text: &str) -> bool {
    text.len() == 26 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_become_names() {
        let id = "01jd0000000000000000000000";
        let names = Names::new(&format!("dbs_{id}")).unwrap();
        assert_eq!(names.database(), format!("db_{id}"));
        assert_eq!((super::id(&names.database()), auth(&names.database())), (format!("dbs_{id}"), names.auth()));
        assert!(is_token(&format!("tok_{id}")) && prepared(&format!("opn_{id}")).is_some());
        for malformed in ["", "dbs_", "dbs_1", "tok_01jd0000000000000000000000", "dbs_01jd000000000000000000000\""] {
            assert_eq!(Names::new(malformed), None);
        }
        assert!(is_auth(&names.auth()) && !is_auth(&names.app()) && !is_auth("auth_x"));
        assert!(!is_token("tok_x") && !is_token("app_01jd0000000000000000000000"));
    }
}
