use protocol::{Database, Verifier};

use super::super::logins::NodeVerifiers;
use super::super::names::Names;
use super::*;

const SUFFIX: &str = "01jd0000000000000000000000";

fn desired(state: Logins) -> DesiredRoles {
    let verifier = Verifier::new("SCRAM-SHA-256$hush".to_owned());
    let own = NodeVerifiers { node: verifier.clone(), auth: verifier.clone(), dump: verifier.clone() };
    let id = format!("dbs_{SUFFIX}");
    let names = Names::new(&id).unwrap();
    let database = Database {
        revision: 1,
        id,
        verifier: Some(verifier),
        tokens: Vec::new(),
        size_bytes: 1,
        backup_days: 7,
        epoch: 1,
        source: None,
        operation: None,
        exports: Vec::new(),
        suspended: false,
    };
    DesiredRoles::new(names, state, &database, &own)
}

/// Returns a snapshot in which the roles and the database are as desired.
fn observed(desired: &DesiredRoles) -> Snapshot {
    let owner = desired.names.database();
    let mut seen = Snapshot::default();
    let attributes = BTreeSet::from(["INHERIT".to_owned()]);
    seen.add(owner.clone(), ObservedRole { attributes, ..ObservedRole::default() });
    for login in &desired.logins {
        let inherits = login.attributes.contains("INHERIT");
        let role = ObservedRole {
            attributes: login.attributes.iter().map(|it| (*it).to_owned()).collect(),
            verifier: Some(login.verifier.reveal().to_owned()),
            connection_limit: login.connection_limit,
            settings: login.settings.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            member_of: login.member_of.clone(),
            inherits_from: if inherits { login.member_of.clone() } else { BTreeSet::new() },
            ..ObservedRole::default()
        };
        seen.add(login.name.clone(), role);
    }
    let database = ObservedDatabase {
        owner: owner.clone(),
        allows_connections: true,
        connection_limit: MAX_CONNECTIONS,
        is_template: false,
        privileges: desired.privileges(),
    };
    seen.databases.insert(owner, database);
    seen
}

#[test]
fn equal_states_need_no_statement() {
    for state in [Logins::Open { read_only: false }, Logins::Open { read_only: true }, Logins::Closed] {
        let desired = desired(state);
        let plan = Plan::new(&desired, &observed(&desired));
        assert!(!plan.is_needed(), "{plan:?}");
    }
}

#[test]
fn missing_database_is_created_after_its_roles() {
    let plan = Plan::new(&desired(Logins::NodeOnly), &Snapshot::default());
    assert!(plan.is_missing && plan.statements[0].starts_with(&format!("CREATE ROLE \"db_{SUFFIX}\" NOLOGIN")));
    assert!(plan.statements.iter().all(|statement| !statement.contains("DATABASE")));
}

#[test]
fn revoked_role_is_closed_then_dropped_when_it_has_no_session() {
    let desired = desired(Logins::Open { read_only: false });
    let token = format!("tok_{SUFFIX}");
    let plan = |login: bool, has_session: bool, is_referenced: bool| {
        let mut seen = observed(&desired);
        let attributes = login.then(|| "LOGIN".to_owned()).into_iter().collect();
        let member_of = BTreeSet::from([desired.names.database()]);
        seen.add(
            token.clone(),
            ObservedRole { attributes, member_of, has_session, is_referenced, ..ObservedRole::default() },
        );
        Plan::new(&desired, &seen)
    };
    assert_eq!(plan(true, false, false).refusals, [format!("ALTER ROLE \"{token}\" NOLOGIN")]);
    assert!(!plan(false, true, true).is_needed());
    assert_eq!(plan(false, false, true).unused, std::slice::from_ref(&token));
    assert_eq!(plan(false, false, false).statements, [format!("DROP ROLE \"{token}\"")]);
}

#[test]
fn membership_that_does_not_inherit_is_granted_again() {
    let desired = desired(Logins::Open { read_only: false });
    let (mut seen, owner, dump) = (observed(&desired), desired.names.database(), desired.names.dump());
    seen.roles.get_mut(&dump).unwrap().inherits_from.remove(&owner);
    let expected = [format!("REVOKE \"{owner}\" FROM \"{dump}\""), format!("GRANT \"{owner}\" TO \"{dump}\"")];
    assert_eq!(Plan::new(&desired, &seen).statements, expected);
}

#[test]
fn change_of_the_access_mode_is_noticed() {
    let read_only = desired(Logins::Open { read_only: true });
    let plan = Plan::new(&read_only, &observed(&desired(Logins::Open { read_only: false })));
    assert!(plan.changes_access_mode);
    let verifier = desired(Logins::Open { read_only: false });
    let mut seen = observed(&verifier);
    seen.roles.get_mut(&verifier.names.app()).unwrap().verifier = Some("other".to_owned());
    let plan = Plan::new(&verifier, &seen);
    assert!(!plan.changes_access_mode && plan.statements.len() == 1, "{plan:?}");
}
