//! Archives written block by block, so that a test can write malformed ones.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

/// A tar archive under construction. [`Tar::gzip`] adds the end marker and compresses the archive.
#[derive(Default, Clone)]
pub struct Tar(pub Vec<u8>);

impl Tar {
    /// Creates the smallest bundle with worker code.
    #[must_use]
    pub fn valid() -> Self {
        Self::default().file("svc.json", "{}").file("worker/index.js", "export default {}")
    }

    /// Adds a file with a valid header.
    pub fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        self.entry(name.as_bytes(), b'0', content.as_ref())
    }

    /// Adds a directory.
    pub fn directory(self, name: &str) -> Self {
        self.entry(name.as_bytes(), b'5', b"")
    }

    /// Adds an entry with any name, type and content, and a matching header.
    pub fn entry(self, name: &[u8], kind: u8, content: &[u8]) -> Self {
        self.header(&header(name, kind, content.len() as u64)).content(content)
    }

    /// Adds a pax extended header with these records.
    pub fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let records: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
        self.entry(b"PaxHeaders/it", b'x', &records)
    }

    /// Adds the GNU entry with the name of the next entry.
    pub fn long_name(self, name: &str) -> Self {
        let content = [name.as_bytes(), b"\0"].concat();
        self.entry(b"././@LongLink", b'L', &content)
    }

    /// Adds a header without its content.
    pub fn header(self, header: &::tar::Header) -> Self {
        self.bytes(header.as_bytes())
    }

    /// Adds content with its padding.
    pub fn content(self, content: &[u8]) -> Self {
        let padding = content.len().next_multiple_of(512) - content.len();
        self.bytes(content).bytes(&vec![0; padding])
    }

    /// Adds bytes without a header and without padding.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Ends the archive, and compresses it.
    pub fn gzip(self) -> Vec<u8> {
        gzip(&self.bytes(&[0; 1024]).0)
    }
}

/// Returns a header with a correct checksum.
pub fn header(name: &[u8], kind: u8, size: u64) -> ::tar::Header {
    let mut header = ::tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.as_old_mut().linkflag = [kind];
    header.set_mode(0o644);
    header.set_size(size);
    header.set_cksum();
    header
}

/// Returns a header with an error that `corrupt` adds, and a correct checksum.
pub fn malformed_header(name: &str, corrupt: impl FnOnce(&mut ::tar::Header)) -> ::tar::Header {
    let mut header = header(name.as_bytes(), b'0', 0);
    corrupt(&mut header);
    header.set_cksum();
    header
}

/// Returns a pax record with its length.
pub fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
    let length =
        (1..).map(|digits| rest.len() + digits).find(|length| length.to_string().len() + rest.len() == *length);
    [length.unwrap().to_string().as_bytes(), &rest].concat()
}

/// Compresses the bytes.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
