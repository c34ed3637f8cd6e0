//! The routers of both listeners. They depend only on the enabled sign-in methods.

use std::sync::{Arc, Mutex, PoisonError};

use actix_web::web::Data;

use crate::config::SignInMethods;
use crate::http::{Collisions, Router};
use crate::openapi::Reference;
use crate::{internal, pdns, v1};

/// The routers, and the document of the public one.
pub(crate) struct Routing {
    pub(crate) public: Router,
    pub(crate) internal: Router,
    pub(crate) reference: Data<Reference>,
}

/// The routers that this process has built.
static BUILT: Mutex<Vec<(SignInMethods, Arc<Routing>)>> = Mutex::new(Vec::new());

impl Routing {
    /// Returns the routers for these sign-in methods. The servers of a process share them, so that the schemas of all
    /// routes are derived and checked once.
    ///
    /// # Errors
    /// Returns the collisions between the routes of a listener.
    pub(crate) fn shared(sign_ins: SignInMethods) -> Result<Arc<Self>, Collisions> {
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, routing)) = built.iter().find(|(known, _)| *known == sign_ins) {
            return Ok(routing.clone());
        }
        let routing = Arc::new(Self::build(sign_ins)?);
        built.push((sign_ins, routing.clone()));
        Ok(routing)
    }

    fn build(sign_ins: SignInMethods) -> Result<Self, Collisions> {
        let public = v1::routes(sign_ins);
        Ok(Self {
            public: Router::of(&[&public, &pdns::routes()])?,
            internal: Router::of(&[&internal::routes()])?,
            reference: Data::new(Reference::of(public)),
        })
    }
}
