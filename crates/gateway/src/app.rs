//! The two applications: what stands in front of the routes, and what the routes are given.

use std::sync::Arc;

use actix_cors::Cors;
use actix_web::body::BoxBody;
use actix_web::dev::{ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, IF_MATCH, RETRY_AFTER};
use actix_web::middleware::from_fn;
use actix_web::web::Data;
use actix_web::{App, Error};
use kernel::World;
use prometheus::Registry;
use store::Store;
use tokio::sync::Semaphore;

use crate::config::Config;
use crate::http::{Collisions, Fixed, Lanes, Room, Router, UploadPlaces, guard, observe};
use crate::limits::Limiters;
use crate::openapi::Reference;
use crate::v1::Contexts;
use crate::{internal, pdns, v1};

/// An application that is ready to be served.
pub trait Served:
    ServiceFactory<ServiceRequest, Config = (), Response = ServiceResponse<BoxBody>, Error = Error, InitError = ()>
{
}

impl<T> Served for T where
    T: ServiceFactory<ServiceRequest, Config = (), Response = ServiceResponse<BoxBody>, Error = Error, InitError = ()>
{
}

/// What the routes are composed of. Made once for a process; every part is cheap to clone.
#[derive(Clone)]
pub struct Services {
    public: Router,
    fixed: Data<Fixed>,
    internal: Router,
    config: Data<Config>,
    world: Data<World>,
    store: Data<Store>,
    contexts: Contexts,
    limiters: Data<Limiters>,
    room: Data<Room>,
    uploads: Data<UploadPlaces>,
    lanes: Data<Lanes>,
    reference: Data<Reference>,
    registry: Data<Registry>,
}

impl Services {
    /// Composes the contexts.
    ///
    /// # Errors
    /// When the routes of a listener collide.
    pub fn new(config: Config, store: Store, contexts: Contexts, registry: Registry) -> Result<Self, Collisions> {
        let (public, internal) = (v1::routes(config.sign_ins), internal::routes());
        Ok(Self {
            reference: Data::new(Reference::of(&public)),
            fixed: Data::new(Fixed::of(&public)),
            public: Router::of(&[&public, &pdns::routes()])?,
            internal: Router::of(&[&internal])?,
            limiters: Data::new(Limiters::new(config.rate_limits)),
            uploads: Data::new(UploadPlaces::default()),
            lanes: Data::new(Lanes::default()),
            room: Data::new(Room(Arc::new(Semaphore::new(config.in_flight)))),
            config: Data::new(config),
            world: Data::new(store.world().clone()),
            store: Data::new(store),
            contexts,
            registry: Data::new(registry),
        })
    }

    /// The database, for the passes beside the listeners.
    #[must_use]
    pub fn store(&self) -> Store {
        self.store.as_ref().clone()
    }

    /// The rate limits, for the pass that forgets idle callers.
    #[must_use]
    pub fn limiters(&self) -> Arc<Limiters> {
        self.limiters.clone().into_inner()
    }
}

/// The application of the public listener.
pub fn public_app(services: &Services) -> App<impl Served + use<>> {
    App::new()
        .app_data(services.config.clone())
        .app_data(services.world.clone())
        .app_data(services.store.clone())
        .app_data(services.limiters.clone())
        .app_data(services.room.clone())
        .app_data(services.uploads.clone())
        .app_data(services.lanes.clone())
        .app_data(services.reference.clone())
        .app_data(services.fixed.clone())
        .configure(|app| services.contexts.give_to(app))
        .configure(|app| services.public.configure(app))
        .wrap(from_fn(guard))
        .wrap(cors(&services.config))
        .wrap(from_fn(observe))
}

/// The application of the internal listener.
pub fn internal_app(services: &Services) -> App<impl Served + use<>> {
    App::new()
        .app_data(services.config.clone())
        .app_data(services.world.clone())
        .app_data(services.registry.clone())
        .configure(|app| services.contexts.give_to(app))
        .configure(|app| services.internal.configure(app))
        .wrap(from_fn(guard))
        .wrap(from_fn(observe))
}

/// The dashboard's origin and no other (security rules, "HTTP").
fn cors(config: &Config) -> Cors {
    Cors::default()
        .allowed_origin(&config.dashboard_origin())
        .allowed_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allowed_headers([AUTHORIZATION, CONTENT_TYPE, IF_MATCH])
        .allowed_headers(["idempotency-key", "x-request-id", "x-svc-git-commit", "x-svc-git-message"])
        .allowed_headers(["x-svc-git-branch", "x-svc-git-dirty"])
        .expose_headers([ETAG, RETRY_AFTER])
        .expose_headers(["x-request-id", "ratelimit", "ratelimit-policy", "idempotent-replayed"])
        .max_age(600)
}
