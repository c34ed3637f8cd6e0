//! The credential of a client, and its renewal.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Error, Secret};

/// The future of [`CredentialSource::renew`].
pub type Renewal<'a> = Pin<Box<dyn Future<Output = Result<Option<Secret>, Error>> + Send + 'a>>;

/// Supplies a new credential after the API rejected one, such as an access token that expired.
pub trait CredentialSource: Send + Sync {
    /// Returns another credential, or `None` if there is no other one. With `None`, the call fails with the API's 401.
    /// If `renew` fails, the call fails with that error.
    fn renew<'a>(&'a self, rejected: &'a Secret) -> Renewal<'a>;
}

/// The credential that the clones of a client share.
#[derive(Clone)]
pub(crate) struct Credential {
    present: Arc<Mutex<Secret>>,
    source: Option<Arc<dyn CredentialSource>>,
}

impl Credential {
    pub(crate) fn new(secret: Secret, source: Option<Arc<dyn CredentialSource>>) -> Self {
        Self { present: Arc::new(Mutex::new(secret)), source }
    }

    pub(crate) fn present(&self) -> Secret {
        self.lock().clone()
    }

    /// Replaces a rejected credential. Returns `None` if there is no other one.
    pub(crate) async fn renew(&self, rejected: &Secret) -> Result<Option<Secret>, Error> {
        let present = self.present();
        if present != *rejected {
            return Ok(Some(present));
        }
        let Some(source) = &self.source else { return Ok(None) };
        let renewed = source.renew(rejected).await?;
        if let Some(renewed) = &renewed {
            self.lock().clone_from(renewed);
        }
        Ok(renewed)
    }

    fn lock(&self) -> MutexGuard<'_, Secret> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").finish_non_exhaustive()
    }
}
