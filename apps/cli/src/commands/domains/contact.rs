//! The contact of a purchase, from a file or the terminal.

use std::fs;
use std::path::Path;

use client::types::Contact;
use serde::Deserialize;

use crate::error::CliError;
use crate::prompt;

/// The contact of a file, which has the members of the API.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ContactFile {
    first_name: String,
    last_name: String,
    organization: Option<String>,
    email: String,
    phone: String,
    street: String,
    city: String,
    state: Option<String>,
    postal_code: String,
    country: String,
}

/// Reads the contact from a file, or asks for it.
pub fn read(file: Option<&Path>) -> Result<Contact, CliError> {
    let Some(path) = file else { return ask() };
    let text = fs::read_to_string(path).map_err(CliError::file(path))?;
    let contact: ContactFile =
        serde_json::from_str(&text).map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))?;
    let ContactFile { first_name, last_name, organization, email, phone, street, city, state, postal_code, country } =
        contact;
    Ok(Contact { first_name, last_name, organization, email, phone, street, city, state, postal_code, country })
}

fn ask() -> Result<Contact, CliError> {
    let required = |label: &str| {
        let missing = || {
            CliError::Usage(format!(
                "the contact lacks \"{label}\": enter it in a terminal, or use --contact FILE, a file that `svc domains buy \
                 --help` describes"
            ))
        };
        prompt::line(label)?.ok_or_else(missing)
    };
    Ok(Contact {
        first_name: required("First name")?,
        last_name: required("Last name")?,
        organization: prompt::line("Organization (optional)")?,
        email: required("Email, which receives the verification mail of the registry")?,
        phone: required("Phone, such as +4930123456")?,
        street: required("Street and number")?,
        city: required("City")?,
        state: prompt::line("State or province (optional)")?,
        postal_code: required("Postal code")?,
        country: required("Country, such as DE")?,
    })
}
