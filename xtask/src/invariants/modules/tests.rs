//! Cycles in small example crates.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::file_graph::FileGraph;

/// Returns the cycles of a crate with these files, as file names.
fn cycles(files: &[(&str, &str)]) -> Vec<BTreeSet<String>> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let graph = FileGraph::read(&folder.path().join("lib.rs")).unwrap();
    assert_eq!(graph.file_count(), files.len(), "a file was not read");
    let name = |file: &Path| file.strip_prefix(folder.path()).unwrap().display().to_string();
    graph.cycles().iter().map(|it| it.iter().map(|file| name(graph.file(*file))).collect()).collect()
}

fn one_cycle(names: &[&str]) -> Vec<BTreeSet<String>> {
    vec![names.iter().map(|it| (*it).to_owned()).collect()]
}

#[test]
fn files_that_use_each_other_are_a_cycle() {
    let found = cycles(&[
        ("lib.rs", "mod a; mod b; mod c; mod d; pub use a::A;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        ("b.rs", "pub struct B; fn f() { super::c::f() }"),
        ("c.rs", "use crate::d; pub fn f() -> d::D { d::D }"),
        ("d.rs", "use crate::a::A; pub struct D;"),
    ]);
    assert_eq!(found, one_cycle(&["a.rs", "b.rs", "c.rs", "d.rs"]));
}

#[test]
fn reexports_are_not_uses() {
    let found = cycles(&[
        ("lib.rs", "mod a; mod b; pub use a::*; pub use b::B;"),
        ("a/mod.rs", "mod x; pub mod y; pub use x::X; pub(crate) use self::y::{Y, Z as W};"),
        ("a/x.rs", "use crate::B; pub struct X(B);"),
        ("a/y.rs", "use super::X; pub struct Y(X); pub struct Z;"),
        ("b.rs", "pub struct B;"),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn reexported_names_resolve_to_the_defining_file() {
    let found = cycles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a/mod.rs", "mod x; pub use x::X as Y;"),
        ("a/x.rs", "use crate::b; pub struct X(b::B);"),
        ("b.rs", "pub struct B; fn f(_: crate::a::Y) {}"),
    ]);
    assert_eq!(found, one_cycle(&["a/x.rs", "b.rs"]));
}

#[test]
fn parent_and_child_that_use_each_other_are_a_cycle() {
    let found = cycles(&[
        ("lib.rs", "mod a;"),
        ("a.rs", "mod used; mod unused; use used::f; pub struct Own; fn g() { f() }"),
        ("a/used.rs", "use super::Own; pub fn f() {}"),
        ("a/unused.rs", "use super::Own; impl Own { fn h(&self) {} }"),
    ]);
    assert_eq!(found, one_cycle(&["a.rs", "a/used.rs"]));
    let found = cycles(&[
        ("lib.rs", "mod a;"),
        ("a.rs", "mod child; pub use child::F; pub struct Own(F);"),
        ("a/child.rs", "use super::*; pub struct F; impl Own {}"),
    ]);
    assert_eq!(found, one_cycle(&["a.rs", "a/child.rs"]));
}

#[test]
fn macros_and_paths_in_attributes_are_uses() {
    let found = cycles(&[
        ("lib.rs", "#[macro_use] mod a; mod b;"),
        ("a/mod.rs", "mod c; macro_rules! m { () => { $crate::b::B } } #[macro_export] macro_rules! e { () => {} }"),
        ("a/c.rs", "m!();"),
        ("b.rs", "pub struct B { #[serde(with = \"crate::a::c\")] x: u8 } crate::e!();"),
    ]);
    assert_eq!(found, one_cycle(&["a/mod.rs", "b.rs"]));
    let found = cycles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "kernel::ids! { AId } use crate::b::B;"),
        ("b.rs", "pub struct B(#[x(y = \"crate::a::write\")] u8); use std::fmt; fn f() -> fmt::Result { a.crate_b() }"),
    ]);
    assert_eq!(found, one_cycle(&["a.rs", "b.rs"]));
}

#[test]
fn uses_in_tests_are_ignored() {
    let found = cycles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub struct A; #[cfg(test)] mod tests { use crate::b::B; use super::*; } #[cfg(test)] use crate::b;"),
        ("b.rs", "use crate::a::A; pub struct B(A); mod inner { use super::B; pub fn f(_: B) {} }"),
    ]);
    assert!(found.is_empty(), "{found:?}");
}
