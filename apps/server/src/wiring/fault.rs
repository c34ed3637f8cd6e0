//! Errors across a port.

use convergence::ConvergenceError;
use dns::DnsError;
use orgs::OrgError;

/// A caller of a port cannot cause a refusal: a refusal is an inconsistency.
pub(super) trait Fault {
    fn fault(self) -> store::Error;
}

macro_rules! faults {
    ($($error:ident),+) => { $(
        impl Fault for $error {
            fn fault(self) -> store::Error {
                match self {
                    Self::Store(error) => error,
                    refused => store::Error::inconsistent(refused),
                }
            }
        }
    )+ };
}

faults!(OrgError, ConvergenceError, DnsError);
