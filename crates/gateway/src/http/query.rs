//! What a handler takes from the query.

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use kernel::{Code, Paging};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Describe, Extract, Operation};
use crate::problem::Problem;
use crate::shape::Fault;

/// `limit` and `cursor` of a list ordered by `K`.
#[derive(Debug)]
pub struct Pages<K>(pub Paging<K>);

impl<K> Describe for Pages<K> {
    fn describe(operation: &mut Operation) {
        let limit = json!({ "type": "integer", "minimum": 1, "default": Paging::<K>::DEFAULT });
        operation.parameter("query", "limit", "The most items to answer; more than 200 are cut to 200.", &limit);
        let cursor = json!({ "type": "string" });
        operation.parameter("query", "cursor", "The nextCursor of the page before.", &cursor);
        operation.code(&Code::BAD_REQUEST);
    }
}

impl<K: DeserializeOwned> Extract for Pages<K> {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        let mut faults = Vec::new();
        let limit = match single(request, "limit", &mut faults) {
            None => Paging::<K>::DEFAULT,
            Some(text) => match text.parse::<u64>() {
                Ok(limit) if limit >= 1 => u16::try_from(limit).map_or(Paging::<K>::MOST, |n| n.min(Paging::<K>::MOST)),
                _ => {
                    faults.push(fault("limit", "must be a whole number of at least 1"));
                    Paging::<K>::DEFAULT
                }
            },
        };
        let paging = match single(request, "cursor", &mut faults) {
            None => Paging { limit, after: None },
            Some(cursor) => Paging::after(limit, &cursor).unwrap_or_else(|error| {
                faults.push(fault("cursor", &error.to_string()));
                Paging { limit, after: None }
            }),
        };
        if faults.is_empty() { Ok(Self(paging)) } else { Err(Problem::faults(&faults)) }
    }
}

/// The value of a parameter that may be there once.
fn single(request: &HttpRequest, name: &str, faults: &mut Vec<Fault>) -> Option<String> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(request.query_string()).unwrap_or_default();
    let mut values = pairs.into_iter().filter(|(key, _)| key == name).map(|(_, value)| value);
    let value = values.next();
    if values.next().is_some() {
        faults.push(fault(name, "is there more than once"));
    }
    value
}

fn fault(path: &str, message: &str) -> Fault {
    Fault { path: path.to_owned(), message: message.to_owned() }
}
