//! The table of routes: what is served and what is documented are the same entries.

use std::rc::Rc;
use std::sync::Arc;

use actix_web::http::Method;
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, web};
use futures_util::future::LocalBoxFuture;

use super::collisions::{self, Collisions};
use super::endpoint::{Endpoint, run};
use super::schemas::Schemas;
use super::table::Table;
use super::{Operation, Place, once};
use crate::problem::{ErrorFormat, ErrorFormats, Problem};

type Run = dyn Fn(HttpRequest, web::Payload) -> LocalBoxFuture<'static, HttpResponse> + Send + Sync;

/// What answers a path, by method.
#[derive(Default)]
struct Methods(Vec<(Method, Arc<Run>)>);

/// Routes, as an application serves them.
#[derive(Clone)]
pub struct Router {
    table: Arc<Table<Methods>>,
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

/// An area of [`Routes`]: the operations that share a tag, and a prefix of their ids.
pub struct Area<'a> {
    name: &'static str,
    routes: &'a mut Routes,
}

impl Routes {
    /// Begins an area. `name` is the tag of its operations in the OpenAPI document, `about` the tag's description.
    pub fn area(&mut self, name: &'static str, about: &'static str) -> Area<'_> {
        self.areas.push((name, about));
        Area { name, routes: self }
    }

    /// States how failures at `prefix`, and at every path below it, are written. Elsewhere it is the envelope.
    pub fn error_format(&mut self, prefix: &'static str, format: &'static dyn ErrorFormat) {
        self.error_formats.push((prefix, format));
    }

    /// Every area with its description.
    pub fn areas(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.areas.iter().copied()
    }

    /// Every route, as described.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.entries.iter().map(|(operation, _)| operation)
    }
}

impl Area<'_> {
    /// Adds a `GET`; `HEAD` comes with it. The operation's id is `area.name`.
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
        if operation.method == Method::POST && !matches!(operation.place, Place::Open | Place::Node) {
            once::describe(&mut operation);
        }
        let limits = operation.limits();
        let answer = move |request: HttpRequest, payload: web::Payload| -> LocalBoxFuture<'static, HttpResponse> {
            Box::pin(run(handler.clone(), limits, request, payload.into_inner()))
        };
        let entries = &mut self.routes.entries;
        entries.push((operation, Arc::new(answer)));
        // Just pushed.
        #[expect(clippy::unwrap_used, reason = "an entry was pushed on the line above")]
        let (operation, _) = entries.last_mut().unwrap();
        operation
    }
}

impl Router {
    /// The router of these routes.
    ///
    /// # Errors
    /// When routes cannot be served, or documented, next to each other.
    pub fn of(all: &[&Routes]) -> Result<Self, Collisions> {
        collisions::check(all)?;
        let mut table = Table::<Methods>::default();
        for (operation, run) in all.iter().flat_map(|routes| &routes.entries) {
            let Methods(methods) = table.entry(operation.path);
            methods.push((operation.method.clone(), run.clone()));
            if operation.method == Method::GET {
                methods.push((Method::HEAD, run.clone()));
            }
        }
        let formats = all.iter().flat_map(|routes| routes.error_formats.iter().copied()).collect();
        Ok(Self {
            table: Arc::new(table),
            formats: web::Data::new(ErrorFormats(formats)),
            schemas: web::Data::new(Schemas::of(all)),
        })
    }

    /// Has the application answer whatever it is asked; another method of a known path is answered with `Allow`.
    pub fn configure(&self, app: &mut web::ServiceConfig) {
        let Self { table, formats, schemas } = self.clone();
        app.app_data(formats).app_data(schemas);
        app.default_service(web::to(move |request: HttpRequest, payload: web::Payload| {
            answer(&table, request, payload)
        }));
    }
}

fn answer(
    table: &Table<Methods>,
    request: HttpRequest,
    payload: web::Payload,
) -> LocalBoxFuture<'static, HttpResponse> {
    // As actix decoded it: what a segment may not hold plainly stays escaped.
    let found = table.find(request.match_info().as_str()).map(|(Methods(methods), matched)| {
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
