//! Settings of a process: environment variables over an optional TOML file that `SVC_CONFIG` names.
//!
//! A process declares its settings once, with [`table!`], and reads them with [`Settings::from_env`]. An invalid
//! setting prevents the start. The error is one line that names the setting and never shows a value. These settings are
//! invalid:
//!
//! - a required setting that is missing, an empty value, or a value that does not parse;
//! - an unknown name with a prefix that the process claims ([`Claim`]);
//! - a secret that is set both as `NAME` and as `NAME_FILE`. `NAME_FILE` is the path of a file with the secret, whose
//!   trailing newline is ignored.
//!
//! Several processes share one environment and one file, so a process ignores the names that another process claims.
//! The keys of the file are the same names. Every process rejects a key that does not begin with `SVC_`.
//!
//! ```
//! use settings::{Claim, Secret, Setting, Settings};
//! use std::net::SocketAddr;
//!
//! settings::table! {
//!     /// The listen address of the mailer.
//!     LISTEN: SocketAddr = Setting::with_default("SVC_MAILER_LISTEN", "127.0.0.1:25");
//!     /// The signing key of the mailer.
//!     KEY: Secret = Setting::required("SVC_MAILER_KEY");
//!     /// The address that receives undeliverable mail.
//!     SINK: Option<SocketAddr> = Setting::optional("SVC_MAILER_SINK");
//! }
//! const CLAIM: Claim = Claim { prefixes: &["SVC_MAILER_"], except: &[] };
//!
//! let environment = [("SVC_MAILER_KEY".to_owned(), "hush".to_owned())];
//! let settings = Settings::read(TABLE, &CLAIM, environment)?;
//! assert_eq!(settings.get(&LISTEN)?.port(), 25);
//! assert_eq!(settings.get(&KEY)?.reveal(), "hush");
//! assert_eq!(settings.opt(&SINK)?, None);
//! # Ok::<(), settings::Error>(())
//! ```

mod error;
mod markdown;
mod networks;
mod setting;
mod source;
mod value;

pub use error::Error;
pub use markdown::markdown;
pub use networks::{Networks, is_loopback_host, rate_limit_key};
pub use setting::{Requirement, Row, Setting};
pub use source::{Claim, Settings};
pub use value::{ByteSize, Flag, Interval, Secret, Value};
