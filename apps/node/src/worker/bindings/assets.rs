//! `env.assets`: serves assets to workers as to visitors.
//!
//! All workers use one socket. `workerd` adds a key to each request that identifies the bundle. Worker code can neither
//! read nor override the key.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use actix_web::dev::Server;
use actix_web::http::StatusCode;
use actix_web::http::header::X_CONTENT_TYPE_OPTIONS;
use actix_web::middleware::DefaultHeaders;
use actix_web::web::{self, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};

use super::definition::KEY_HEADER;
use super::folder::RunDir;
use crate::contents::Contents;
use crate::index::Index;
use crate::page::page;
use crate::random;
use crate::serve::serve_assets;

/// The indexes of running bundles, by key.
#[derive(Default)]
pub struct Registry(RwLock<HashMap<String, Arc<Index>>>);

/// A key, valid until this is dropped.
pub struct Registration {
    key: String,
    registry: Arc<Registry>,
}

impl Registry {
    /// Registers an index under a new key.
    pub fn register(self: &Arc<Self>, index: Arc<Index>) -> Registration {
        let key = random::id().simple().to_string();
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), index);
        Registration { key, registry: Arc::clone(self) }
    }

    fn find(&self, request: &HttpRequest) -> Option<Arc<Index>> {
        let key = request.headers().get(KEY_HEADER)?.to_str().ok()?;
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }
}

impl Registration {
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.0.write().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// Starts the server on the socket in `run`.
pub fn listen(run: &RunDir, registry: Arc<Registry>, contents: Arc<Contents>) -> io::Result<Server> {
    let (registry, contents) = (Data::from(registry), Data::from(contents));
    let app = move || {
        App::new()
            .app_data(Data::clone(&registry))
            .app_data(Data::clone(&contents))
            .wrap(DefaultHeaders::new().add((X_CONTENT_TYPE_OPTIONS, "nosniff")))
            .default_service(web::to(handle))
    };
    Ok(HttpServer::new(app).workers(1).disable_signals().listen_uds(run.listen()?)?.run())
}

async fn handle(request: HttpRequest, registry: Data<Registry>, contents: Data<Contents>) -> HttpResponse {
    match registry.find(&request) {
        Some(index) => serve_assets(&request, &contents, &index).await,
        None => page(
            StatusCode::FORBIDDEN,
            "Only the workers of this node may read assets here. Use the address of the site.",
        ),
    }
}
