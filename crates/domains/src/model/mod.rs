//! The types of the API (contract section 7).

mod contact;
mod country;
mod domain;
mod name;

pub use contact::*;
pub use country::CountryCode;
pub use domain::*;
pub use name::{DomainName, InvalidDomainName};
