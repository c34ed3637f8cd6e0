use protocol::{AuthBrand, DatabaseOperation, SecretValue};

use super::*;

fn secrets(revision: i64, value: &str) -> PartChange {
    let values = BTreeMap::from([("A".to_owned(), SecretValue::new(value.to_owned()))]);
    PartChange { name: Secrets::NAME, part: Some(Part::Secrets(Secrets { revision, values })) }
}

fn storage(quota_bytes: u64) -> PartChange {
    let storage = Storage { prefix: "sto_1".to_owned(), quota_bytes };
    PartChange { name: Storage::NAME, part: Some(Part::Storage(storage)) }
}

fn database(revision: i64, operation: Option<(DatabaseOperationKind, OperationPhase)>) -> PartChange {
    let operation =
        operation.map(|(kind, phase)| DatabaseOperation { id: "opn_1".to_owned(), kind, phase, generation: None });
    let database = Database {
        revision,
        id: "dbs_1".to_owned(),
        verifier: None,
        tokens: Vec::new(),
        size_bytes: 1,
        backup_days: 1,
        epoch: 1,
        source: None,
        operation,
        exports: Vec::new(),
        suspended: false,
    };
    PartChange { name: Database::NAME, part: Some(Part::Database(Box::new(database))) }
}

fn update(environments: &Environments, full: bool, parts: Vec<PartChange>, unavailable: &[&str]) {
    let mut changes = EnvironmentChanges { parts, ..EnvironmentChanges::default() };
    unavailable.iter().for_each(|part| changes.keep(part));
    environments.apply(full, BTreeMap::from([("a".to_owned(), changes)]));
}

fn apply(environments: &Environments, full: bool, parts: Vec<PartChange>) -> CurrentEnvironment {
    update(environments, full, parts, &[]);
    environments.get("a").unwrap()
}

#[test]
fn only_a_visible_change_requires_another_process() {
    let environments = Environments::default();
    assert!(environments.get("a").is_none());
    let first = apply(&environments, true, vec![secrets(1, "x"), storage(1)]);
    let same = apply(&environments, false, vec![secrets(2, "x"), storage(2)]);
    assert_eq!(same.generation, first.generation);
    assert_eq!(same.parts.storage().unwrap().quota_bytes, 2);
    let other = apply(&environments, false, vec![secrets(3, "y")]);
    assert!(other.generation > same.generation && other.parts.storage().is_some());
    let revoked = apply(&environments, false, vec![PartChange { name: Storage::NAME, part: None }]);
    assert!(revoked.generation > other.generation);
    let full = apply(&environments, true, Vec::new());
    assert!(full.generation > revoked.generation && *full.parts == Environment::default());
}

#[test]
fn database_is_visible_until_its_deletion_is_committed() {
    use DatabaseOperationKind::{Delete, RestoreGeneration};
    let environments = Environments::default();
    let first = apply(&environments, true, vec![database(1, None)]);
    assert!(first.parts.has_database());
    for operation in [
        None,
        Some((RestoreGeneration, OperationPhase::Committing)),
        Some((Delete, OperationPhase::Draining)),
        Some((Delete, OperationPhase::Sealing)),
    ] {
        let same = apply(&environments, false, vec![database(2, operation)]);
        assert!(same.parts.has_database() && same.generation == first.generation, "{operation:?}");
    }
    let deleted = apply(&environments, false, vec![database(3, Some((Delete, OperationPhase::Committing)))]);
    assert!(!deleted.parts.has_database() && deleted.generation > first.generation);
    let withdrawn = apply(&environments, false, vec![PartChange { name: Database::NAME, part: None }]);
    assert_eq!(withdrawn.generation, deleted.generation);
}

#[test]
fn receiver_knows_whether_a_project_has_a_mail_address() {
    let email = |domain: Option<&str>| {
        let part = domain.map(|domain| Part::Email(Email { domain: domain.to_owned() }));
        PartChange { name: Email::NAME, part }
    };
    let environments = Environments::default();
    let mut receiver = environments.have_email();
    let granted = apply(&environments, true, vec![email(Some("a.example"))]);
    assert!(granted.parts.has_email() && *receiver.borrow_and_update());
    let other = apply(&environments, false, vec![email(Some("b.example")), storage(1)]);
    assert!(other.parts.has_email() && !receiver.has_changed().unwrap());
    apply(&environments, false, vec![email(None)]);
    assert!(!*receiver.borrow_and_update());
    let saved = Environments::restore([("a".to_owned(), (*granted.parts).clone())]);
    assert!(*saved.have_email().borrow());
}

fn auth(session_days: u16) -> PartChange {
    let (brand, providers) = (AuthBrand::default(), Vec::new());
    let auth = Auth { grant: 1, session_days, brand, provider_revision: 0, providers };
    PartChange { name: Auth::NAME, part: Some(Part::Auth(Arc::new(auth))) }
}

