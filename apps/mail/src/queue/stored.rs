//! A mail of the queue that is read for its hand-over.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek as _};
use std::path::PathBuf;

use bytes::BytesMut;
use futures_util::stream::try_unfold;
use reqwest::Body;
use tokio::io::AsyncReadExt;

use super::{BLOCK, Envelope, blocking};

/// The maximum size of a mail that is read into memory.
const MAX_IN_MEMORY: u64 = 256 << 10;

/// The node failed to read the file of a mail during its upload.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ReadError(#[from] io::Error);

/// A mail of the queue.
pub struct StoredMail {
    pub envelope: Envelope,
    path: PathBuf,
    /// The bytes of the mail. `None` if it is large: then its bytes are streamed from the file.
    content: Option<Vec<u8>>,
}

impl StoredMail {
    /// Reads the file of a mail. The error has the kind `InvalidData` if the file is damaged.
    pub async fn open(path: PathBuf) -> io::Result<Self> {
        blocking(move || {
            let mut file = File::open(&path)?;
            let envelope = Envelope::read(&mut file)?;
            let content = (envelope.size <= MAX_IN_MEMORY).then(|| {
                file.rewind()?;
                let mut content = Vec::new();
                Read::take(file, envelope.size).read_to_end(&mut content)?;
                Ok::<_, io::Error>(content)
            });
            Ok(Self { envelope, path, content: content.transpose()? })
        })
        .await
    }

    /// Returns the trace fields, followed by the bytes of the mail, which are the first bytes of the file.
    pub async fn body(&self, trace: &str) -> io::Result<Body> {
        if let Some(content) = &self.content {
            return Ok([trace.as_bytes(), content].concat().into());
        }
        let file = tokio::fs::File::open(&self.path).await?;
        let trace = Cursor::new(trace.to_owned().into_bytes());
        let reader = AsyncReadExt::chain(trace, file.take(self.envelope.size));
        Ok(Body::wrap_stream(try_unfold(reader, |mut reader| async move {
            let mut block = BytesMut::with_capacity(BLOCK);
            let length = reader.read_buf(&mut block).await.map_err(ReadError)?;
            Ok::<_, ReadError>((length > 0).then(|| (block.freeze(), reader)))
        })))
    }
}
