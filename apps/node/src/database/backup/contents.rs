//! The table of contents of an archive, and the order of a restore.
//!
//! `pg_restore --list` prints one line per entry: its number, two ids, its type, its schema or `-`, its name and its
//! owner. It replaces line breaks in names. The type precedes all names, so a name cannot imitate another type.

use crate::database::names;

/// The entries of an archive by the way they are restored, as lists for `pg_restore --use-list`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The entries of app user auth: the schema `svc_auth`. Tenant code must not be able to change them.
    pub auth: String,
    /// All other entries. A failure of one fails the restore.
    pub objects: String,
    /// Privileges and row security policies. They name roles that may no longer exist, such as revoked tokens.
    pub grants: String,
    /// The privileges on the schema `public`, and its comment. They require the ownership of the database.
    pub public: String,
    /// The content of materialized views. Their queries may fail without the settings of the application's sessions.
    pub views: String,
    /// Whether the archive contains the schema `public`. `pg_dump` includes the schema only if it was dropped and
    /// created again, because it then has another owner.
    pub owns_public: bool,
}

impl Contents {
    pub fn parse(list: &str) -> Self {
        let mut contents = Self::default();
        for line in list.lines().filter(|line| !line.starts_with(';')) {
            let Some(entry) = entry(line) else { continue };
            if is_public_schema(entry) {
                contents.owns_public = true;
            }
            let target = if is_auth(entry) {
                &mut contents.auth
            } else if is_about_public(entry) {
                &mut contents.public
            } else if is_grant(entry) {
                &mut contents.grants
            } else if entry.starts_with("MATERIALIZED VIEW DATA ") {
                &mut contents.views
            } else {
                &mut contents.objects
            };
            target.push_str(line);
            target.push('\n');
        }
        contents
    }
}

/// Returns the part of a line after the ids.
fn entry(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("; ")?;
    let mut parts = rest.splitn(3, ' ');
    let is_id = |part: Option<&str>| part.is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    let ids = (is_id(parts.next()), is_id(parts.next()));
    parts.next().filter(|_| ids == (true, true))
}

/// Returns whether an entry belongs to the login of app user auth. The name of the owner, which ends the entry, contains
/// no space, and a tenant cannot create objects that belong to this login.
fn is_auth(entry: &str) -> bool {
    entry.rsplit(' ').next().is_some_and(names::is_auth)
}

/// Returns whether an entry belongs to the grants. A schema name may contain spaces, so the comment of another object
/// can match too. Such a comment is then restored together with the grants.
fn is_grant(entry: &str) -> bool {
    ["ACL ", "DEFAULT ACL ", "POLICY "].iter().any(|kind| entry.starts_with(kind))
        || entry.starts_with("COMMENT ") && entry.contains(" POLICY ")
}

/// Returns whether an entry contains the privileges on the schema `public` or its comment. The name of the owner, which
/// ends the entry, contains no space.
fn is_about_public(entry: &str) -> bool {
    let rest = ["ACL - SCHEMA public ", "COMMENT - SCHEMA public "].iter().find_map(|kind| entry.strip_prefix(kind));
    rest.is_some_and(|owner| !owner.contains(' '))
}

/// Returns whether an entry creates the schema `public`. The name of the owner, which ends the entry, contains no
/// space.
fn is_public_schema(entry: &str) -> bool {
    entry.strip_prefix("SCHEMA - public ").is_some_and(|owner| !owner.contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_divided_by_type() {
        let list = "\
;
; Archive created at 2026-11-23 08:00:00 UTC
;     dbname: ACL public
;
6; 2615 16400 SCHEMA - public db_x
3310; 0 0 ACL - SCHEMA public db_x
200; 1259 16386 TABLE public POLICY db_x
3311; 0 0 TABLE DATA public ACL TABLE t db_x
3312; 0 0 COMMENT a b POLICY p ON t db_x
3313; 0 0 COMMENT public TABLE \"POLICY x\" db_x
3314; 3256 16401 POLICY public t p db_x
3315; 826 16402 DEFAULT ACL public DEFAULT PRIVILEGES FOR TABLES db_x
3316; 0 0 MATERIALIZED VIEW DATA public m db_x
3317; 0 0 COMMENT - SCHEMA public db_x
3318; 0 0 ACL - SCHEMA public x db_x
201; 1259 16387 MATERIALIZED VIEW public m db_x
8; 2615 16403 SCHEMA - svc_auth auth_01jd0000000000000000000000
3400; 0 0 COMMENT - SCHEMA svc_auth auth_01jd0000000000000000000000
202; 1259 16404 TABLE svc_auth users auth_01jd0000000000000000000000
9; 2615 16405 SCHEMA - svc_auth auth_01jd0000000000000000000000 db_x
";
        let contents = Contents::parse(list);
        let numbers = |list: &str| {
            list.lines().map(|line| line.split(';').next().unwrap().parse().unwrap()).collect::<Vec<u32>>()
        };
        assert_eq!(numbers(&contents.grants), [3312, 3314, 3315, 3318]);
        assert_eq!(numbers(&contents.public), [3310, 3317]);
        assert_eq!(numbers(&contents.views), [3316]);
        assert_eq!(numbers(&contents.objects), [6, 200, 3311, 3313, 201, 9]);
        assert_eq!(numbers(&contents.auth), [8, 3400, 202]);
        assert!(contents.owns_public);
        assert!(!Contents::parse("7; 2615 16400 SCHEMA - public x db_x\n").owns_public);
    }
}
