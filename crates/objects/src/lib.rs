//! Object stores: a folder, or a bucket of S3 or of a server that implements its protocol.
//!
//! Paths in a store are chosen by the product and contain only letters, digits, `_`, `-`, `.` and `/`. A path with any
//! other character may be normalised or refused by a store.

mod address;
mod credentials;
mod s3;
mod store;
mod writer;

pub use address::StoreAddress;
pub use credentials::{BucketOptions, CredentialSettings};
pub use s3::{S3Config, Timeouts};
pub use store::{OpenError, Store, StoreConfig};
pub use writer::{ObjectWriter, PartLimits};
