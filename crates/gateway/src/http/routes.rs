//! The registry of routes. Each entry is both served and documented.

use std::rc::Rc;
use std::sync::Arc;

use actix_web::http::Method;
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, web};
use futures_util::future::LocalBoxFuture;

use super::collisions::{self, Collisions};
use super::endpoint::{Endpoint, run};
use super::route_trie::RouteTrie;
use super::schemas::Schemas;
use super::{Operation, PolicyTarget, idempotency};
use crate::problem::{ErrorFormat, ErrorFormats, Problem, error_format_of};

type Run = dyn Fn(HttpRequest, web::Payload) -> LocalBoxFuture<'static, HttpResponse> + Send + Sync;

/// The handlers of a path, by method.
#[derive(Default)]
struct Methods(Vec<(Method, Arc<Run>)>);

/// The router of an application.
#[derive(Clone)]
pub struct Router {
    trie: Arc<RouteTrie<Methods>>,
    formats: web::Data<ErrorFormats>,
    schemas: web::Data<Schemas>,
}

/// The routes of one listener.
#[derive(Clone, Default)]
pub struct Routes {
    areas: Vec<(&'static str, &'static str)>,
    entries: Vec<(Operation, Arc<Run>)>,
    error_formats: Vec<(&'static str, &'static dyn ErrorFormat)>,
}

/// A group of routes in [`Routes`], whose operations share a tag and an id prefix.
pub struct Area<'a> {
    name: &'static str,
    routes: &'a mut Routes,
}

impl Routes {
    /// Adds an area. `name` is the tag of its operations in the OpenAPI document, and `description` is the tag's
    /// description.
    pub fn area(&mut self, name: &'static str, description: &'static str) -> Area<'_> {
        self.areas.push((name, description));
        Area { name, routes: self }
    }

    /// Sets the error format of `prefix` and of all paths below it. The default is the envelope.
    pub fn error_format(&mut self, prefix: &'static str, format: &'static dyn ErrorFormat) {
        self.error_formats.push((prefix, format));
    }

    /// Returns the error format of a path.
    pub(crate) fn error_format_of(&self, path: &str) -> &'static dyn ErrorFormat {
        error_format_of(&self.error_formats, path)
    }

    /// Returns all areas with their descriptions.
    pub fn areas(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.areas.iter().copied()
    }

    /// Returns the descriptions of all routes.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.entries.iter().map(|(operation, _)| operation)
    }
}

impl Area<'_> {
    /// Adds a `GET`, which also serves `HEAD`. The operation's id is `area.name`.
    pub fn get<A: 'static>(&mut self, name: &str, path: &'static str, handler: impl Endpoint<A>) -> &mut Operation {
        self.add(Method::GET, name, path, handler)
    }

    /// Adds a `POST`.
    pub fn post<A: 'static>(&mut self, name: &str, path: &'static str, handler: impl Endpoint<A>) -> &mut Operation {
        self.add(Method::POST, name, path, handler)
    }

    /// Adds a `PUT`.
    pub fn put<A: 'static>(&mut self, name: &str, path: &'static str, handler: impl Endpoint<A>) -> &mut Operation {
        self.add(Method::PUT, name, path, handler)
    }

    /// Adds a `PATCH`.
    pub fn patch<A: 'static>(&mut self, name: &str, path: &'static str, handler: impl Endpoint<A>) -> &mut Operation {
        self.add(Method::PATCH, name, path, handler)
    }

    /// Adds a `DELETE`.
    pub fn delete<A: 'static>(&mut self, name: &str, path: &'static str, handler: impl Endpoint<A>) -> &mut Operation {
        self.add(Method::DELETE, name, path, handler)
    }

    fn add<A: 'static, E: Endpoint<A>>(
        &mut self,
        method: Method,
        name: &str,
        path: &'static str,
        handler: E,
    ) -> &mut Operation {
        let mut operation = Operation::new(method, path, self.name, name);
        E::describe(&mut operation);
        if operation.method == Method::POST && !matches!(operation.target, PolicyTarget::Open | PolicyTarget::Node) {
            idempotency::describe(&mut operation);
        }
        let limits = operation.limits();
        let handler = move |request: HttpRequest, payload: web::Payload| -> LocalBoxFuture<'static, HttpResponse> {
            Box::pin(run(handler.clone(), limits, request, payload.into_inner()))
        };
        let entries = &mut self.routes.entries;
        entries.push((operation, Arc::new(handler)));
        #[expect(clippy::unwrap_used, reason = "an entry was pushed on the line above")]
        let (operation, _) = entries.last_mut().unwrap();
        operation
    }
}

impl Router {
    /// Builds the router of these routes.
    ///
    /// # Errors
    /// Returns the collisions between the routes.
    pub fn of(all: &[&Routes]) -> Result<Self, Collisions> {
        collisions::check(all)?;
        let mut trie = RouteTrie::<Methods>::default();
        for (operation, run) in all.iter().flat_map(|routes| &routes.entries) {
            let Methods(methods) = trie.entry(operation.path);
            methods.push((operation.method.clone(), run.clone()));
            if operation.method == Method::GET {
                methods.push((Method::HEAD, run.clone()));
            }
        }
        let formats = all.iter().flat_map(|routes| routes.error_formats.iter().copied()).collect();
        Ok(Self {
            trie: Arc::new(trie),
            formats: web::Data::new(ErrorFormats(formats)),
            schemas: web::Data::new(Schemas::of(all)),
        })
    }

    /// Returns the error formats of the routes.
    pub(crate) fn error_formats(&self) -> &ErrorFormats {
        &self.formats
    }

    /// Adds the router to an application, for all requests. The response to an unsupported method of a known path is
    /// 405 with `Allow`.
    pub fn configure(&self, app: &mut web::ServiceConfig) {
        let Self { trie, formats, schemas } = self.clone();
        app.app_data(formats).app_data(schemas);
        app.default_service(web::to(move |request: HttpRequest, payload: web::Payload| {
            dispatch(&trie, request, payload)
        }));
    }
}

fn dispatch(
    trie: &RouteTrie<Methods>,
    request: HttpRequest,
    payload: web::Payload,
) -> LocalBoxFuture<'static, HttpResponse> {
    let found = trie.find(request.match_info().as_str()).map(|(Methods(methods), matched)| {
        request.extensions_mut().insert(Rc::new(matched));
        let run = methods.iter().find(|(method, _)| method == request.method()).map(|(_, run)| run.clone());
        run.ok_or_else(|| {
            let allowed = methods.iter().map(|(method, _)| method.as_str()).collect::<Vec<_>>().join(", ");
            Problem::method_not_allowed(&allowed)
        })
    });
    match found.unwrap_or_else(|| Err(Problem::not_found())) {
        Ok(run) => run(request, payload),
        Err(problem) => Box::pin(std::future::ready(problem.respond(&request))),
    }
}
