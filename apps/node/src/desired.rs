//! The desired state of this node, and the live versions.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use protocol::{
    Certificates, Change, Database, DeletedBackups, DeletedStorage, Desired, DesiredPart as _, Digest, Platform, Site,
    UnavailablePart,
};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use crate::database::DatabaseChanges;
use crate::environment::{EnvironmentChanges, PartChange};
use crate::storage::DeletedPrefixChange;
use crate::tls::references::CertificateChanges;

/// A response of the control plane, which consists of all its pages, with the parts that this node knows.
pub struct DesiredUpdate {
    /// The `since` of the next request.
    pub revision: i64,
    /// Whether this is the full state. Projects that it does not list are then removed.
    pub full: bool,
    /// The number of the last batch of reports that the control plane accepted.
    pub batch: i64,
    pub platform: Platform,
    pub sites: Vec<SiteChange>,
    /// The projects whose last site stays, even if a full response does not list it.
    pub kept_sites: BTreeSet<String>,
    /// The changes of the environments of all listed projects.
    pub environments: BTreeMap<String, EnvironmentChanges>,
    /// The changes of the part `deletedStorage`.
    pub deleted_storage: Vec<DeletedPrefixChange>,
    /// The changes of the parts `database`, which is also a part of the environment, and `deletedBackups`.
    pub databases: DatabaseChanges,
    /// The changes of the part `certificates`, with the certificates that no project owns.
    pub certificates: CertificateChanges,
}

/// A change of the part `site`.
pub struct SiteChange {
    project: String,
    revision: i64,
    site: Option<Site>,
}

/// A project on this node.
#[derive(Clone, Serialize, Deserialize)]
pub struct Placement {
    /// The desired site.
    #[serde(rename = "wanted")]
    pub desired: Site,
    /// The live bundle. It is an older one until the desired bundle is ready. Changes of hostnames and access take
    /// effect immediately, without waiting for the bundle.
    pub live: Option<Digest>,
    /// The live version.
    pub live_version: Option<i32>,
    /// The revision of the desired state. Each revision is reported, even if it repeats an earlier version.
    pub revision: i64,
    /// The last revision that was reported as live.
    #[serde(rename = "told")]
    reported_revision: i64,
}

/// Every project on this node, by its id.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Placements(BTreeMap<String, Placement>);

impl DesiredUpdate {
    /// Reads the first page of a response.
    pub fn read(page: Desired) -> Self {
        let full = page.full;
        let (sites, kept_sites, environments) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
        let deleted_storage = Vec::new();
        let databases = DatabaseChanges { is_full: full, ..DatabaseChanges::default() };
        let certificates = CertificateChanges { is_full: full, ..CertificateChanges::default() };
        let mut update = Self {
            revision: page.revision,
            full,
            batch: page.batch,
            platform: page.platform.clone(),
            sites,
            kept_sites,
            environments,
            deleted_storage,
            databases,
            certificates,
        };
        update.add_page(page);
        update
    }

    /// Returns whether the page can follow the pages so far. The last page can be empty, and then has the same revision.
    /// A lower revision means that the control plane was restored from a backup.
    pub const fn accepts_page(&self, page: &Desired) -> bool {
        page.revision > self.revision || (page.revision == self.revision && !page.has_more)
    }

    /// Adds a page. Reads the known parts and ignores the others. A project whose part is malformed keeps its last state,
    /// as for an unavailable part. A part that an earlier page contains, or lists as unavailable, changed between the two.
    pub fn add_page(&mut self, page: Desired) {
        let Desired { revision, batch, platform, parts, unavailable, schema: _, full: _, has_more: _ } = page;
        self.certificates.platform.clone_from(&platform.certificates);
        (self.revision, self.batch, self.platform) = (revision, batch, platform);
        for UnavailablePart { project, part } in unavailable {
            tracing::warn!(project, part, "a desired part is unavailable; keeping its last state");
            self.keep(project, &part);
        }
        for change in parts {
            let added = self.add(&change);
            let Change { project, part, .. } = change;
            match added {
                Ok(()) => self.release(&project, &part),
                Err(error) => {
                    tracing::error!(project, part, %error, "a desired part is malformed; keeping its last state");
                    self.keep(project, &part);
                }
            }
        }
    }

