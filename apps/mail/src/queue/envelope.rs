//! The envelope of a queued mail, and the file that contains mail and envelope.
//!
//! A file consists of the bytes of the mail, the envelope as JSON, the length of the JSON in 8 bytes (little-endian)
//! and [`MAGIC`]. The envelope is last, because it is complete only when the whole mail has been received.

use std::io::{self, ErrorKind, SeekFrom};

use serde::{Deserialize, Serialize};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

const MAGIC: [u8; 8] = *b"svcmail1";
const TRAILER: u64 = 16;

/// The envelope of a mail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// The sender; empty for the null sender.
    pub from: String,
    /// The decoded subject.
    pub subject: Option<String>,
    /// The result of SPF.
    pub spf: String,
    /// The time at which the mail was accepted (RFC 3339).
    pub received_at: String,
    /// The length of the bytes in the file, without trace fields.
    pub size: u64,
    /// A copy for each project.
    pub copies: Vec<ProjectCopy>,
}

/// The copy of a mail for a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectCopy {
    /// An id that starts with `mail_`.
    pub id: String,
    /// An id that starts with `prj_`.
    pub project: String,
    /// The recipients of this project.
    pub to: Vec<String>,
    /// The trace fields, which precede the bytes.
    pub trace: String,
}

impl Envelope {
    /// Returns the end of the file.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self)?;
        let length = u64::try_from(bytes.len()).map_err(io::Error::other)?;
        bytes.extend(length.to_le_bytes());
        bytes.extend(MAGIC);
        Ok(bytes)
    }

    /// Reads the envelope in a file. The error has the kind `InvalidData` if the file is damaged.
    pub async fn read(file: &mut File) -> io::Result<Self> {
        let damaged = |why: &'static str| io::Error::new(ErrorKind::InvalidData, why);
        let total = file.metadata().await?.len();
        let before_trailer = total.checked_sub(TRAILER).ok_or_else(|| damaged("the file is too short"))?;
        file.seek(SeekFrom::Start(before_trailer)).await?;
        let length = file.read_u64_le().await?;
        let mut magic = [0; 8];
        file.read_exact(&mut magic).await?;
        if magic != MAGIC {
            return Err(damaged("the file has a wrong end"));
        }
        let start = before_trailer.checked_sub(length).ok_or_else(|| damaged("the envelope has a wrong length"))?;
        file.seek(SeekFrom::Start(start)).await?;
        let mut json = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        file.read_exact(&mut json).await?;
        let envelope: Self = serde_json::from_slice(&json).map_err(|_| damaged("the envelope is malformed"))?;
        if envelope.size != start {
            return Err(damaged("the mail has a wrong length"));
        }
        file.rewind().await?;
        Ok(envelope)
    }
}
