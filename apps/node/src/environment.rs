//! The environments of the projects: the parts of the desired state that worker code sees in `env`.
//!
//! The reconciler changes the environments, and the bindings read the current ones. A running process keeps the secrets
//! and the bindings that it started with. When these change, [`Fleet`](crate::worker::fleet::Fleet) replaces the
//! process.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use protocol::{
    Ai, Auth, Change, Database, DatabaseOperationKind, DesiredPart, Email, OperationPhase, Secrets, Storage,
};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

/// After a change, the node waits this long for the next one, so that many changes start only one process.
const QUIET_PERIOD: Duration = Duration::from_millis(100);
/// The limit of that wait, counted from the first change.
const MAX_WAIT: Duration = Duration::from_millis(400);

/// The names of the parts of an environment.
const PARTS: [&str; 6] = [Secrets::NAME, Storage::NAME, Database::NAME, Ai::NAME, Email::NAME, Auth::NAME];

/// The environment of a project. It never contains a part that the control plane did not send.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The parts that are desired, by name.
    parts: BTreeMap<String, Part>,
    /// The parts whose first state was unavailable. No code starts without them.
    unknown: BTreeSet<String>,
}

/// A part of an environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Part {
    /// The values of `env.<NAME>`.
    Secrets(Secrets),
    /// The grant of `env.storage`.
    Storage(Storage),
    /// The project's database. `env.db` is absent once it is being deleted.
    Database(Box<Database>),
    /// The grant of `env.ai`.
    Ai(Ai),
    /// The mail address, with `env.email` and `email()`.
    Email(Email),
    /// The sign-in of the project's users, with `env.auth`.
    Auth(#[serde(with = "shared")] Arc<Auth>),
}

/// Reads and writes a shared value like the value itself.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize, S: Serializer>(value: &Arc<T>, serializer: S) -> Result<S::Ok, S::Error> {
        value.as_ref().serialize(serializer)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}

/// The changes of one project's environment in an update.
#[derive(Default)]
pub struct EnvironmentChanges {
    parts: Vec<PartChange>,
    /// The parts that keep their last state.
    unavailable: BTreeSet<String>,
}

/// A change of one part.
pub struct PartChange {
    name: &'static str,
    /// `None` if it is no longer desired.
    part: Option<Part>,
}

impl PartChange {
    /// Reads a part of an environment. Returns `None` for other parts.
    ///
    /// # Errors
    /// Returns an error if the part is malformed.
    pub fn read(change: &Change) -> serde_json::Result<Option<Self>> {
        // The original error may contain a value.
        let secrets = Self::read_as(change, Part::Secrets);
        let secrets = secrets.map_err(|_| serde_json::Error::custom("the part secrets is malformed"))?;
        let auth = Self::read_as(change, |auth| Part::Auth(Arc::new(auth)));
        let auth = auth.map_err(|_| serde_json::Error::custom("the part auth is malformed"))?;
        Ok(secrets
            .or(auth)
            .or(Self::read_as(change, Part::Storage)?)
            .or(Self::read_as(change, |database| Part::Database(Box::new(database)))?)
            .or(Self::read_as(change, Part::Ai)?)
            .or(Self::read_as(change, Part::Email)?))
    }

    fn read_as<P: DesiredPart>(change: &Change, part: fn(P) -> Part) -> serde_json::Result<Option<Self>> {
        Ok(change.read()?.map(|desired: Option<P>| Self { name: P::NAME, part: desired.map(part) }))
    }
}

impl EnvironmentChanges {
    /// Adds a changed part.
    pub fn push(&mut self, change: PartChange) {
        self.parts.push(change);
    }

    /// Keeps the last state of a part. Ignores parts of other kinds.
    pub fn keep(&mut self, part: &str) {
        self.unavailable.extend(PARTS.contains(&part).then(|| part.to_owned()));
    }
}

impl Environment {
    /// Returns the environment after an update. A `full` update lists all parts.
    fn updated(previous: Option<&Self>, full: bool, changes: EnvironmentChanges) -> Self {
        let EnvironmentChanges { parts, unavailable } = changes;
        let mut updated = match previous {
            Some(previous) if full => previous.reduced_to(&unavailable),
            Some(previous) => previous.clone(),
            None => Self { unknown: unavailable, ..Self::default() },
        };
        parts.into_iter().for_each(|change| updated.apply(change));
        updated
    }

    fn reduced_to(&self, names: &BTreeSet<String>) -> Self {
        let parts = self.parts.iter().filter(|(name, _)| names.contains(*name));
        let parts = parts.map(|(name, part)| (name.clone(), part.clone())).collect();
        Self { parts, unknown: &self.unknown & names }
    }

