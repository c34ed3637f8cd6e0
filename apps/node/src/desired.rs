//! The desired state of this node, and the live versions.

use std::collections::{BTreeMap, HashSet};

use protocol::{Desired, Digest, Platform, Site};
use serde::{Deserialize, Serialize};

use crate::environment::PartChange;

/// A response of the control plane, with the parts that this node knows.
pub struct DesiredUpdate {
    /// The `since` of the next request.
    pub revision: i64,
    /// Whether this is the full state: projects that are not listed are removed.
    pub full: bool,
    /// The number of the last batch of reports that the control plane accepted.
    pub batch: i64,
    pub platform: Platform,
    pub sites: Vec<SiteChange>,
    /// The changed parts of the environments of all listed projects.
    pub environments: BTreeMap<String, Vec<PartChange>>,
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
    /// The revision of the desired state. Each revision is reported, also when it repeats an earlier version.
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
    /// Reads the known parts and ignores the others.
    ///
    /// # Errors
    /// Returns an error if a known part is malformed.
    pub fn read(desired: Desired) -> serde_json::Result<Self> {
        let Desired { revision, full, batch, platform, parts, unavailable: _, schema: _ } = desired;
        let (mut sites, mut environments) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
        for change in parts {
            if let Some(part) = PartChange::read(&change)? {
                environments.entry(change.project).or_default().push(part);
            } else if let Some(site) = change.read::<Site>()? {
                environments.entry(change.project.clone()).or_default();
                sites.push(SiteChange { project: change.project, revision: change.revision, site });
            }
        }
        Ok(Self { revision, full, batch, platform, sites, environments })
    }

    /// Whether the response contains no change, as after a poll timeout.
    pub fn is_empty(&self) -> bool {
        !self.full && self.environments.is_empty()
    }
}

impl Placements {
    /// Applies the changes of a response. In a `full` one, they are all sites.
    pub fn apply(&mut self, full: bool, changes: Vec<SiteChange>) {
        if full {
            let listed: HashSet<&String> = changes.iter().map(|change| &change.project).collect();
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

    /// The desired bundles that are not live yet, with their sizes.
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

    /// The bundles that are live.
    pub fn live(&self) -> HashSet<Digest> {
        self.iter().filter_map(|(_, placement)| placement.live).collect()
    }

    /// The bundles that are live or desired.
    pub fn bundles(&self) -> HashSet<Digest> {
        self.iter().flat_map(|(_, placement)| [Some(placement.desired.bundle), placement.live]).flatten().collect()
    }

    /// All projects with their placements.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Placement)> {
        self.0.iter()
    }
}
