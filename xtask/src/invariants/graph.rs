//! The dependency graph of `cargo metadata`: normal dependencies, by crate name.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use anyhow::Result;
use serde::Deserialize;

pub struct Graph {
    edges: BTreeMap<String, BTreeSet<String>>,
    manifests: BTreeMap<String, PathBuf>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

impl Graph {
    pub fn read(metadata: &serde_json::Value) -> Result<Self> {
        let metadata = Metadata::deserialize(metadata)?;
        let names: BTreeMap<&str, &str> =
            metadata.packages.iter().map(|it| (it.id.as_str(), it.name.as_str())).collect();
        let name = |id: &str| names.get(id).copied().unwrap_or_default().to_owned();
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in &metadata.resolve.nodes {
            // Two versions of a crate become one node, because no rule depends on a version.
            let normal = node.deps.iter().filter(|it| it.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            edges.entry(name(&node.id)).or_default().extend(normal.map(|it| name(&it.pkg)));
        }
        let members = metadata.packages.into_iter().filter(|it| metadata.workspace_members.contains(&it.id));
        Ok(Self { edges, manifests: members.map(|it| (it.name, it.manifest_path)).collect() })
    }

    /// Returns the crates of the workspace.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        self.manifests.keys().map(String::as_str)
    }

    /// Returns the contexts: the crates that own a Postgres schema, except `store`, which all of them use.
    pub fn contexts(&self) -> impl Iterator<Item = &str> {
        let has_tables = |manifest: &PathBuf| manifest.with_file_name("src").join("schema.rs").exists();
        self.manifests
            .iter()
            .filter(move |(name, manifest)| *name != "store" && has_tables(manifest))
            .map(|(name, _)| name.as_str())
    }

    /// Returns the crates of the workspace with their manifests.
    pub fn manifests(&self) -> impl Iterator<Item = (&str, &PathBuf)> {
        self.manifests.iter().map(|(name, manifest)| (name.as_str(), manifest))
    }

    pub fn depends_directly(&self, from: &str, to: &str) -> bool {
        self.edges.get(from).is_some_and(|edges| edges.contains(to))
    }

    /// Returns the shortest dependency path from one crate to another.
    pub fn shortest_path<'a>(&'a self, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            if at == to {
                let mut path = vec![at];
                path.extend(std::iter::successors(came_from.get(at), |step| came_from.get(*step)).copied());
                path.reverse();
                return Some(path);
            }
            for next in self.edges.get(at).into_iter().flatten() {
                if next != from && !came_from.contains_key(next.as_str()) {
                    came_from.insert(next, at);
                    queue.push_back(next);
                }
            }
        }
        None
    }
}
