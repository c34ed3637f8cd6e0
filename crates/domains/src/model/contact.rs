//! The contact of a domain. The service stores it only in sealed form and never logs it.

use kernel::Email;
use serde::{Deserialize, Serialize};
use validator::Validate;

use super::CountryCode;

kernel::text! {
    /// A single-line text in a contact.
    pub struct ContactText matches r"^[^\x00-\x1f\x7f-\x9f]{1,255}$"
        means "1 to 255 characters without control characters" example "Ada"
}

kernel::text! {
    /// A telephone number.
    pub struct Phone matches r"^\+[1-9][0-9]{6,14}$"
        means "a telephone number in the format E.164: +, the country code and the number, 7 to 15 digits in all"
        example "+4930123456"
}

/// The registrant of a domain, who is also its administrative, technical and billing contact.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Contact {
    pub first_name: ContactText,
    pub last_name: ContactText,
    /// The organization, if the registrant is not a person.
    #[serde(default)]
    pub organization: Option<ContactText>,
    /// The registry sends its verification mail to this address.
    pub email: Email,
    pub phone: Phone,
    pub street: ContactText,
    pub city: ContactText,
    /// The state or province, where addresses have one.
    #[serde(default)]
    pub state: Option<ContactText>,
    pub postal_code: ContactText,
    pub country: CountryCode,
}

/// Omits all values of the contact.
impl std::fmt::Debug for Contact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contact").finish_non_exhaustive()
    }
}
