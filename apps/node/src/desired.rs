//! What the node is to serve.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::digest::Digest;

/// The control plane's answer.
#[derive(Deserialize)]
pub struct Answer {
    /// The version of this document's shape.
    pub schema: u32,
    /// What to ask with next.
    pub revision: u64,
    /// Whether a project that is not listed is not to be served.
    pub full: bool,
    sites: Vec<Change>,
}

#[derive(Deserialize)]
struct Change {
    project: String,
    site: Option<Site>,
}

/// A project as it is to be served.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Site {
    /// Under which names: lowercase, without a port.
    pub hostnames: Vec<String>,
    /// Which bundle.
    pub bundle: Digest,
    /// The bundle's size.
    pub size_bytes: u64,
    /// The deployment's version, for people.
    pub version: u64,
    /// Whom it lets in.
    #[serde(default)]
    pub access: Access,
}

/// A project on this node.
#[derive(Clone, Serialize, Deserialize)]
pub struct Placement {
    /// What is to be served …
    pub wanted: Site,
    /// … and the bundle that is, which is an older one as long as the wanted one is not to be had. Host names have no
    /// such delay: one that was taken from a project stops showing it at once.
    pub live: Option<Digest>,
}

/// Every project on this node, by its id.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Placements(BTreeMap<String, Placement>);

impl Answer {
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
        for Change { project, site } in answer.sites {
            let Some(wanted) = site else {
                self.0.remove(&project);
                continue;
            };
            let live = self.0.get(&project).and_then(|placement| placement.live);
            self.0.insert(project, Placement { wanted, live });
        }
    }

    /// Makes live what is wanted, wherever `here` has it.
    pub fn promote(&mut self, here: impl Fn(&Digest) -> bool) {
        for (project, Placement { wanted, live }) in &mut self.0 {
            if *live != Some(wanted.bundle) && here(&wanted.bundle) {
                tracing::info!(project, version = wanted.version, bundle = %wanted.bundle, "live");
                *live = Some(wanted.bundle);
            }
        }
    }

    /// The bundles that are wanted and not live yet, with their sizes.
    pub fn missing(&self) -> BTreeMap<Digest, u64> {
        let behind = self.0.values().filter(|placement| placement.live != Some(placement.wanted.bundle));
        behind.map(|placement| (placement.wanted.bundle, placement.wanted.size_bytes)).collect()
    }

    /// Gives up what is called live and is not `here`.
    pub fn demote(&mut self, here: impl Fn(&Digest) -> bool) {
        for placement in self.0.values_mut() {
            placement.live = placement.live.filter(&here);
        }
    }

    /// The bundles that are live.
    pub fn live(&self) -> HashSet<Digest> {
        self.iter().filter_map(|placement| placement.live).collect()
    }

    /// Each placement.
    pub fn iter(&self) -> impl Iterator<Item = &Placement> {
        self.0.values()
    }
}