    fn add(&mut self, change: &Change) -> serde_json::Result<()> {
        let project = &change.project;
        // The original error may contain a verifier.
        let database = change.read::<Database>();
        let database = database.map_err(|_| serde_json::Error::custom("the part database is malformed"))?;
        self.databases.changed.extend(database.map(|database| (project.clone(), database)));
        if let Some(part) = PartChange::read(change)? {
            self.environments.entry(project.clone()).or_default().push(part);
        } else if let Some(site) = change.read::<Site>()? {
            self.environments.entry(project.clone()).or_default();
            self.sites.push(SiteChange { project: project.clone(), revision: change.revision, site });
        } else if let Some(deleted) = change.read::<DeletedStorage>()? {
            self.deleted_storage.push((project.clone(), deleted));
        } else if let Some(certificates) = change.read::<Certificates>()? {
            self.certificates.changed.push((project.clone(), certificates));
        } else if change.read::<DeletedBackups>()?.flatten().is_some() {
            self.databases.deleted_backups.insert(project.clone());
        }
        Ok(())
    }

    fn keep(&mut self, project: String, part: &str) {
        self.environments.entry(project.clone()).or_default().keep(part);
        if let Some(kept) = self.kept(part) {
            kept.insert(project);
        }
    }

    /// Cancels [`Self::keep`] for a part that a later page contains.
    fn release(&mut self, project: &str, part: &str) {
        if let Some(environment) = self.environments.get_mut(project) {
            environment.release(part);
        }
        if let Some(kept) = self.kept(part) {
            kept.remove(project);
        }
    }

    /// Returns the projects that keep this part, if it is not one of the environment.
    fn kept(&mut self, part: &str) -> Option<&mut BTreeSet<String>> {
        match part {
            Site::NAME => Some(&mut self.kept_sites),
            Database::NAME => Some(&mut self.databases.kept),
            Certificates::NAME => Some(&mut self.certificates.kept),
            _ => None,
        }
    }

    /// Returns whether the response contains no change, for example after a poll timeout.
    pub fn is_empty(&self) -> bool {
        !self.full && self.environments.is_empty()
    }
}

impl SiteChange {
    /// Returns the desired bundle, unless the site is removed.
    pub fn bundle(&self) -> Option<Digest> {
        self.site.as_ref().map(|site| site.bundle)
    }
}

impl Placements {
    /// Applies the changes of a response. If it is `full`, all other sites are removed, except the `kept` ones.
    pub fn apply(&mut self, full: bool, changes: Vec<SiteChange>, kept: &BTreeSet<String>) {
        if full {
            let listed: HashSet<&String> = changes.iter().map(|change| &change.project).chain(kept).collect();
            self.0.retain(|project, _| listed.contains(project));
        }
        for SiteChange { project, revision, site } in changes {
            let Some(desired) = site else {
                self.0.remove(&project);
                continue;
            };
            let before = self.0.get(&project);
            let (live, live_version, reported_revision) =
                before.map_or((None, None, 0), |it| (it.live, it.live_version, it.reported_revision));
            self.0.insert(project, Placement { desired, live, live_version, revision, reported_revision });
        }
    }

    /// Makes desired versions live if they are `ready`. Returns the projects and versions to report.
    pub fn promote(&mut self, ready: impl Fn(&String, &Site) -> bool) -> Vec<(String, i32)> {
        let mut promoted = Vec::new();
        for (project, Placement { desired, live, live_version, revision, reported_revision }) in &mut self.0 {
            if *live != Some(desired.bundle) && ready(project, desired) {
                tracing::info!(project, version = desired.version, bundle = %desired.bundle, "deployment is live");
                *live = Some(desired.bundle);
            }
            // Another version, or a newer revision of the same version, may have the same bundle.
            if *live == Some(desired.bundle)
                && (*live_version != Some(desired.version) || *reported_revision != *revision)
            {
                (*live_version, *reported_revision) = (Some(desired.version), *revision);
                promoted.push((project.clone(), desired.version));
            }
        }
        promoted
    }

