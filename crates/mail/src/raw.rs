//! The raw messages: an object `<project>/<mail>` per mail.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use kernel::{MailId, ProjectId, Time};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _};
use objects::{ObjectWriter, Store};

use crate::error::MailError;

type Result<T> = std::result::Result<T, MailError>;

/// The bytes of a raw message.
pub type RawStream = BoxStream<'static, object_store::Result<Bytes>>;

/// The properties of a raw message.
pub(crate) struct RawStat {
    /// The length in bytes.
    pub size: u64,
    /// The time of the last upload, by the clock of the object store.
    pub written_at: Time,
}

/// The store of raw messages. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RawMails(Store);

impl RawMails {
    /// Creates a store of raw messages in an object store.
    #[must_use]
    pub const fn new(store: Store) -> Self {
        Self(store)
    }

    /// Stores the message of a sent mail.
    pub(crate) async fn put(&self, project: ProjectId, mail: MailId, message: Vec<u8>) -> Result<()> {
        let stored = self.objects().put(&path(project, mail), message.into()).await;
        stored.map(drop).map_err(MailError::MailStore)
    }

    /// Opens a message and returns its size and its bytes.
    pub(crate) async fn open(&self, project: ProjectId, mail: MailId) -> Result<(u64, RawStream)> {
        match self.objects().get(&path(project, mail)).await {
            Ok(object) => Ok((object.meta.size, object.into_stream())),
            Err(Error::NotFound { .. }) => Err(MailError::NoRawMessage),
            Err(error) => Err(MailError::MailStore(error)),
        }
    }

    /// Reads a whole message.
    pub(crate) async fn read(&self, project: ProjectId, mail: MailId) -> Result<Vec<u8>> {
        let (size, mut stream) = self.open(project, mail).await?;
        let mut message = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        while let Some(chunk) = stream.try_next().await.map_err(MailError::MailStore)? {
            message.extend_from_slice(&chunk);
        }
        Ok(message)
    }

    /// Deletes a message, if it is stored.
    pub(crate) async fn delete(&self, project: ProjectId, mail: MailId) -> Result<()> {
        match self.objects().delete(&path(project, mail)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(MailError::MailStore(error)),
        }
    }

    /// Lists the messages of a project whose id is not earlier than `since`, and that were written before `before`, if it
    /// is given. The names of objects are in the order of the ids, so the store does not list older ones. Reads the list
    /// as it is consumed, because a project can have millions of messages. They can be deleted in the meantime.
    pub(crate) fn list(
        &self,
        project: ProjectId,
        since: MailId,
        before: Option<Time>,
    ) -> BoxStream<'static, Result<MailId>> {
        let folder = Path::from_iter([project.to_string()]);
        let objects = self.objects().list_with_offset(Some(&folder), &path(project, since));
        let messages = objects.map_err(MailError::MailStore).try_filter_map(move |object| {
            let is_old = before.is_none_or(|before| Time::new(object.last_modified) < before);
            let id: Option<MailId> = object.location.filename().and_then(|name| name.parse().ok());
            std::future::ready(Ok(id.filter(|_| is_old)))
        });
        messages.boxed()
    }

    /// Stores the uploaded bytes of a received message, at most `limit` bytes. A repeated upload replaces the message.
    /// A failed upload leaves no object behind.
    pub(crate) async fn upload<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        &self,
        project: ProjectId,
        mail: MailId,
        limit: u64,
        mut body: impl Stream<Item = std::result::Result<Bytes, E>> + Unpin,
    ) -> Result<()> {
        let mut writer = ObjectWriter::new(self.0.objects.clone(), path(project, mail), self.0.parts.clone());
        let mut size = 0;
        while let Some(chunk) = body.next().await {
            let written = match chunk {
                Ok(chunk) => {
                    size += chunk.len() as u64;
                    if size > limit {
                        Err(MailError::MessageTooLarge { limit })
                    } else {
                        writer.write(&chunk).await.map_err(MailError::MailStore)
                    }
                }
                Err(error) => Err(MailError::UploadBroken(error.into())),
            };
            if let Err(error) = written {
                writer.abort().await;
                if matches!(error, MailError::MessageTooLarge { .. }) {
                    drain(&mut body, limit).await;
                }
                return Err(error);
            }
        }
        // This runs in a task, so that the upload completes even if the request is cancelled.
        let finished = tokio::spawn(writer.finish()).await.map_err(store::Error::inconsistent)?;
        finished.map_err(MailError::MailStore)
    }

    /// Returns the properties of a message, or `None` if it is not stored.
    pub(crate) async fn stat(&self, project: ProjectId, mail: MailId) -> Result<Option<RawStat>> {
        match self.objects().head(&path(project, mail)).await {
            Ok(meta) => Ok(Some(RawStat { size: meta.size, written_at: Time::new(meta.last_modified) })),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(MailError::MailStore(error)),
        }
    }

    fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.0.objects
    }
}

/// Reads and discards the rest of a body, at most `max` bytes, so that a client that is still sending can receive the
/// response.
pub(crate) async fn drain<E>(body: &mut (impl Stream<Item = std::result::Result<Bytes, E>> + Unpin), max: u64) {
    let mut drained = 0;
    while drained < max
        && let Some(Ok(chunk)) = body.next().await
    {
        drained += chunk.len() as u64;
    }
}

fn path(project: ProjectId, mail: MailId) -> Path {
    Path::from_iter([project.to_string(), mail.to_string()])
}
