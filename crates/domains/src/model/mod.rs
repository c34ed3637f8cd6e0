//! The types of the API (contract section 7).

mod charge;
mod contact;
mod country;
mod domain;
mod name;

pub use charge::*;
pub use contact::*;
pub use country::CountryCode;
pub use domain::*;
pub use name::{DomainName, InvalidDomainName};
