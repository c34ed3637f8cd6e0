//! The limits of concurrent uploads of all callers, of each organization and of each user. An upload may take minutes,
//! so one tenant could otherwise hold all permits. Each kind of upload has separate limits.

use std::sync::{Arc, LazyLock};

use actix_web::{HttpRequest, web};
use kernel::audit::Actor;
use kernel::{Code, KeyedSemaphores};
use opentelemetry::metrics::UpDownCounter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::operation::Limits;
use super::tenant::Tenant;
use super::upload_kind::{CAPACITY, UploadKind};
use crate::problem::Problem;

static IN_PROGRESS: LazyLock<UpDownCounter<i64>> = LazyLock::new(|| {
    let meter = opentelemetry::global::meter("svc");
    meter.i64_up_down_counter("svc.uploads.in_progress").with_description("Uploads in progress").build()
});

/// The permits of the uploads of this process.
#[derive(Debug)]
pub struct UploadLimiter {
    bundles: Permits,
    zone_files: Permits,
    messages: Permits,
}

/// The permits of a kind of upload.
#[derive(Debug)]
struct Permits {
    total: Arc<Semaphore>,
    tenants: KeyedSemaphores<Tenant>,
}

/// An upload in progress. Releases its permits when it is dropped.
#[derive(Debug)]
pub(super) struct UploadPermit {
    kind: UploadKind,
    _permits: Vec<OwnedSemaphorePermit>,
}

impl Default for UploadLimiter {
    fn default() -> Self {
        UploadKind::create_counters();
        let permits = |kind: UploadKind| Permits {
            total: Arc::new(Semaphore::new(kind.max_total())),
            tenants: KeyedSemaphores::new(kind.max_per_tenant()),
        };
        Self {
            bundles: permits(UploadKind::Bundle),
            zone_files: permits(UploadKind::ZoneFile),
            messages: permits(UploadKind::Message),
        }
    }
}

/// Acquires the permits of an upload. Returns `None` for other requests, which need no permit.
///
/// # Errors
/// Returns 429 above the limit of the caller or of the organization, 503 above the limit of all callers.
pub(super) fn acquire(
    request: &HttpRequest,
    actor: Option<&mut Actor>,
    limits: Limits,
) -> Result<Option<UploadPermit>, Problem> {
    let Some(kind) = limits.upload else { return Ok(None) };
    let limiter = request.app_data::<web::Data<UploadLimiter>>();
    let limiter = limiter.ok_or_else(|| Problem::internal("the app data contains no upload limiter"))?;
    let org = actor.as_ref().and_then(|actor| actor.required_role).map(|role| Tenant::Org(role.org));
    let user = actor.and_then(|actor| actor.user).map(Tenant::User);
    limiter.acquire(kind, org.into_iter().chain(user)).map(Some)
}

impl UploadLimiter {
    fn acquire(&self, kind: UploadKind, tenants: impl Iterator<Item = Tenant>) -> Result<UploadPermit, Problem> {
        let Permits { total, tenants: semaphores } = match kind {
            UploadKind::Bundle => &self.bundles,
            UploadKind::ZoneFile => &self.zone_files,
            UploadKind::Message => &self.messages,
        };
        let mut permits = Vec::new();
        for tenant in tenants {
            let permit = semaphores.of(tenant).try_acquire_owned();
            permits.push(permit.map_err(|_| tenant.above_limit(kind))?);
        }
        permits.push(total.clone().try_acquire_owned().map_err(|_| {
            kind.count_rejection(CAPACITY);
            Problem::new(&Code::UNAVAILABLE, "too many concurrent uploads; try again in a moment")
        })?);
        IN_PROGRESS.add(1, &[kind.label()]);
        Ok(UploadPermit { kind, _permits: permits })
    }
}

impl Drop for UploadPermit {
    fn drop(&mut self) {
        IN_PROGRESS.add(-1, &[self.kind.label()]);
    }
}

impl Tenant {
    /// Counts the rejection of an upload above the tenant's limit, and returns the error.
    fn above_limit(self, kind: UploadKind) -> Problem {
        let (of, subject) = match self {
            Self::Org(_) => ("organization", "the organization has"),
            Self::User(_) => ("user", "you have"),
        };
        kind.count_rejection(of);
        let limit = kind.max_per_tenant();
        let message =
            format!("{subject} {limit} uploads in progress, the maximum; retry when one of them has finished");
        Problem::above_limit(message, limit, of)
    }
}
