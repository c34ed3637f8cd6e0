//! Taking a bundle's assets out.

use std::fs::File;
use std::io::{self, Seek as _, Write};

use bundle::Limits;

use crate::cache::Cache;
use crate::digest::Digest;
use crate::index::{Asset, Index};

/// The control plane holds uploads to its plans' limits, which its operator sets; these only keep a wrong one from
/// filling the disk.
const LIMITS: Limits = Limits { compressed: 4 << 30, unpacked: 16 << 30, entries: 200_000 };

/// Files the assets of a verified archive, and their index under `bundle`. Blocks.
pub fn unpack(cache: &Cache, bundle: Digest, mut archive: &File) -> anyhow::Result<Index> {
    archive.rewind()?;
    let mut index = Index::default();
    let contents = bundle::read(archive, &LIMITS, |file| {
        let Some(name) = file.path.strip_prefix("assets/") else {
            return Ok(());
        };
        let temporary = cache.temporary()?;
        let mut content = Hashing { file: &temporary.file, context: Digest::start() };
        let size = io::copy(file.content, &mut content)?;
        let content = Digest::finish(content.context);
        cache.add_blob(content, temporary)?;
        index.assets.insert(format!("/{name}"), Asset { content, size });
        Ok(())
    })?;
    index.worker = contents.has_worker;
    cache.add_index(bundle, &index)?;
    Ok(index)
}

/// Computes the digest of what it writes.
struct Hashing<'a> {
    file: &'a File,
    context: ring::digest::Context,
}

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all(bytes)?;
        self.context.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
