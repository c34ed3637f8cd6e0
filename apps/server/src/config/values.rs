//! Value types of the control plane's settings.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The transport of desired state and reports between the control plane and the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreLink {
    /// The Postgres of this installation.
    Embedded,
    /// No nodes.
    Off,
}

/// An http or https URL without a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url(pub(super) String);

/// Comma-separated IP addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses(pub(super) Vec<IpAddr>);

/// Comma-separated socket addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sockets(pub(super) Vec<SocketAddr>);

/// The address of a bundle store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleAddress {
    /// `file:///folder`
    Folder(PathBuf),
    /// `s3://bucket/prefix`
    S3 { bucket: String, prefix: String },
}

impl FromStr for Url {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        match rest {
            Some(rest) if !rest.is_empty() && !rest.contains(['@', '?', '#', '*', ' ']) && !rest.starts_with('/') => {
                Ok(Self(text.trim_end_matches('/').to_owned()))
            }
            _ => Err("not an http or https URL without credentials, query and fragment"),
        }
    }
}

impl FromStr for Addresses {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split(',').map(|address| address.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Sockets {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split(',').map(|socket| socket.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for CoreLink {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "embedded" => Ok(Self::Embedded),
            "off" => Ok(Self::Off),
            etcd if etcd.starts_with("etcd://") => Err("etcd is not supported in this release; use embedded or off"),
            _ => Err("must be embedded or off"),
        }
    }
}

impl FromStr for BundleAddress {
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
        Ok(Self::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}
