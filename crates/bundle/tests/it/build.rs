//! Archives block by block, so that a test can write what no tool would.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use bundle::{Contents, Fault, Limit, Limits, Reason};
use flate2::Compression;
use flate2::write::GzEncoder;

pub const PLENTY: Limits = Limits { compressed: 1 << 24, unpacked: 1 << 24, entries: 1000 };

/// A tar that grows by entries. [`Tar::gzip`] adds the end marker and packs it.
#[derive(Default, Clone)]
pub struct Tar(pub Vec<u8>);

impl Tar {
    /// The smallest bundle with worker code.
    pub fn valid() -> Self {
        Self::default().file("svc.json", "{}").file("worker/index.js", "export default {}")
    }

    pub fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        self.entry(name.as_bytes(), b'0', content.as_ref())
    }

    pub fn directory(self, name: &str) -> Self {
        self.entry(name.as_bytes(), b'5', b"")
    }

    /// An entry of any name, type and content, with a header that fits.
    pub fn entry(self, name: &[u8], kind: u8, content: &[u8]) -> Self {
        self.header(&header(name, kind, content.len() as u64)).content(content)
    }

    /// `x`, with the lengths of the records filled in.
    pub fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let records: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
        self.entry(b"PaxHeaders/it", b'x', &records)
    }

    pub fn long_name(self, name: &str) -> Self {
        let content = [name.as_bytes(), b"\0"].concat();
        self.entry(b"././@LongLink", b'L', &content)
    }

    pub fn header(self, header: &tar::Header) -> Self {
        self.bytes(header.as_bytes())
    }

    /// Content with its padding.
    pub fn content(self, content: &[u8]) -> Self {
        let padding = content.len().next_multiple_of(512) - content.len();
        self.bytes(content).bytes(&vec![0; padding])
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn gzip(self) -> Vec<u8> {
        gzip(&self.bytes(&[0; 1024]).0)
    }
}

pub fn header(name: &[u8], kind: u8, size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.as_old_mut().linkflag = [kind];
    header.set_mode(0o644);
    header.set_size(size);
    header.set_cksum();
    header
}

/// A header with one thing wrong, and a checksum that is right nevertheless.
pub fn odd_header(name: &str, spoil: impl FnOnce(&mut tar::Header)) -> tar::Header {
    let mut header = header(name.as_bytes(), b'0', 0);
    spoil(&mut header);
    header.set_cksum();
    header
}

pub fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
    let length =
        (1..).map(|digits| rest.len() + digits).find(|length| length.to_string().len() + rest.len() == *length);
    [length.unwrap().to_string().as_bytes(), &rest].concat()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Reads a bundle and keeps what was visited, by path.
pub fn collect(bundle: impl Read, limits: &Limits) -> Result<(Contents, BTreeMap<String, Vec<u8>>), Fault> {
    let mut files = BTreeMap::new();
    let contents = bundle::read(bundle, limits, |file| {
        let mut content = Vec::new();
        file.content.read_to_end(&mut content)?;
        assert_eq!(content.len() as u64, file.size, "{}", file.path);
        assert_eq!(files.insert(file.path.to_owned(), content), None, "{} was visited twice", file.path);
        Ok(())
    })?;
    Ok((contents, files))
}

pub fn accepted(bundle: &[u8]) -> (Contents, BTreeMap<String, Vec<u8>>) {
    collect(bundle, &PLENTY).unwrap()
}

pub fn refused(bundle: &[u8]) -> (Reason, Option<String>) {
    match collect(bundle, &PLENTY) {
        Err(Fault::Invalid { reason, entry }) => (reason, entry),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// Which limit the bundle is over.
pub fn over(bundle: impl Read, limits: &Limits) -> (Limit, u64) {
    match collect(bundle, limits) {
        Err(Fault::TooLarge { limit, max }) => (limit, max),
        other => panic!("expected a bundle over a limit, got {other:?}"),
    }
}
