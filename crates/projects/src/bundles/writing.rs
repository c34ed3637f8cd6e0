//! An object on its way into the store, in parts.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use object_store::{MultipartUpload, Result};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How long parts of an upload that is taken back are waited for.
const ARRIVING: Duration = Duration::from_secs(10);

/// How parts are cut, and how many of them may be in memory.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    bytes: usize,
    /// Of one object, on their way.
    at_once: usize,
    /// Of all objects, on their way.
    places: Arc<Semaphore>,
}

impl Parts {
    /// What all uploads together may have on its way, in bytes. Beside it each has one part that fills.
    const ON_THEIR_WAY: usize = 80 * 1024 * 1024;

    /// For a store whose parts cost a round trip, and of which it takes none but the last below 5 MiB, as S3 does.
    pub(super) fn large() -> Self {
        Self::new(5 * 1024 * 1024, 3)
    }

    /// For a store that is near.
    pub(super) fn small() -> Self {
        Self::new(256 * 1024, 4)
    }

    fn new(bytes: usize, at_once: usize) -> Self {
        Self { bytes, at_once, places: Arc::new(Semaphore::new(Self::ON_THEIR_WAY / bytes)) }
    }
}

/// What is neither finished nor aborted is aborted when it is dropped, as far as there is a runtime to do it.
pub(super) struct Writing {
    parts: Parts,
    filling: Vec<u8>,
    /// None once it is over.
    upload: Option<Box<dyn MultipartUpload>>,
    on_their_way: JoinSet<Result<()>>,
}

impl Writing {
    pub(super) fn new(upload: Box<dyn MultipartUpload>, parts: Parts) -> Self {
        Self { parts, filling: Vec::new(), upload: Some(upload), on_their_way: JoinSet::new() }
    }

    /// Takes the next bytes, once there is room for them. Copies: a part of one-byte chunks, kept, would hold a hundred
    /// times its size.
    pub(super) async fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.filling.capacity() == 0 {
                self.filling.reserve_exact(self.parts.bytes);
            }
            let (taken, rest) = bytes.split_at(bytes.len().min(self.parts.bytes - self.filling.len()));
            self.filling.extend_from_slice(taken);
            bytes = rest;
            if self.filling.len() == self.parts.bytes {
                self.send().await?;
            }
        }
        Ok(())
    }

    /// Makes an object of it. A failure leaves nothing.
    pub(super) async fn finish(mut self) -> Result<()> {
        let finished = self.complete().await;
        match finished {
            Ok(()) => self.upload = None,
            Err(_) => self.abort().await,
        }
        finished
    }

    /// Takes it back.
    pub(super) async fn abort(mut self) {
        if let Some(upload) = self.upload.take() {
            abort(upload, mem::take(&mut self.on_their_way)).await;
        }
    }

    async fn complete(&mut self) -> Result<()> {
        if !self.filling.is_empty() {
            self.send().await?;
        }
        while let Some(sent) = self.on_their_way.join_next().await {
            sent??;
        }
        match &mut self.upload {
            Some(upload) => upload.complete().await.map(drop),
            None => Ok(()),
        }
    }

    async fn send(&mut self) -> Result<()> {
        while self.on_their_way.len() >= self.parts.at_once
            && let Some(sent) = self.on_their_way.join_next().await
        {
            sent??;
        }
        // Never closed, so never refused.
        let place = self.parts.places.clone().acquire_owned().await.ok();
        if let Some(upload) = &mut self.upload {
            let sending = upload.put_part(mem::take(&mut self.filling).into());
            self.on_their_way.spawn(async move {
                let sent = sending.await;
                drop(place);
                sent
            });
        }
        Ok(())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let (Some(upload), Ok(runtime)) = (self.upload.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(abort(upload, mem::take(&mut self.on_their_way)));
        }
    }
}

/// Only when no part is on its way any more: one that the store takes in afterwards would stay, and giving its request up
/// does not mean that the store has.
async fn abort(mut upload: Box<dyn MultipartUpload>, mut on_their_way: JoinSet<Result<()>>) {
    let arrived = async { while on_their_way.join_next().await.is_some() {} };
    if tokio::time::timeout(ARRIVING, arrived).await.is_err() {
        on_their_way.shutdown().await;
    }
    if let Err(error) = upload.abort().await {
        tracing::warn!(%error, "a refused upload could not be taken back");
    }
}
