//! The raw messages: an object `<project>/<mail>` per mail.
//!
//! The mail node uploads a received message before it names the project, so the upload is in `incoming/` until then.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use kernel::{MailId, ProjectId, Time};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _};
use objects::{ObjectWriter, Store};

use crate::error::MailError;

/// The folder of uploads whose project is not known yet.
const INCOMING: &str = "incoming";

type Result<T> = std::result::Result<T, MailError>;

/// The bytes of a raw message.
pub type RawStream = BoxStream<'static, object_store::Result<Bytes>>;

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

    /// Deletes a message. This is a no-op if it is not stored.
    pub(crate) async fn delete(&self, project: ProjectId, mail: MailId) -> Result<()> {
        self.delete_object(&path(project, mail)).await
    }

    /// Deletes all messages of a project.
    pub(crate) async fn delete_project(&self, project: ProjectId) -> Result<()> {
        let mut objects = self.objects().list(Some(&Path::from_iter([project.to_string()])));
        while let Some(object) = objects.try_next().await.map_err(MailError::MailStore)? {
            self.delete_object(&object.location).await?;
        }
        Ok(())
    }

    /// Stores the upload of a received message of at most `limit` bytes. A failed upload leaves no object behind.
    pub(crate) async fn upload<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        &self,
        mail: MailId,
        limit: u64,
        mut body: impl Stream<Item = std::result::Result<Bytes, E>> + Unpin,
    ) -> Result<()> {
        let mut writer = ObjectWriter::new(self.0.objects.clone(), incoming_path(mail), self.0.parts.clone());
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
        // Run in a task, which completes the upload even if the request is cancelled.
        let finished = tokio::spawn(writer.finish()).await.map_err(store::Error::inconsistent)?;
        finished.map_err(MailError::MailStore)
    }

    /// Moves an upload to its project, and returns the message's size. If an earlier call moved it, only returns the
    /// size.
    pub(crate) async fn assign(&self, project: ProjectId, mail: MailId) -> Result<Option<u64>> {
        let (from, to) = (incoming_path(mail), path(project, mail));
        match self.objects().rename(&from, &to).await {
            Ok(()) | Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(MailError::MailStore(error)),
        }
        match self.objects().head(&to).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(MailError::MailStore(error)),
        }
    }

    /// Deletes an upload that no project gets.
    pub(crate) async fn discard(&self, mail: MailId) -> Result<()> {
        self.delete_object(&incoming_path(mail)).await
    }

    /// Deletes the uploads that were last written before `before`.
    pub(crate) async fn discard_old(&self, before: Time) -> Result<usize> {
        let uploads = self.objects().list(Some(&Path::from(INCOMING)));
        let old = uploads.try_filter(|object| std::future::ready(Time::new(object.last_modified) < before));
        let old: Vec<_> = old.map_ok(|object| object.location).try_collect().await.map_err(MailError::MailStore)?;
        for upload in &old {
            self.delete_object(upload).await?;
        }
        Ok(old.len())
    }

    fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.0.objects
    }

    async fn delete_object(&self, path: &Path) -> Result<()> {
        match self.objects().delete(path).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(MailError::MailStore(error)),
        }
    }
}

/// Reads the rest of a body of at most `max` bytes, so that a client that is still sending receives the response.
async fn drain<E>(body: &mut (impl Stream<Item = std::result::Result<Bytes, E>> + Unpin), max: u64) {
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

fn incoming_path(mail: MailId) -> Path {
    Path::from_iter([INCOMING.to_owned(), mail.to_string()])
}
