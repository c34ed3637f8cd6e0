//! The order of the attempts: projects take turns.

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;
use uuid::Uuid;

/// The mails that wait for their next attempt, by project.
pub struct Schedule<T> {
    projects: HashMap<String, Project<T>>,
    /// The number of attempts so far.
    started: u64,
}

struct Project<T> {
    waiting: BTreeMap<(Instant, Uuid), T>,
    in_progress: usize,
    /// The number of the project's last attempt among all attempts.
    last_attempt: u64,
}

impl<T> Schedule<T> {
    pub fn new() -> Self {
        Self { projects: HashMap::new(), started: 0 }
    }

    /// Adds a mail whose next attempt is due at this time.
    pub fn add(&mut self, project: &str, due: Instant, id: Uuid, mail: T) {
        let empty = || Project { waiting: BTreeMap::new(), in_progress: 0, last_attempt: 0 };
        let project = self.projects.entry(project.to_owned()).or_insert_with(empty);
        project.waiting.insert((due, id), mail);
    }

    /// Returns the time of the next attempt.
    pub fn next_due(&self) -> Option<Instant> {
        self.projects.values().filter_map(Project::next_due).min()
    }

    /// Takes a due mail, whose attempt begins: of the project with the fewest attempts in progress, and among equal ones
    /// of the project whose last attempt began first. Also returns the project.
    pub fn take_due(&mut self, now: Instant) -> Option<(String, T)> {
        let due = self.projects.iter_mut().filter(|(_, project)| project.next_due().is_some_and(|due| due <= now));
        let (name, project) = due.min_by_key(|(_, project)| (project.in_progress, project.last_attempt))?;
        let (_, mail) = project.waiting.pop_first()?;
        self.started += 1;
        project.in_progress += 1;
        project.last_attempt = self.started;
        Some((name.clone(), mail))
    }

    /// Ends an attempt.
    pub fn end(&mut self, name: &str) {
        let Some(project) = self.projects.get_mut(name) else { return };
        project.in_progress = project.in_progress.saturating_sub(1);
        if project.in_progress == 0 && project.waiting.is_empty() {
            self.projects.remove(name);
        }
    }
}

impl<T> Project<T> {
    fn next_due(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((due, _), _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn projects_take_turns() {
        let (mut schedule, now) = (Schedule::new(), Instant::now());
        for number in 0..10 {
            schedule.add("busy", now, Uuid::from_u128(number), "busy");
        }
        let take = |schedule: &mut Schedule<&'static str>| schedule.take_due(now).map(|(_, mail)| mail);
        assert_eq!([(); 3].map(|()| take(&mut schedule)), [Some("busy"); 3]);
        for (number, name) in (10..).zip(["one", "one", "other", "other"]) {
            schedule.add(name, now, Uuid::from_u128(number), name);
        }
        let taken = [(); 5].map(|()| take(&mut schedule).unwrap());
        assert!(!taken[..4].contains(&"busy"), "{taken:?}");
        assert_ne!(taken[0], taken[1]);
        assert_eq!(taken[4], "busy");
        // With equal numbers of attempts in progress, the project comes first that has waited longest.
        for name in ["busy", "busy", "busy", "busy", "one", "one"] {
            schedule.end(name);
        }
        schedule.add("one", now, Uuid::from_u128(20), "one");
        assert_eq!([(); 2].map(|()| take(&mut schedule)), [Some("one"), Some("busy")]);
    }

    #[test]
    fn mail_waits_until_it_is_due() {
        let (mut schedule, now) = (Schedule::new(), Instant::now());
        let later = now + Duration::from_secs(1);
        schedule.add("one", later, Uuid::nil(), 1);
        assert_eq!((schedule.next_due(), schedule.take_due(now)), (Some(later), None));
        assert_eq!(schedule.take_due(later), Some(("one".to_owned(), 1)));
        assert_eq!(schedule.next_due(), None);
        schedule.end("one");
        assert!(schedule.projects.is_empty());
    }
}
