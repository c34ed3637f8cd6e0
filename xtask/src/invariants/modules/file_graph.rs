//! The graph of uses between the files of a crate, and its cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path as FilePath, PathBuf};

use anyhow::Result;

use super::crate_tree::{CrateTree, Module, PathTarget};
use super::source::{Import, Path};

/// A graph with one node per file.
pub struct FileGraph {
    files: Vec<PathBuf>,
    /// For each file, the files that it uses, with an example of a use.
    edges: BTreeMap<usize, BTreeMap<usize, Path>>,
}

/// A strongly connected component: files that use each other directly or indirectly.
pub type Cycle = BTreeSet<usize>;

impl FileGraph {
    /// Reads the crate with this root.
    pub fn read(root: &FilePath) -> Result<Self> {
        let tree = CrateTree::read(root)?;
        let mut graph = Self { files: tree.files.clone(), edges: BTreeMap::new() };
        for (number, module) in tree.modules() {
            for path in &module.source.paths {
                graph.add(&tree, module, tree.find(number, path), path);
                if let [name] = path.segments.as_slice()
                    && let Some(above) = tree.macro_above(number, name)
                {
                    graph.add(&tree, module, Some(PathTarget::Item(above)), path);
                }
            }
            for import in &module.source.imports {
                graph.add_import(&tree, number, module, import);
            }
        }
        Ok(graph)
    }

    /// Adds an import. A re-export is a use only if this file also names the item. A glob import uses the items that
    /// this file names.
    fn add_import(&mut self, tree: &CrateTree, number: usize, module: &Module, import: &Import) {
        let words = &module.source.words;
        if import.name == "*" {
            for word in words.iter().filter(|it| !module.source.items.contains(*it)) {
                self.add(tree, module, tree.find_by_glob(import, number, word), &import.path);
            }
        } else if !import.public || words.contains(&import.name) {
            self.add(tree, module, tree.find(number, &import.path), &import.path);
        }
    }

    fn add(&mut self, tree: &CrateTree, from: &Module, to: Option<PathTarget>, why: &Path) {
        if let Some(to) = to.and_then(|it| tree.file_of(it)).filter(|to| *to != from.file) {
            self.edges.entry(from.file).or_default().entry(to).or_insert_with(|| why.clone());
        }
    }

    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    pub fn file(&self, number: usize) -> &FilePath {
        self.files.get(number).map_or(FilePath::new(""), PathBuf::as_path)
    }

    pub fn edge_count(&self) -> usize {
        self.edges.values().map(BTreeMap::len).sum()
    }

    /// Returns the cycles, largest first.
    pub fn cycles(&self) -> Vec<Cycle> {
        let reach: Vec<BTreeSet<usize>> = (0..self.files.len()).map(|it| self.reachable_files(it)).collect();
        let reaches = |from: usize, to: usize| reach.get(from).is_some_and(|it| it.contains(&to));
        let mut cycles: Vec<Cycle> = Vec::new();
        for file in (0..self.files.len()).filter(|it| reaches(*it, *it)) {
            if !cycles.iter().any(|it| it.contains(&file)) {
                cycles.push((file..self.files.len()).filter(|it| reaches(file, *it) && reaches(*it, file)).collect());
            }
        }
        cycles.sort_by_key(|it| std::cmp::Reverse(it.len()));
        cycles
    }

    /// Returns the uses within a cycle: source file, target file, path.
    pub fn edges_within<'a>(&'a self, cycle: &'a Cycle) -> impl Iterator<Item = (usize, usize, &'a Path)> {
        let uses = |from: &usize| self.edges.get(from).into_iter().flatten().map(|(to, why)| (*to, why));
        cycle
            .iter()
            .flat_map(move |from| uses(from).map(|(to, why)| (*from, to, why)).filter(|it| cycle.contains(&it.1)))
    }

    /// Returns all files that a file uses, directly or indirectly.
    fn reachable_files(&self, from: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            next.extend(
                self.edges.get(&at).into_iter().flat_map(BTreeMap::keys).copied().filter(|it| reached.insert(*it)),
            );
        }
        reached
    }
}
