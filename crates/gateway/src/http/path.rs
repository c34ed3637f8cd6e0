//! Typed path parameters.

use std::str::FromStr;

use actix_web::HttpRequest;
use actix_web::dev::Payload;

use super::{Describe, Extract, Operation, PathParameter, RouteMatch};
use crate::problem::Problem;

/// The last parameter of the path, or a tuple of the last ones. If a value does not parse, the response is the error of
/// its type, by default 404.
#[derive(Debug)]
pub struct Path<T>(pub T);

/// Parameters that end a path.
pub trait PathParameters: Sized {
    /// Describes the parameters, in the path's order.
    fn describe(operation: &mut Operation);

    /// Parses the parameters from all values of the path.
    ///
    /// # Errors
    /// Returns the error of the first value that does not parse.
    fn parse(values: &[&str]) -> Result<Self, Problem>;
}

impl<T: PathParameter + FromStr> PathParameters for T {
    fn describe(operation: &mut Operation) {
        operation.claim_parameter::<T>();
    }

    fn parse(values: &[&str]) -> Result<Self, Problem> {
        parse_value(values.last().ok_or_else(Problem::not_found)?)
    }
}

impl<A: PathParameter + FromStr, B: PathParameter + FromStr> PathParameters for (A, B) {
    fn describe(operation: &mut Operation) {
        operation.claim_parameter::<A>();
        operation.claim_parameter::<B>();
    }

    fn parse(values: &[&str]) -> Result<Self, Problem> {
        let [a, b] = values.last_chunk().ok_or_else(Problem::not_found)?;
        Ok((parse_value(a)?, parse_value(b)?))
    }
}

impl<A: PathParameter + FromStr, B: PathParameter + FromStr, C: PathParameter + FromStr> PathParameters for (A, B, C) {
    fn describe(operation: &mut Operation) {
        operation.claim_parameter::<A>();
        operation.claim_parameter::<B>();
        operation.claim_parameter::<C>();
    }

    fn parse(values: &[&str]) -> Result<Self, Problem> {
        let [a, b, c] = values.last_chunk().ok_or_else(Problem::not_found)?;
        Ok((parse_value(a)?, parse_value(b)?, parse_value(c)?))
    }
}

fn parse_value<T: PathParameter + FromStr>(value: &str) -> Result<T, Problem> {
    value.parse().map_err(|_| T::parse_error())
}

impl<T: PathParameters> Describe for Path<T> {
    fn describe(operation: &mut Operation) {
        T::describe(operation);
    }
}

impl<T: PathParameters> Extract for Path<T> {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        let matched = RouteMatch::of(request);
        let values: Vec<&str> = matched.iter().flat_map(|matched| matched.values()).collect();
        T::parse(&values).map(Self)
    }
}

/// Implements [`PathParameter`] for types, with the type's own schema or with that of the type after `as`.
macro_rules! path_parameters {
    (@schema $type:ty) => { <$type as utoipa::PartialSchema>::schema() };
    (@schema $type:ty, $schema:ty) => { <$schema as utoipa::PartialSchema>::schema() };
    ($($type:ty $(as $schema:ty)?: $description:literal $(, $example:literal)?;)+) => { $(
        impl $crate::http::PathParameter for $type {
            const DESCRIPTION: &'static str = $description;

            fn schema() -> serde_json::Value {
                serde_json::to_value($crate::http::path_parameters!(@schema $type $(, $schema)?)).unwrap_or_default()
            }

            $(
                fn example() -> Option<serde_json::Value> {
                    Some($example.into())
                }
            )?
        }
    )+ };
}
pub(crate) use path_parameters;

/// Declares path parameters that accept any segment. The context parses them. The document describes them as any
/// segment, or with the schema of the type after `as`.
macro_rules! text_path_parameters {
    (@schema) => { serde_json::json!({ "type": "string", "pattern": $crate::http::SEGMENT }) };
    (@schema $schema:ty) => {
        serde_json::to_value(<$schema as utoipa::PartialSchema>::schema()).unwrap_or_default()
    };
    ($($name:ident $(as $schema:ty)?: $description:literal $(, $example:literal)?;)+) => { $(
        #[doc = $description]
        #[derive(Debug)]
        pub(crate) struct $name(pub(crate) String);

        impl std::str::FromStr for $name {
            type Err = std::convert::Infallible;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Ok(Self(text.to_owned()))
            }
        }

        impl $crate::http::PathParameter for $name {
            const DESCRIPTION: &'static str = $description;

            fn schema() -> serde_json::Value {
                $crate::http::text_path_parameters!(@schema $($schema)?)
            }

            $(
                fn example() -> Option<serde_json::Value> {
                    Some($example.into())
                }
            )?
        }
    )+ };
}
pub(crate) use text_path_parameters;
