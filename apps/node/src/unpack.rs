//! Extraction of bundles into the cache.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek as _};

use bundle::{Limits, Manifest};

use crate::cache::Cache;
use crate::digest::{Digest, HashingWriter};
use crate::index::{Asset, Code, Index};

/// The control plane enforces the limits of the plans on uploads. These limits only protect the disk and the memory:
/// a bundle of an earlier release may have more than `MAX_FILE_NAMES_BYTES`.
const LIMITS: Limits = Limits { compressed: 4 << 30, unpacked: 16 << 30, entries: 200_000, names: 32 << 20 };

/// Stores the assets and modules of a verified archive, then the index of the bundle. Blocks.
pub fn unpack(cache: &Cache, bundle: Digest, mut archive: &File) -> anyhow::Result<Index> {
    archive.rewind()?;
    let _guard = cache.block_eviction();
    let (mut index, mut modules) = (Index::default(), BTreeMap::new());
    let contents = bundle::read(archive, &LIMITS, |file| {
        let (asset, module) = (file.path.strip_prefix("assets/"), file.path.strip_prefix("worker/"));
        if asset.is_none() && module.is_none() {
            return Ok(());
        }
        let temporary = cache.temporary()?;
        let mut content = HashingWriter::new(&temporary.file);
        let size = io::copy(file.content, &mut content)?;
        let content = content.finish();
        cache.add_blob(content, temporary)?;
        if let Some(name) = asset {
            index.assets.insert(format!("/{name}"), Asset::new(content, size));
        } else if let Some(name) = module {
            modules.insert(name.to_owned(), Asset::new(content, size));
        }
        Ok(())
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