    /// Returns the desired bundles that are not live yet, with their sizes.
    pub fn missing(&self) -> BTreeMap<Digest, i64> {
        let pending = self.0.values().filter(|placement| placement.live != Some(placement.desired.bundle));
        pending.map(|placement| (placement.desired.bundle, placement.desired.size_bytes)).collect()
    }

    /// Marks bundles as not live unless they are `stored`.
    pub fn demote(&mut self, stored: impl Fn(&Digest) -> bool) {
        for placement in self.0.values_mut() {
            placement.live = placement.live.filter(&stored);
            placement.live_version = placement.live_version.filter(|_| placement.live.is_some());
        }
    }

    /// Returns the bundles that are live.
    pub fn live(&self) -> HashSet<Digest> {
        self.iter().filter_map(|(_, placement)| placement.live).collect()
    }

    /// Returns the bundles that are live or desired.
    pub fn bundles(&self) -> HashSet<Digest> {
        self.iter().flat_map(|(_, placement)| [Some(placement.desired.bundle), placement.live]).flatten().collect()
    }

    /// Returns all projects with their placements.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Placement)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use protocol::SCHEMA;
    use serde_json::{Value, json};

    use super::*;

    const PARTS: [&str; 4] = ["site", "database", "certificates", "secrets"];

    fn page(revision: i64, parts: &Value, unavailable: &Value) -> Desired {
        let platform = json!({ "dashboardUrl": "http://localhost", "siteUrl": "http://{hostname}" });
        let page = json!({
            "schema": SCHEMA, "revision": revision, "full": revision == 1, "batch": 0,
            "platform": platform, "parts": parts, "unavailable": unavailable,
        });
        serde_json::from_value(page).unwrap()
    }

    /// Returns the numbers of projects that keep a site, a database, and certificates.
    fn kept(update: &DesiredUpdate) -> [usize; 3] {
        [update.kept_sites.len(), update.databases.kept.len(), update.certificates.kept.len()]
    }

    #[test]
    fn revision_increases_up_to_an_empty_last_page() {
        let empty = |revision| page(revision, &json!([]), &json!([]));
        let with_more = |revision| Desired { has_more: true, ..empty(revision) };
        let update = DesiredUpdate::read(empty(5));
        assert!(update.accepts_page(&with_more(6)) && update.accepts_page(&empty(6)) && update.accepts_page(&empty(5)));
        assert!(!update.accepts_page(&with_more(5)) && !update.accepts_page(&empty(4)));
    }

    #[test]
    fn later_page_with_a_part_cancels_that_it_is_unavailable() {
        let unavailable = PARTS.map(|part| json!({ "project": "prj_1", "part": part }));
        let removed = PARTS.map(|part| json!({ "project": "prj_1", "revision": 2, "part": part, "desired": null }));
        let mut update = DesiredUpdate::read(page(1, &json!([]), &json!(unavailable)));
        assert_eq!(kept(&update), [1, 1, 1]);
        assert!(update.environments["prj_1"].keeps("secrets"));
        update.add_page(page(2, &json!(removed), &json!([])));
        assert_eq!(kept(&update), [0, 0, 0]);
        assert!(!update.environments["prj_1"].keeps("secrets"));
        // A malformed part keeps the last state.
        let malformed = json!([{ "project": "prj_1", "revision": 3, "part": "site", "desired": {} }]);
        update.add_page(page(3, &malformed, &json!([])));
        assert_eq!(kept(&update), [1, 0, 0]);
    }
}
