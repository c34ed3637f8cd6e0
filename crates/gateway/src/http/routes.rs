//! The table of routes: what is served and what is documented are the same entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix_web::http::Method;
use actix_web::{HttpRequest, HttpResponse, web};
use futures_util::future::LocalBoxFuture;

use super::endpoint::{Endpoint, run};
use super::{Operation, Place, once};
use crate::problem::Problem;

type Run = dyn Fn(HttpRequest, web::Payload) -> LocalBoxFuture<'static, HttpResponse> + Send + Sync;

/// The routes of one listener.
#[derive(Clone, Default)]
pub struct Routes {
    entries: Vec<(Operation, Arc<Run>)>,
}

impl Routes {
    /// Adds a `GET`; `HEAD` comes with it.
    pub fn get<A: 'static>(&mut self, path: &'static str, handler: impl Endpoint<A>) -> &mut Operation {
        self.add(Method::GET, path, handler)
    }

    /// Adds a `POST`.
    pub fn post<A: 'static>(&mut self, path: &'static str, handler: impl Endpoint<A>) -> &mut Operation {
        self.add(Method::POST, path, handler)
    }

    /// Adds a `PUT`.
    pub fn put<A: 'static>(&mut self, path: &'static str, handler: impl Endpoint<A>) -> &mut Operation {
        self.add(Method::PUT, path, handler)
    }

    /// Adds a `PATCH`.
    pub fn patch<A: 'static>(&mut self, path: &'static str, handler: impl Endpoint<A>) -> &mut Operation {
        self.add(Method::PATCH, path, handler)
    }

    /// Adds a `DELETE`.
    pub fn delete<A: 'static>(&mut self, path: &'static str, handler: impl Endpoint<A>) -> &mut Operation {
        self.add(Method::DELETE, path, handler)
    }

    /// Every route, as described.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.entries.iter().map(|(operation, _)| operation)
    }

    fn add<A: 'static, E: Endpoint<A>>(&mut self, method: Method, path: &'static str, handler: E) -> &mut Operation {
        let mut operation = Operation::new(method, path, std::any::type_name::<E>());
        E::describe(&mut operation);
        if operation.method == Method::POST && !matches!(operation.place, Place::Open | Place::Node) {
            once::describe(&mut operation);
        }
        let long = operation.long;
        let answer = move |request: HttpRequest, payload: web::Payload| -> LocalBoxFuture<'static, HttpResponse> {
            Box::pin(run(handler.clone(), long, request, payload.into_inner()))
        };
        self.entries.push((operation, Arc::new(answer)));
        // Just pushed.
        #[expect(clippy::unwrap_used, reason = "an entry was pushed on the line above")]
        let (operation, _) = self.entries.last_mut().unwrap();
        operation
    }

    /// Serves them all; another method of a known path is answered with `Allow`.
    pub fn configure(&self, app: &mut web::ServiceConfig) {
        let mut paths: BTreeMap<&'static str, Vec<(Method, Arc<Run>)>> = BTreeMap::new();
        for (operation, run) in &self.entries {
            let methods = paths.entry(operation.path).or_default();
            methods.push((operation.method.clone(), run.clone()));
            if operation.method == Method::GET {
                methods.push((Method::HEAD, run.clone()));
            }
        }
        for (path, methods) in paths {
            let allowed = methods.iter().map(|(method, _)| method.as_str()).collect::<Vec<_>>().join(", ");
            let mut resource = web::resource(path);
            for (method, run) in methods {
                resource = resource.route(web::method(method).to(move |request, payload| run(request, payload)));
            }
            let refuse = move |request: HttpRequest| {
                let response = Problem::method_not_allowed(&allowed).respond(&request);
                async move { response }
            };
            app.service(resource.default_service(web::to(refuse)));
        }
        app.default_service(web::to(async |request: HttpRequest| Problem::not_found().respond(&request)));
    }
}
