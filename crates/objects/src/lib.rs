//! Object stores: a folder, or a bucket of S3 or of a server that implements its protocol.
//!
//! The product chooses all paths in a store. They contain only letters, digits, `_`, `-`, `.` and `/`, because a store
//! may normalize or refuse a path with any other character.

mod address;
mod credentials;
mod parts;
mod s3;
mod store;
mod writer;

pub use address::StoreAddress;
pub use credentials::{BucketOptions, CredentialSettings};
pub use parts::PartLimits;
pub use s3::{S3Config, Timeouts};
pub use store::{OpenError, Store, StoreConfig};
pub use writer::ObjectWriter;
