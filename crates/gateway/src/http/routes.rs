//! The table of routes: what is served and what is documented are the same entries.

use std::rc::Rc;
use std::sync::Arc;

use actix_web::http::Method;
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, web};
use futures_util::future::LocalBoxFuture;

use super::endpoint::{Endpoint, run};
use super::table::Table;
use super::{Operation, Place, once};
use crate::problem::Problem;

type Run = dyn Fn(HttpRequest, web::Payload) -> LocalBoxFuture<'static, HttpResponse> + Send + Sync;

/// What answers a path, by method.
#[derive(Default)]
struct Methods(Vec<(Method, Arc<Run>)>);

/// Routes, as an application serves them.
#[derive(Clone)]
pub struct Router(Arc<Table<Methods>>);

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
}

impl Router {
    /// What serves these routes.
    #[must_use]
    pub fn of<'a>(all: impl IntoIterator<Item = &'a Routes>) -> Self {
        let mut table = Table::<Methods>::default();
        for (operation, run) in all.into_iter().flat_map(|routes| &routes.entries) {
            let Methods(methods) = table.entry(operation.path);
            methods.push((operation.method.clone(), run.clone()));
            if operation.method == Method::GET {
                methods.push((Method::HEAD, run.clone()));
            }
        }
        Self(Arc::new(table))
    }

    /// Has the application answer whatever it is asked; another method of a known path is answered with `Allow`.
    pub fn configure(&self, app: &mut web::ServiceConfig) {
        let Self(table) = self.clone();
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
