//! `env.assets`: serves the assets of the worker's bundle as to visitors.

use std::sync::Arc;

use actix_web::HttpResponse;
use futures_util::future::LocalBoxFuture;

use super::{Binding, BindingCall};
use crate::contents::Contents;
use crate::environment::Environment;
use crate::index::Code;
use crate::serve::serve_assets;

/// The binding `assets`. Every project has it.
pub struct Assets(pub Arc<Contents>);

impl Binding for Assets {
    fn name(&self) -> &'static str {
        "assets"
    }

    fn is_granted(&self, _: &Environment, _: Option<&Code>) -> bool {
        true
    }

    fn module(&self) -> Option<&'static str> {
        None
    }

    fn handle<'a>(&'a self, BindingCall { caller, request, .. }: BindingCall<'a>) -> LocalBoxFuture<'a, HttpResponse> {
        Box::pin(async move { serve_assets(request, &self.0, &caller.index).await })
    }
}
