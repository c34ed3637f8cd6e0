//! The address of an object store.

use std::path::PathBuf;
use std::str::FromStr;

/// The address of an object store. It contains no credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreAddress {
    /// `file:///folder`
    Folder(PathBuf),
    /// `s3://bucket/prefix`; the prefix may be empty.
    Bucket { bucket: String, prefix: String },
}

impl StoreAddress {
    /// Returns the address of the store with this name next to this one.
    #[must_use]
    pub fn sibling(&self, name: &str) -> Self {
        match self {
            Self::Folder(folder) => Self::Folder(folder.with_file_name(name)),
            Self::Bucket { bucket, prefix } => {
                let prefix =
                    prefix.rsplit_once('/').map_or_else(|| name.to_owned(), |(parent, _)| format!("{parent}/{name}"));
                Self::Bucket { bucket: bucket.clone(), prefix }
            }
        }
    }
}

impl FromStr for StoreAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("file://").filter(|path| path.starts_with('/')) {
            return Ok(Self::Folder(path.into()));
        }
        let (bucket, prefix) = match text.strip_prefix("s3://").map(|rest| (rest, rest.split_once('/'))) {
            Some((_, Some((bucket, prefix)))) => (bucket, prefix.trim_end_matches('/')),
            Some((bucket, None)) => (bucket, ""),
            None => return Err("must be file:///folder or s3://bucket/prefix"),
        };
        // The naming rules of S3. They also reject a query and credentials.
        let is_bucket_byte = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-');
        let is_prefix_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-' | b'_');
        if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(is_bucket_byte) {
            return Err("the bucket name must be 3 to 63 characters of a-z, 0-9, . and -");
        }
        let is_dot_segment = |segment: &str| matches!(segment, "" | "." | "..");
        if !prefix.bytes().all(is_prefix_byte) || !prefix.is_empty() && prefix.split('/').any(is_dot_segment) {
            return Err("the prefix must be segments of letters, digits, ., - and _, separated by /");
        }
        Ok(Self::Bucket { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_names_a_folder_or_a_bucket() {
        let bucket = |bucket: &str, prefix: &str| {
            Ok(StoreAddress::Bucket { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
        };
        assert_eq!("file:///var/objects".parse(), Ok(StoreAddress::Folder("/var/objects".into())));
        assert_eq!("s3://bundles".parse(), bucket("bundles", ""));
        assert_eq!("s3://bundles/a/b/".parse(), bucket("bundles", "a/b"));
        let sibling = |text: &str| text.parse::<StoreAddress>().map(|address| address.sibling("mail"));
        assert_eq!(sibling("file:///var/objects"), Ok(StoreAddress::Folder("/var/mail".into())));
        assert_eq!(sibling("s3://bundles"), bucket("bundles", "mail"));
        assert_eq!(sibling("s3://bundles/a/b"), bucket("bundles", "a/mail"));
        for text in ["", "file://relative", "ftp://host", "s3:///prefix", "s3://key:secret@bundles", "s3://b/../c"] {
            assert!(text.parse::<StoreAddress>().is_err(), "{text}");
        }
        assert!("s3://bundles/../others".parse::<StoreAddress>().is_err());
    }
}
