//! The statements of a call.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;

use super::elements::Elements;
use super::error::{DatabaseError, Result};
use super::parameter::Parameter;
use super::refusal::refuse;

/// The largest number of statements in a batch.
const MAX_STATEMENTS: usize = 1000;
/// The protocol counts parameters in 16 bits.
const MAX_PARAMETERS: usize = 65_535;
const MALFORMED: &str = "The call is malformed.";

/// A statement with its parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement<'a> {
    #[serde(borrow)]
    pub text: Cow<'a, str>,
    #[serde(borrow)]
    pub params: Vec<Parameter<'a>>,
}

impl<'a> Statement<'a> {
    /// Returns the memory that the parsed statements need in addition to the JSON. A growing array takes up to twice the
    /// size of its elements.
    ///
    /// # Errors
    /// Returns an error if the JSON is malformed.
    pub fn parsed_bytes(body: &[u8]) -> Result<usize> {
        let Elements(count) = serde_json::from_slice(body).map_err(|_| invalid(MALFORMED))?;
        Ok(count * 2 * size_of::<Parameter<'_>>())
    }

    /// Reads and checks the statements of a call: a JSON array.
    ///
    /// # Errors
    /// Returns an error if the JSON is malformed, or if a statement can never work.
    pub fn read_all(body: &'a Bytes) -> Result<Vec<Self>> {
        let statements: Vec<Self> = serde_json::from_slice(body).map_err(|_| invalid(MALFORMED))?;
        if statements.len() > MAX_STATEMENTS {
            return Err(invalid("A batch can have at most 1,000 statements."));
        }
        for Self { text, params } in &statements {
            if text.contains('\0') {
                return Err(invalid("A statement must not contain U+0000."));
            }
            if params.len() > MAX_PARAMETERS {
                return Err(invalid("A statement can have at most 65,535 parameters."));
            }
            if let Some(refusal) = refuse(text) {
                return Err(refusal);
            }
        }
        Ok(statements)
    }
}

fn invalid(message: &str) -> DatabaseError {
    DatabaseError::InvalidArgument(message.to_owned())
}