    fn apply(&mut self, PartChange { name, part }: PartChange) {
        match part {
            Some(part) => self.parts.insert(name.to_owned(), part),
            None => self.parts.remove(name),
        };
        self.unknown.remove(name);
    }

    /// Returns the values of the secrets by name.
    pub fn secrets(&self) -> impl Iterator<Item = (&str, &str)> {
        let values = self.secret_set().into_iter().flat_map(|set| &set.values);
        values.map(|(name, value)| (name.as_str(), value.reveal()))
    }

    fn secret_set(&self) -> Option<&Secrets> {
        if let Some(Part::Secrets(set)) = self.parts.get(Secrets::NAME) { Some(set) } else { None }
    }

    /// Returns the grant of `env.storage`.
    pub fn storage(&self) -> Option<&Storage> {
        if let Some(Part::Storage(storage)) = self.parts.get(Storage::NAME) { Some(storage) } else { None }
    }

    /// Returns the project's database. Its logins and limits are not visible to code.
    pub fn database(&self) -> Option<&Database> {
        if let Some(Part::Database(database)) = self.parts.get(Database::NAME) { Some(database) } else { None }
    }

    /// Returns whether `env.ai` is granted.
    pub fn has_ai(&self) -> bool {
        self.parts.contains_key(Ai::NAME)
    }

    /// Returns the settings and providers of app user auth, if it is enabled.
    pub fn auth(&self) -> Option<&Arc<Auth>> {
        if let Some(Part::Auth(auth)) = self.parts.get(Auth::NAME) { Some(auth) } else { None }
    }

    /// Returns whether the project has a mail address.
    pub fn has_email(&self) -> bool {
        self.parts.contains_key(Email::NAME)
    }

    /// Returns whether the project has `env.db`, which is the case until the deletion of its database can no longer be
    /// aborted.
    pub fn has_database(&self) -> bool {
        self.database().is_some_and(|database| {
            let operation = database.operation.as_ref().map(|operation| (operation.kind, operation.phase));
            operation != Some((DatabaseOperationKind::Delete, OperationPhase::Committing))
        })
    }

    /// Returns whether `env` is the same in both environments. Other differences, such as a quota, do not require
    /// another process.
    fn is_same_for_code(&self, other: &Self) -> bool {
        self.secrets().eq(other.secrets()) && self.grants().eq(other.grants())
    }

    /// Returns the names of the granted resources.
    fn grants(&self) -> impl Iterator<Item = &String> {
        let is_granted = |name: &&String| match name.as_str() {
            Secrets::NAME => false,
            Database::NAME => self.has_database(),
            _ => true,
        };
        self.parts.keys().filter(is_granted)
    }
}

/// The current environment of a project.
#[derive(Clone)]
pub struct CurrentEnvironment {
    pub parts: Arc<Environment>,
    /// Increases when `env` changes. This process counts the changes; the control plane has no such number.
    pub generation: u64,
    /// The time from which a running process may be replaced because of the last change.
    pub settled_at: Instant,
    /// The latest `settled_at`, even if more changes arrive.
    deadline: Instant,
}

/// The current environments of all projects.
#[derive(Default)]
pub struct Environments {
    state: RwLock<State>,
    /// Whether a project has a mail address.
    have_email: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    projects: HashMap<String, CurrentEnvironment>,
    last_generation: u64,
    /// Projects whose parts differ from the saved ones.
    unsaved: HashSet<String>,
    /// The projects whose part `auth` is that of the last update of the control plane which lists it.
    confirmed_auth: HashSet<String>,
}

impl Environments {
    /// Creates the environments as of the last save, which may lack some projects.
    pub fn restore(saved: impl IntoIterator<Item = (String, Environment)>) -> Self {
        let (now, mut state) = (Instant::now(), State::default());
        for (project, parts) in saved {
            state.set(project, parts, now);
        }
        state.unsaved.clear();
        let have_email = watch::Sender::new(state.have_email());
        Self { state: RwLock::new(state), have_email }
    }

    /// Returns a receiver of whether a project has a mail address.
    pub fn have_email(&self) -> watch::Receiver<bool> {
        self.have_email.subscribe()
    }

