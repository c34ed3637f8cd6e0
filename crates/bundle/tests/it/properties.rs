//! Properties of all inputs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use bundle::{BundleError, Reason};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::support::{LARGE_LIMITS, Tar, collect, gzip, read_valid};

/// Directories and files use different alphabets, so that no two names of a tree conflict.
fn path() -> impl Strategy<Value = String> {
    let directory = "[ab]{1,2}(é| |~[c-f]{70})?";
    let file = "[0-9]{1,3}(\\.js|日本|\\.\\.|-[m-z]{130})?";
    (select(vec!["worker", "assets"]), vec(directory, 0..4), file).prop_map(|(top, directories, file)| {
        let mut segments = vec![top.to_owned()];
        segments.extend(directories);
        segments.push(file);
        segments.join("/")
    })
}

fn tree() -> impl Strategy<Value = BTreeMap<String, Vec<u8>>> {
    let content = prop_oneof![vec(any::<u8>(), 0..40), vec(any::<u8>(), 510..515), Just(vec![9; 40_000])];
    btree_map(path(), content, 0..12).prop_map(|mut files| {
        files.insert("svc.json".to_owned(), b"{\"ai\":true}".to_vec());
        files.insert("worker/index.js".to_owned(), b"export default {}".to_vec());
        files
    })
}

fn pack(files: &BTreeMap<String, Vec<u8>>, order: &[Index], style: &[u8]) -> Tar {
    let mut left: Vec<_> = files.iter().collect();
    let mut tar = Tar::default();
    for (at, style) in order.iter().zip(style.iter().cycle()) {
        if left.is_empty() {
            break;
        }
        let (path, content) = left.remove(at.index(left.len()));
        tar = match style % 3 {
            0 if path.len() <= 98 => tar.file(&format!("./{path}"), content),
            1 => tar.long_name(path).file("cut", content),
            _ => tar.pax(&[("mtime", b"1.5"), ("path", path.as_bytes())]).file("cut", content),
        };
    }
    left.into_iter().fold(tar, |tar, (path, content)| tar.long_name(path).file("cut", content))
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..3000)) {
        let _ = collect(&*bytes, &LARGE_LIMITS);
        let _ = collect(&*gzip(&bytes), &LARGE_LIMITS);
        let _ = collect(&*Tar::valid().pax(&[("comment", &bytes)]).bytes(&bytes).gzip(), &LARGE_LIMITS);
        let _ = collect(&*Tar::valid().entry(b"x", b'x', &bytes).gzip(), &LARGE_LIMITS);
        let _ = bundle::Manifest::parse(&bytes);
    }

    #[test]
    fn arbitrary_headers_give_only_allowed_paths(
        edits in vec((0..500_usize, any::<u8>()), 1..12),
        which in 0..3_usize,
    ) {
        let mut bytes = Tar::valid().pax(&[("path", b"assets/a")]).file("a", "abc").bytes(&[0; 1024]).0;
        let header = &mut bytes[[0, 1024, 2048][which]..][..512];
        for (at, byte) in edits {
            header[at] = byte;
        }
        let mut summed = tar::Header::new_old();
        summed.as_mut_bytes().copy_from_slice(header);
        summed.set_cksum();
        header.copy_from_slice(summed.as_bytes());
        if let Ok((_, files)) = collect(&*gzip(&bytes), &LARGE_LIMITS) {
            let allowed = |path: &str| path == "svc.json" || path.starts_with("worker/") || path.starts_with("assets/");
            prop_assert!(files.keys().all(|path| allowed(path) && !path.contains("..")));
        }
    }

    #[test]
    fn packed_tree_reads_back_unchanged(
        files in tree(),
        order in vec(any::<Index>(), 14),
        style in vec(any::<u8>(), 1..5),
    ) {
        let (contents, visited) = read_valid(&pack(&files, &order, &style).gzip());
        prop_assert_eq!(&visited, &files);
        prop_assert_eq!(contents.entry_count as usize, files.len());
        prop_assert_eq!(contents.unpacked_bytes as usize, files.values().map(Vec::len).sum::<usize>());
        prop_assert_eq!(contents.asset_count as usize, files.keys().filter(|path| path.starts_with("assets")).count());
    }

    #[test]
    fn corrupt_bundle_is_rejected_or_reads_unchanged(files in tree(), at in any::<Index>(), bit in 0..8_u8) {
        let bundle = pack(&files, &[], &[0]).gzip();
        let mut flipped = bundle.clone();
        flipped[at.index(bundle.len())] ^= 1 << bit;
        if let Ok((_, visited)) = collect(&*flipped, &LARGE_LIMITS) {
            prop_assert_eq!(&visited, &files);
        }
        prop_assert!(collect(&bundle[..at.index(bundle.len())], &LARGE_LIMITS).is_err());
    }

    #[test]
    fn name_index_matches_pairwise_comparison(
        names in btree_set(("[aAbß]{1,2}(/([aAb]|ss|-)){0,2}", any::<bool>()), 1..6),
        order in vec(any::<Index>(), 6),
    ) {
        let mut left: Vec<_> = names.into_iter().collect();
        let mut tar = Tar::valid();
        let mut names = BTreeSet::new();
        for at in order.iter().take(left.len()) {
            let (name, directory) = left.remove(at.index(left.len()));
            let path = format!("assets/{name}");
            tar = if directory { tar.directory(&path) } else { tar.file(&path, "") };
            names.insert((path, directory));
        }
        match collect(&*tar.gzip(), &LARGE_LIMITS) {
            Ok(_) => prop_assert!(compatible(&names), "{:?}", names),
            Err(BundleError::Invalid {
                reason: Reason::Duplicate | Reason::CaseCollision | Reason::FileAndDirectory,
                ..
            }) => {
                prop_assert!(!compatible(&names), "{:?}", names);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}

/// Returns whether the names obey the rule: on a case-insensitive file system, every path has one spelling and is
/// either a file or a directory.
fn compatible(names: &BTreeSet<(String, bool)>) -> bool {
    let mut known_paths: BTreeMap<String, (String, bool)> = BTreeMap::new();
    names.iter().all(|(path, directory)| {
        let ends = path.match_indices('/').map(|(end, _)| (&path[..end], true)).chain([(&**path, *directory)]);
        ends.into_iter().all(|(prefix, directory)| {
            let known = known_paths.entry(prefix.to_uppercase()).or_insert_with(|| (prefix.to_owned(), directory));
            *known == (prefix.to_owned(), directory)
        })
    })
}

#[test]
fn every_flipped_bit_and_every_truncation_is_detected() {
    let tar = Tar::valid().pax(&[("path", b"assets/a")]).file("cut", "some content, some of it repeated");
    let bundle = tar.gzip();
    let expected = read_valid(&bundle);
    for at in 0..bundle.len() * 8 {
        let mut flipped = bundle.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        // No checksum covers the time and system fields of the gzip header, and different back-references can give
        // equal data. So a changed bit can leave the bundle valid, with the same content.
        if let Ok(read) = collect(&*flipped, &LARGE_LIMITS) {
            assert!(read == expected, "bit {at}");
        }
    }
    for length in 0..bundle.len() {
        assert!(collect(bundle.as_slice().take(length as u64), &LARGE_LIMITS).is_err(), "truncated to {length} bytes");
    }
}
