//! The statements of a call.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;

use super::error::{DatabaseError, Result};
use super::parameter::Parameter;
use super::refusal::refuse;

/// The largest number of statements in a batch.
const MAX_STATEMENTS: usize = 1000;
/// The protocol counts parameters in 16 bits.
const MAX_PARAMETERS: usize = 65_535;

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
    /// Reads and checks the statements of a call: a JSON array.
    ///
    /// # Errors
    /// Returns an error if the JSON is malformed, or if a statement can never work.
    pub fn read_all(body: &'a Bytes) -> Result<Vec<Self>> {
        let invalid = |message: &str| DatabaseError::InvalidArgument(message.to_owned());
        let statements: Vec<Self> = serde_json::from_slice(body).map_err(|_| invalid("The call is malformed."))?;
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