    /// Returns the current environment of a project; `None` until the control plane has sent all its parts.
    pub fn get(&self, project: &str) -> Option<CurrentEnvironment> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.projects.get(project).filter(|current| current.parts.unknown.is_empty()).cloned()
    }

    /// Returns the databases of all projects.
    pub fn databases(&self) -> Vec<(String, Database)> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let database = |current: &CurrentEnvironment| current.parts.database().cloned();
        state.projects.iter().filter_map(|(project, current)| Some((project.clone(), database(current)?))).collect()
    }

    /// Returns the settings of app user auth of a project, if it is enabled.
    pub fn auth(&self, project: &str) -> Option<Arc<Auth>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.projects.get(project)?.parts.auth().cloned()
    }

    /// Returns the settings of app user auth of a project. Returns `None` as well while they may be old: until the
    /// control plane has sent them to this process, and while it cannot.
    pub fn confirmed_auth(&self, project: &str) -> Option<Arc<Auth>> {
        let is_confirmed = self.state.read().unwrap_or_else(PoisonError::into_inner).confirmed_auth.contains(project);
        is_confirmed.then(|| self.auth(project)).flatten()
    }

    /// Returns the projects for which app user auth is enabled.
    pub fn projects_with_auth(&self) -> HashSet<String> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let projects = state.projects.iter().filter(|(_, current)| current.parts.auth().is_some());
        projects.map(|(project, _)| project.clone()).collect()
    }

    /// Applies the changed parts of the listed projects. A `full` update lists all parts of all projects.
    pub fn apply(&self, full: bool, changes: BTreeMap<String, EnvironmentChanges>) {
        let now = Instant::now();
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if full {
            let State { projects, unsaved, confirmed_auth, .. } = &mut *state;
            confirmed_auth.retain(|project| changes.contains_key(project));
            unsaved
                .extend(projects.extract_if(|project, _| !changes.contains_key(project)).map(|(project, _)| project));
        }
        for (project, changes) in changes {
            state.confirm_auth(full, &project, &changes);
            let previous = state.projects.get(&project).map(|current| &*current.parts);
            let updated = Environment::updated(previous, full, changes);
            state.set(project, updated, now);
        }
        let have_email = state.have_email();
        self.have_email.send_if_modified(|before| mem::replace(before, have_email) != have_email);
    }

    /// Returns the environments that changed since the last call, by project; `None` for a removed project.
    pub fn take_unsaved(&self) -> Vec<(String, Option<Arc<Environment>>)> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let unsaved = mem::take(&mut state.unsaved).into_iter();
        let parts = |project: &String| state.projects.get(project).map(|current| Arc::clone(&current.parts));
        unsaved.map(|project| (parts(&project), project)).map(|(parts, project)| (project, parts)).collect()
    }

    /// Adds these projects to the next result of [`Self::take_unsaved`].
    pub fn set_unsaved(&self, projects: Vec<String>) {
        self.state.write().unwrap_or_else(PoisonError::into_inner).unsaved.extend(projects);
    }
}

impl State {
    fn have_email(&self) -> bool {
        self.projects.values().any(|current| current.parts.has_email())
    }

    fn confirm_auth(&mut self, full: bool, project: &str, changes: &EnvironmentChanges) {
        if changes.unavailable.contains(Auth::NAME) {
            self.confirmed_auth.remove(project);
        } else if full || changes.parts.iter().any(|change| change.name == Auth::NAME) {
            self.confirmed_auth.insert(project.to_owned());
        }
    }

    fn set(&mut self, project: String, parts: Environment, now: Instant) {
        let current = match self.projects.get(&project) {
            Some(current) if *current.parts == parts => return,
            Some(current) if current.parts.is_same_for_code(&parts) => {
                CurrentEnvironment { parts: Arc::new(parts), ..current.clone() }
            }
            previous => {
                self.last_generation += 1;
                let (settled_at, deadline) = previous.map_or((now, now), |previous| previous.postpone(now));
                CurrentEnvironment { parts: Arc::new(parts), generation: self.last_generation, settled_at, deadline }
            }
        };
        self.unsaved.insert(project.clone());
        self.projects.insert(project, current);
    }
}

impl CurrentEnvironment {
    /// Returns the next `settled_at` and `deadline` if a change arrives now.
    fn postpone(&self, now: Instant) -> (Instant, Instant) {
        let deadline = if now < self.settled_at { self.deadline } else { now + MAX_WAIT };
        ((now + QUIET_PERIOD).min(deadline), deadline)
    }
}

#[cfg(test)]
mod tests {
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
        let mut current =
            CurrentEnvironment { parts: Arc::default(), generation: 1, settled_at: start, deadline: start };
        for (now, settled) in [(0, 100), (50, 150), (140, 240), (230, 330), (320, 400), (390, 400), (400, 500)] {
            (current.settled_at, current.deadline) = current.postpone(at(now));
            assert_eq!(current.settled_at, at(settled), "{now}");
        }
    }
}
