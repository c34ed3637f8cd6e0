//! The desired state of this node, and how far it has come.

use std::collections::{BTreeMap, HashSet};

use protocol::{Desired, Digest, Platform, Site};
use serde::{Deserialize, Serialize};

/// A response of the control plane, with the parts that this node knows.
pub struct Answer {
    /// The `since` of the next request.
    pub revision: i64,
    /// Whether a project that is not listed is not to be served.
    pub full: bool,
    /// The number of the last batch of reports that the control plane accepted.
    pub batch: i64,
    pub platform: Platform,
    sites: Vec<SiteChange>,
}

struct SiteChange {
    project: String,
    revision: i64,
    site: Option<Site>,
}

/// A project on this node.
#[derive(Clone, Serialize, Deserialize)]
pub struct Placement {
    /// What is to be served …
    pub wanted: Site,
    /// … and the bundle that is, which is an older one as long as the wanted one is not to be had. Host names have no
    /// such delay: one that was taken from a project stops showing it at once.
    pub live: Option<Digest>,
    /// The version that is.
    pub live_version: Option<i32>,
    /// The revision at which this was decided. Who goes back and forth between versions wants to know how each of them
    /// fares each time.
    pub revision: i64,
    /// The revision at which it was last told that what is wanted is live.
    told: i64,
}

/// Every project on this node, by its id.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Placements(BTreeMap<String, Placement>);

impl Answer {
    /// Reads the parts that this node knows, and ignores the others.
    ///
    /// # Errors
    /// When one of them does not have the shape of its name.
    pub fn read(desired: Desired) -> serde_json::Result<Self> {
        let Desired { revision, full, batch, platform, parts, schema: _ } = desired;
        let mut sites = Vec::new();
        for change in parts {
            if let Some(site) = change.read::<Site>()? {
                sites.push(SiteChange { project: change.project, revision: change.revision, site });
            }
        }
        Ok(Self { revision, full, batch, platform, sites })
    }

    /// Whether it says nothing, as after a wait in vain.
    pub fn is_empty(&self) -> bool {
        !self.full && self.sites.is_empty()
    }
}

impl Placements {
    /// Takes in what the control plane says.
    pub fn apply(&mut self, answer: Answer) {
        if answer.full {
            let listed: HashSet<&String> = answer.sites.iter().map(|change| &change.project).collect();
            self.0.retain(|project, _| listed.contains(project));
        }
        for SiteChange { project, revision, site } in answer.sites {
            let Some(wanted) = site else {
                self.0.remove(&project);
                continue;
            };
            let before = self.0.get(&project);
            let (live, live_version, told) = before.map_or((None, None, 0), |it| (it.live, it.live_version, it.told));
            self.0.insert(project, Placement { wanted, live, live_version, revision, told });
        }
    }

    /// Makes live what is wanted, wherever that is `ready`; gives the projects and versions that became it.
    pub fn promote(&mut self, ready: impl Fn(&String, &Site) -> bool) -> Vec<(String, i32)> {
        let mut promoted = Vec::new();
        for (project, Placement { wanted, live, live_version, revision, told }) in &mut self.0 {
            if *live != Some(wanted.bundle) && ready(project, wanted) {
                tracing::info!(project, version = wanted.version, bundle = %wanted.bundle, "live");
                *live = Some(wanted.bundle);
            }
            // The same bundle may be wanted as another version, or anew.
            if *live == Some(wanted.bundle) && (*live_version != Some(wanted.version) || *told != *revision) {
                (*live_version, *told) = (Some(wanted.version), *revision);
                promoted.push((project.clone(), wanted.version));
            }
        }
        promoted
    }

    /// The bundles that are wanted and not live yet, with their sizes.
    pub fn missing(&self) -> BTreeMap<Digest, i64> {
        let behind = self.0.values().filter(|placement| placement.live != Some(placement.wanted.bundle));
        behind.map(|placement| (placement.wanted.bundle, placement.wanted.size_bytes)).collect()
    }

    /// Gives up what is called live and is not `here`.
    pub fn demote(&mut self, here: impl Fn(&Digest) -> bool) {
        for placement in self.0.values_mut() {
            placement.live = placement.live.filter(&here);
            placement.live_version = placement.live_version.filter(|_| placement.live.is_some());
        }
    }

    /// The bundles that are live.
    pub fn live(&self) -> HashSet<Digest> {
        self.iter().filter_map(|(_, placement)| placement.live).collect()
    }

    /// The bundles that are live or are to be.
    pub fn bundles(&self) -> HashSet<Digest> {
        self.iter().flat_map(|(_, placement)| [Some(placement.wanted.bundle), placement.live]).flatten().collect()
    }

    /// Each project and its placement.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Placement)> {
        self.0.iter()
    }
}