#[test]
fn saved_and_kept_settings_of_app_user_auth_are_not_confirmed() {
    let environments = Environments::default();
    let saved = apply(&environments, true, vec![auth(30)]);
    let environments = Environments::restore([("a".to_owned(), (*saved.parts).clone())]);
    let is_confirmed = || environments.confirmed_auth("a").is_some();
    assert!(!is_confirmed() && environments.auth("a").is_some());
    update(&environments, true, vec![storage(1)], &["auth"]);
    assert!(!is_confirmed() && environments.auth("a").is_some());
    apply(&environments, false, vec![storage(2)]);
    assert!(!is_confirmed(), "the update lists another part");
    apply(&environments, false, vec![auth(7)]);
    assert!(is_confirmed());
    apply(&environments, false, vec![storage(3)]);
    assert!(is_confirmed());
    update(&environments, false, Vec::new(), &["auth"]);
    assert!(!is_confirmed());
    apply(&environments, true, vec![auth(7)]);
    assert!(is_confirmed());
    environments.apply(true, BTreeMap::new());
    assert!(environments.state.read().unwrap().confirmed_auth.is_empty());
}

#[test]
fn settings_of_app_user_auth_require_no_other_process() {
    let environments = Environments::default();
    let before = apply(&environments, true, vec![storage(1)]);
    assert!(environments.auth("a").is_none() && environments.projects_with_auth().is_empty());
    let granted = apply(&environments, false, vec![auth(30)]);
    assert!(granted.generation > before.generation);
    let changed = apply(&environments, false, vec![auth(7)]);
    assert_eq!(changed.generation, granted.generation);
    assert_eq!(environments.auth("a").unwrap().session_days, 7);
    assert_eq!(environments.projects_with_auth(), HashSet::from(["a".to_owned()]));
    let revoked = apply(&environments, false, vec![PartChange { name: Auth::NAME, part: None }]);
    assert!(revoked.generation > changed.generation && environments.auth("a").is_none());
}

#[test]
fn unavailable_parts_keep_their_last_state() {
    let environments = Environments::default();
    let first = apply(&environments, true, vec![secrets(1, "x"), storage(1)]);
    for full in [true, false] {
        update(&environments, full, vec![storage(2)], &["secrets", "site"]);
        let kept = environments.get("a").unwrap();
        assert_eq!((kept.parts.secret_set(), kept.generation), (first.parts.secret_set(), first.generation));
        assert_eq!(kept.parts.storage().unwrap().quota_bytes, 2);
    }
    let revoked = apply(&environments, true, vec![storage(2)]);
    assert!(revoked.parts.secret_set().is_none());
    update(&environments, true, Vec::new(), &["secrets"]);
    assert!(environments.get("a").unwrap().parts.storage().is_none());
}

#[test]
fn environment_is_unknown_until_all_parts_were_available() {
    let environments = Environments::default();
    for full in [true, false] {
        update(&environments, full, vec![storage(1)], &["secrets"]);
        assert!(environments.get("a").is_none());
    }
    let complete = apply(&environments, false, vec![secrets(1, "x")]);
    assert!(complete.parts.secret_set().is_some() && complete.parts.storage().is_some());
}

#[test]
fn failed_save_is_repeated() {
    let environments = Environments::default();
    apply(&environments, true, vec![storage(1)]);
    environments.take_unsaved();
    apply(&environments, false, vec![storage(2)]);
    environments.set_unsaved(vec!["a".to_owned(), "removed".to_owned()]);
    let mut unsaved = environments.take_unsaved();
    unsaved.sort_by(|one, other| one.0.cmp(&other.0));
    let quotas = unsaved.iter().map(|(_, parts)| Some(parts.as_ref()?.storage()?.quota_bytes));
    assert_eq!(quotas.collect::<Vec<_>>(), [Some(2), None]);
}

#[test]
fn full_state_removes_projects_that_are_not_listed() {
    let saved = ["a", "b"].map(|project| (project.to_owned(), Environment::default()));
    let environments = Environments::restore(saved);
    assert!(environments.take_unsaved().is_empty());
    apply(&environments, true, vec![storage(1)]);
    assert!(environments.get("b").is_none());
    let mut unsaved = environments.take_unsaved();
    unsaved.sort_by(|one, other| one.0.cmp(&other.0));
    let unsaved: Vec<_> = unsaved.iter().map(|(project, parts)| (project.as_str(), parts.is_some())).collect();
    assert_eq!(unsaved, [("a", true), ("b", false)]);
    assert!(environments.take_unsaved().is_empty());
}

#[test]
fn changes_are_postponed_up_to_a_limit() {
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    let mut current = CurrentEnvironment { parts: Arc::default(), generation: 1, settled_at: start, deadline: start };
    for (now, settled) in [(0, 100), (50, 150), (140, 240), (230, 330), (320, 400), (390, 400), (400, 500)] {
        (current.settled_at, current.deadline) = current.postpone(at(now));
        assert_eq!(current.settled_at, at(settled), "{now}");
    }
}
