//! Extraction of bundles into the cache.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek as _};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bundle::{Limits, Manifest};

use crate::cache::{Cache, TemporaryFile};
use crate::digest::{Digest, HashingWriter};
use crate::index::{Asset, Code, Index};

/// The control plane enforces the limits of the plans on uploads. These limits only protect the disk and the memory:
/// a bundle of an earlier release may have more than `MAX_FILE_NAMES_BYTES`.
const LIMITS: Limits = Limits { compressed: 4 << 30, unpacked: 16 << 30, entries: 200_000, names: 32 << 20 };

/// The number of threads that store the files of a bundle. Each file is synced, and the disk combines concurrent syncs:
/// other bundles wait for a shorter time behind one with many small files.
const WRITERS: usize = 8;

/// Stores the assets and modules of a verified archive, then the index of the bundle. Blocks.
pub fn unpack(cache: &Cache, bundle: Digest, mut archive: &File) -> anyhow::Result<Index> {
    archive.rewind()?;
    let _guard = cache.block_eviction();
    let (mut index, mut modules) = (Index::default(), BTreeMap::new());
    let failed = &AtomicBool::new(false);
    let contents = thread::scope(|scope| {
        let (files, receiver) = sync_channel(WRITERS);
        let receiver = Arc::new(Mutex::new(receiver));
        let start = |_| {
            let receiver = Arc::clone(&receiver);
            scope.spawn(move || add_blobs(cache, &receiver).inspect_err(|_| failed.store(true, Ordering::Relaxed)))
        };
        let writers: Vec<_> = (0..WRITERS).map(start).collect();
        // If all writers fail, the channel is closed.
        drop(receiver);
        let contents = bundle::read(archive, &LIMITS, |file| {
            let (asset, module) = (file.path.strip_prefix("assets/"), file.path.strip_prefix("worker/"));
            if asset.is_none() && module.is_none() {
                return Ok(());
            }
            let temporary = cache.temporary()?;
            let mut content = HashingWriter::new(&temporary.file);
            let size = io::copy(file.content, &mut content)?;
            let content = content.finish();
            if failed.load(Ordering::Relaxed) || files.send((content, temporary)).is_err() {
                return Err(io::Error::other("a file cannot be stored"));
            }
            if let Some(name) = asset {
                index.assets.insert(format!("/{name}"), Asset::new(content, size));
            } else if let Some(name) = module {
                modules.insert(name.to_owned(), Asset::new(content, size));
            }
            Ok(())
        });
        drop(files);
        for writer in writers {
            match writer.join() {
                Ok(stored) => stored?,
                Err(panic) => resume_unwind(panic),
            }
        }
        anyhow::Ok(contents?)
    })?;
    index.worker = contents.has_worker;
    let main = contents.manifest.main_path();
    let main = main.strip_prefix("worker/").unwrap_or(main).to_owned();
    let Manifest { compatibility_date, ai: declares_ai, .. } = contents.manifest;
    let code = Code { main, compatibility_date, declares_ai, modules };
    index.code = contents.has_worker.then_some(code);
    cache.add_index(bundle, &index)?;
    Ok(index)
}

/// Stores the files of the channel until it is closed.
fn add_blobs(cache: &Cache, files: &Mutex<Receiver<(Digest, TemporaryFile)>>) -> io::Result<()> {
    loop {
        let received = files.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((content, temporary)) = received else { return Ok(()) };
        cache.add_blob(content, temporary)?;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use testkit::bundle::tar::Tar;

    use super::*;

    const FILES: usize = 300;

    fn unpack_archive(cache: &Cache, content: &[u8]) -> anyhow::Result<Index> {
        let archive = cache.temporary().unwrap();
        (&archive.file).write_all(content).unwrap();
        unpack(cache, Digest::of(content), &archive.file)
    }

    /// Unpacks a bundle in which pairs of assets have the same content.
    fn unpack_many(cache: &Cache) -> anyhow::Result<Index> {
        let names: Vec<String> = (0..FILES).map(|number| format!("assets/{number}")).collect();
        let contents: Vec<String> = (0..FILES).map(|number| format!("content {}", number / 2)).collect();
        let assets = names.iter().zip(&contents).map(|(name, content)| (name.as_str(), content.as_bytes()));
        let files: Vec<(&str, &[u8])> = std::iter::once(("svc.json", b"{}".as_slice())).chain(assets).collect();
        unpack_archive(cache, &testkit::bundle::pack(&files))
    }

    #[test]
    fn all_files_are_stored_with_the_index() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::in_dir(dir.path());
        let index = unpack_many(&cache).unwrap();
        assert_eq!(index.contents().count(), FILES);
        for asset in index.contents() {
            assert!(cache.is_intact(asset.content).unwrap());
        }
        assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0);
    }

    #[test]
    fn bundle_with_more_names_than_an_upload_may_have_is_unpacked() {
        let dir = tempfile::tempdir().unwrap();
        let count = usize::try_from(bundle::MAX_FILE_NAMES_BYTES / 1000).unwrap();
        let name = |number: usize| format!("assets/{number:05}/{}", "x".repeat(1000));
        let add = |tar: Tar, number| tar.long_name(&name(number)).file("cut", "same");
        let index = unpack_archive(&Cache::in_dir(dir.path()), &(0..count).fold(Tar::valid(), add).gzip()).unwrap();
        assert_eq!(index.assets.len(), count);
    }

    #[test]
    fn failed_write_ends_the_unpack_without_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::in_dir(dir.path());
        let blobs = dir.path().join("blobs");
        fs::remove_dir(&blobs).unwrap();
        fs::write(&blobs, "not a folder").unwrap();
        let Err(error) = unpack_many(&cache) else { panic!("the files cannot be stored") };
        assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(fs::read_dir(dir.path().join("sites")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0);
    }
}
