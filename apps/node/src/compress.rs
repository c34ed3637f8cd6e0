//! Compressing what is served, once, and never while a visitor waits.

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

/// Smaller contents fit into the packets that their headers need anyway.
const SMALLEST: u64 = 512;
/// Larger ones take longer than they are worth; compressed by the deploy's own tools, they come as other files.
const LARGEST: u64 = 32 << 20;
/// Of eleven. The two above take ten times as long for the last twentieth, and visitors need the processor too.
const QUALITY: i32 = 9;

/// Compresses the contents of a bundle that are worth it, one after the other; gives its index with their sizes, which
/// is on disk then. What fails is noted in the log and sent as it is until the next start.
pub async fn compress(cache: Arc<Cache>, bundle: Digest, index: Arc<Index>) -> (Digest, Index) {
    let mut index = Index::clone(&index);
    match fill(&cache, bundle, &mut index).await {
        Ok(()) => tracing::debug!(%bundle, "compressed"),
        Err(error) => {
            tracing::error!(%bundle, error = format!("{error:#}"), "a bundle cannot be compressed");
            index.compressed = true;
        }
    }
    (bundle, index)
}

async fn fill(cache: &Arc<Cache>, bundle: Digest, index: &mut Index) -> anyhow::Result<()> {
    let mut done: HashMap<Digest, [Option<u64>; 2]> = HashMap::new();
    for (name, asset) in &mut index.assets {
        if !media::is_compressible(name) || !(SMALLEST..=LARGEST).contains(&asset.size) {
            continue;
        }
        let sizes = match done.get(&asset.content) {
            Some(sizes) => *sizes,
            None => {
                let (cache, asset) = (Arc::clone(cache), *asset);
                // One content at a time, so that a bundle that nobody wants any more costs no more than that.
                spawn_blocking(move || both(&cache, asset)).await??
            }
        };
        done.insert(asset.content, sizes);
        [asset.gzip, asset.brotli] = sizes;
    }
    index.compressed = true;
    let (cache, index) = (Arc::clone(cache), index.clone());
    Ok(spawn_blocking(move || cache.update_index(bundle, &index)).await??)
}

fn both(cache: &Cache, asset: Asset) -> anyhow::Result<[Option<u64>; 2]> {
    ensure!(cache.is_intact(asset.content)?, "{} is damaged", asset.content);
    let mut sizes = [None; 2];
    for (size, coding) in sizes.iter_mut().zip([Coding::Gzip, Coding::Brotli]) {
        *size = encode(cache, asset, coding)?;
    }
    Ok(sizes)
}

/// Files the content in this coding, and gives its size; nothing where that would hardly save anything.
fn encode(cache: &Cache, asset: Asset, coding: Coding) -> io::Result<Option<u64>> {
    let blob = Blob { content: asset.content, coding };
    // Of a bundle that shares the content, or of a life that ended before all of this one was done.
    if let Some(size) = cache.size(blob)? {
        return Ok(Some(size));
    }
    let mut content = File::open(cache.blob(asset.content))?;
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

/// A window no larger than the content needs: the compressor's memory is a multiple of it.
fn parameters(size: u64) -> BrotliEncoderParams {
    let bits = (u64::BITS - size.leading_zeros() + 1).clamp(16, 22);
    BrotliEncoderParams {
        quality: QUALITY,
        lgwin: i32::try_from(bits).unwrap_or(22),
        size_hint: usize::try_from(size).unwrap_or_default(),
        ..BrotliEncoderParams::default()
    }
}
