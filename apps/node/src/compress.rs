//! Compression of live bundles, once per content and in the background.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::sync::Arc;

use anyhow::ensure;
use brotli::enc::BrotliEncoderParams;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::task::spawn_blocking;

use crate::cache::{Blob, Cache};
use crate::coding::Coding;
use crate::digest::Digest;
use crate::index::{Asset, Index};
use crate::media;

/// Smaller contents are not compressed, because they fit into the packet of the response headers.
const MIN_SIZE: u64 = 512;
/// Larger contents take too long to compress, so they are not compressed.
const MAX_SIZE: u64 = 32 << 20;
/// The brotli level. Levels 10 and 11 take ten times as long to save another 5 %.
const QUALITY: i32 = 9;

/// Compresses the compressible assets of a bundle one by one. Writes and returns the index with the compressed sizes.
/// After an error, the remaining assets are served uncompressed until the bundle is fetched again or the node restarts.
pub async fn compress(cache: Arc<Cache>, bundle: Digest, index: Arc<Index>) -> (Digest, Index) {
    let mut index = Index::clone(&index);
    match compress_assets(&cache, bundle, &mut index).await {
        Ok(()) => tracing::debug!(%bundle, "compressed a bundle"),
        Err(error) => {
            tracing::error!(%bundle, error = format!("{error:#}"), "failed to compress a bundle");
            index.compressed = true;
        }
    }
    (bundle, index)
}

async fn compress_assets(cache: &Arc<Cache>, bundle: Digest, index: &mut Index) -> anyhow::Result<()> {
    let mut done: HashMap<Digest, [Option<u64>; 2]> = HashMap::new();
    for (name, asset) in &mut index.assets {
        if !media::is_compressible(name) || !(MIN_SIZE..=MAX_SIZE).contains(&asset.size) {
            continue;
        }
        let sizes = match done.get(&asset.content) {
            Some(sizes) => *sizes,
            None => {
                let (cache, asset) = (Arc::clone(cache), *asset);
                // Each blocking task compresses one content, so that an abort takes effect after at most one content.
                spawn_blocking(move || encode_all(&cache, asset)).await??
            }
        };
        done.insert(asset.content, sizes);
        [asset.gzip, asset.brotli] = sizes;
    }
    index.compressed = true;
    let (cache, index) = (Arc::clone(cache), index.clone());
    Ok(spawn_blocking(move || cache.update_index(bundle, &index)).await??)
}

fn encode_all(cache: &Cache, asset: Asset) -> anyhow::Result<[Option<u64>; 2]> {
    ensure!(cache.is_intact(asset.content)?, "{} is damaged", asset.content);
    let mut sizes = [None; 2];
    for (size, coding) in sizes.iter_mut().zip([Coding::Gzip, Coding::Brotli]) {
        *size = encode(cache, asset, coding)?;
    }
    Ok(sizes)
}

/// Stores the content in this coding and returns its size, or `None` if that saves less than 10 %.
fn encode(cache: &Cache, asset: Asset, coding: Coding) -> io::Result<Option<u64>> {
    let blob = Blob { content: asset.content, coding };
    // The content was already compressed, for another bundle or before a restart.
    if let Some(size) = cache.size(blob)? {
        return Ok(Some(size));
    }
    let mut content = File::open(cache.blob_path(asset.content))?;
    let temporary = cache.temporary()?;
    match coding {
        Coding::Brotli => {
            let mut to = BufWriter::new(&temporary.file);
            brotli::BrotliCompress(&mut content, &mut to, &parameters(asset.size))?;
            to.flush()?;
        }
        Coding::Gzip => {
            let mut to = GzEncoder::new(BufWriter::new(&temporary.file), Compression::best());
            io::copy(&mut content, &mut to)?;
            to.finish()?.flush()?;
        }
        Coding::Identity => return Ok(None),
    }
    let size = temporary.file.metadata()?.len();
    if size > asset.size / 10 * 9 {
        return Ok(None);
    }
    cache.add_blob(blob, temporary)?;
    Ok(Some(size))
}

/// Returns the parameters of the compressor. The window is as small as the content allows, because the compressor's
/// memory is a multiple of it.
fn parameters(size: u64) -> BrotliEncoderParams {
    let bits = (u64::BITS - size.leading_zeros() + 1).clamp(16, 22);
    BrotliEncoderParams {
        quality: QUALITY,
        lgwin: i32::try_from(bits).unwrap_or(22),
        size_hint: usize::try_from(size).unwrap_or_default(),
        ..BrotliEncoderParams::default()
    }
}
