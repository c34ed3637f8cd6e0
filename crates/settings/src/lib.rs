//! How a process reads its settings: environment variables over an optional TOML file that `SVC_CONFIG` names.
//!
//! A process states its settings once, with [`table!`], and reads them with [`Settings::from_env`]. Whatever is wrong
//! stops the start with one line that names the setting and never shows a value:
//!
//! - what is required and given nowhere, or given without a value; a value that does not parse;
//! - a name with a prefix that the process claims ([`Claim`]) and no setting of that name;
//! - a secret given both as `NAME` and as `NAME_FILE`, a file whose content is the secret, less one trailing newline.
//!
//! Several processes share one environment and one file, so names that another process claims are passed over. In the
//! file, whose keys are the same names, nothing but settings is expected: a key that does not begin with `SVC_` is
//! refused by everybody.
//!
//! ```
//! use settings::{Claim, Secret, Setting, Settings};
//! use std::net::SocketAddr;
//!
//! settings::table! {
//!     /// Where the mailer listens.
//!     LISTEN: SocketAddr = Setting::with_default("SVC_MAILER_LISTEN", "127.0.0.1:25");
//!     /// What the mailer signs with.
//!     KEY: Secret = Setting::required("SVC_MAILER_KEY");
//!     /// Where mail goes that nobody wants.
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
pub use networks::{Networks, counted};
pub use setting::{Need, Row, Setting};
pub use source::{Claim, Settings};
pub use value::{ByteSize, Flag, Secret, Value};
