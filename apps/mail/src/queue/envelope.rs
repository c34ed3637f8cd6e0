//! The envelope of a queued mail, and the format of the file with mail and envelope.
//!
//! A file consists of the bytes of the mail, the envelope as JSON, the length of the JSON in 8 bytes (little-endian)
//! and [`MAGIC`]. The envelope comes last, because it is known only after the whole mail has been received.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};

use serde::{Deserialize, Serialize};

const MAGIC: [u8; 8] = *b"svcmail1";
const TRAILER: u64 = 16;

/// The envelope of a mail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// The sender; empty for the null sender (`<>`).
    pub from: String,
    /// The decoded subject.
    pub subject: Option<String>,
    /// The result of SPF.
    pub spf: String,
    /// The time at which the mail was accepted (RFC 3339).
    pub received_at: String,
    /// The length of the mail's bytes in the file, without the trace fields.
    pub size: u64,
    /// One copy per project that receives the mail.
    pub copies: Vec<ProjectCopy>,
}

/// The copy of a mail that one project receives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectCopy {
    /// An id that starts with `mail_`.
    pub id: String,
    /// An id that starts with `prj_`.
    pub project: String,
    /// The recipients of this project.
    pub to: Vec<String>,
    /// The trace fields, which precede the bytes of the mail.
    pub trace: String,
}

impl Envelope {
    /// Returns the part of the file that follows the mail.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self)?;
        let length = u64::try_from(bytes.len()).map_err(io::Error::other)?;
        bytes.extend(length.to_le_bytes());
        bytes.extend(MAGIC);
        Ok(bytes)
    }

    /// Returns the projects of the copies.
    pub fn projects(&self) -> Vec<String> {
        self.copies.iter().map(|copy| copy.project.clone()).collect()
    }

    /// Reads the envelope in the file of a mail. The error has the kind `InvalidData` if the file is damaged.
    pub fn read(file: &mut File) -> io::Result<Self> {
        let damaged = |why: &'static str| io::Error::new(ErrorKind::InvalidData, why);
        let total = file.metadata()?.len();
        let before_trailer = total.checked_sub(TRAILER).ok_or_else(|| damaged("the file is too short"))?;
        file.seek(SeekFrom::Start(before_trailer))?;
        let (mut length, mut magic) = ([0; 8], [0; 8]);
        file.read_exact(&mut length)?;
        file.read_exact(&mut magic)?;
        let length = u64::from_le_bytes(length);
        if magic != MAGIC {
            return Err(damaged("the file has a wrong end"));
        }
        let start = before_trailer.checked_sub(length).ok_or_else(|| damaged("the envelope has a wrong length"))?;
        file.seek(SeekFrom::Start(start))?;
        let mut json = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        file.read_exact(&mut json)?;
        let envelope: Self = serde_json::from_slice(&json).map_err(|_| damaged("the envelope is malformed"))?;
        if envelope.size != start {
            return Err(damaged("the mail has a wrong length"));
        }
        Ok(envelope)
    }
}
