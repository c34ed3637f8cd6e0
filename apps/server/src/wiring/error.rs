//! Conversion of a context's errors at a port.

use convergence::ConvergenceError;
use dns::DnsError;
use orgs::OrgError;

/// Converts the error of a context into a store error. The caller of a port cannot cause a rejection, so a rejection is
/// reported as an inconsistency.
pub(super) trait IntoStoreError {
    fn into_store_error(self) -> store::Error;
}

macro_rules! into_store_error {
    ($($error:ident),+) => { $(
        impl IntoStoreError for $error {
            fn into_store_error(self) -> store::Error {
                match self {
                    Self::Store(error) => error,
                    refusal => store::Error::inconsistent(refusal),
                }
            }
        }
    )+ };
}

into_store_error!(OrgError, ConvergenceError, DnsError);
