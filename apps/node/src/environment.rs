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

    /// Cancels [`Self::keep`].
    pub fn release(&mut self, part: &str) {
        self.unavailable.remove(part);
    }

    /// Returns whether a part keeps its last state.
    #[cfg(test)]
    pub fn keeps(&self, part: &str) -> bool {
        self.unavailable.contains(part)
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
mod tests;
