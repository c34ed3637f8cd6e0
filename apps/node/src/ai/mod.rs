//! `env.ai`: calls of AI models, metered once each.
//!
//! A call is admitted by the control plane, sent to the upstream, and settled with its usage. The journal contains a
//! file for each call from before its admission until the control plane has accepted its settlement. Therefore, a call
//! is settled even if the node dies at any point: a call that the journal records as sent is charged, with an estimate,
//! and any other is free. The control plane deducts a call once, however often it is settled.

mod call;
pub mod config;
mod content;
mod error;
mod event_stream;
mod failure;
mod journal;
mod meter;
mod metrics;
mod request;
mod upstream;
mod usage;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::{AdmittedCall, AiAdmission, AiCallRequest, RefusalCode, RefusedCall};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::Core;
use crate::memory::{Memory, Reservation};
use crate::project_requests::{NotSent, ProjectRequests};
use call::{Call, ResponsesMemory, StreamCall, TokenLimits};
use config::AiConfig;
use journal::{CallState, Journal};
use meter::{Meter, MeteredCall};
use request::ChatRequest;
use upstream::Upstream;

pub use call::Completion;
pub use error::AiError;
pub use metrics::AiMetrics;

/// The limit on the memory of all requests to which the upstream has not responded, in bytes.
const MAX_BYTES: usize = 512 << 20;
/// The limit of the projects of one owner: the memory to parse one request of the maximum size.
const MAX_OWNER_BYTES: usize = 128 << 20;
/// The memory to parse a request, as a multiple of its length: every two bytes of `[0,0,…` need 32 bytes.
const PARSED_FACTOR: usize = 16;
/// How long the list of models is not requested again.
const MODELS_TTL: Duration = Duration::from_secs(2);

type Result<T> = std::result::Result<T, AiError>;

/// The AI models of a node.
pub struct Ai {
    /// `None` if the node has no upstream: every call fails.
    upstream: Option<Upstream>,
    core: Core,
    meter: Arc<Meter>,
    metrics: AiMetrics,
    /// The runtime of calls. A call outlives the worker and the thread that its request arrives at.
    runtime: Handle,
    requests: Memory,
    responses: ResponsesMemory,
    admissions: ProjectRequests<String, RefusedCall>,
    models: Mutex<Option<RecentModels>>,
}

/// The response to the last request for the catalog.
struct RecentModels {
    /// The list in OpenAI's shape. `None` if the control plane did not provide it.
    list: Option<Value>,
    fetched_at: Instant,
}

impl Ai {
    /// Opens the journal in the node's directory, and settles the calls of the previous process. Must be called within
    /// a tokio runtime.
    pub fn open(
        config: Option<&AiConfig>,
        dir: &Path,
        core: Core,
        metrics: AiMetrics,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<Self> {
        let upstream = config.map(Upstream::new).transpose()?;
        let journal = Journal::open(&dir.join("ai"))?;
        let meter = Meter::start(journal, core.clone(), metrics.clone(), tasks)?;
        Ok(Self {
            upstream,
            core,
            meter,
            metrics,
            runtime: Handle::current(),
            requests: Memory::new(MAX_BYTES, MAX_OWNER_BYTES),
            responses: ResponsesMemory::new(),
            admissions: ProjectRequests::new(),
            models: Mutex::default(),
        })
    }

    /// Waits until there is memory to parse a request of this many bytes.
    ///
    /// # Errors
    /// Returns [`AiError::NoMemory`] if other requests of the owner or of the node use the memory for too long.
    pub async fn reserve(&self, owner: &str, bytes: usize) -> Result<Reservation> {
        self.requests.reserve(owner, bytes * PARSED_FACTOR).await.map_err(|_| AiError::NoMemory)
    }

    /// Returns the list of models, in OpenAI's shape. All projects share one request for a short time.
    ///
    /// # Errors
    /// Returns [`AiError::NoCore`] if the control plane does not provide its catalog.
    pub async fn models(&self) -> Result<Value> {
        let mut recent = self.models.lock().await;
        if recent.as_ref().is_none_or(|it| it.fetched_at.elapsed() >= MODELS_TTL) {
            let list = self.fetch_models().await;
            *recent = Some(RecentModels { list, fetched_at: Instant::now() });
        }
        recent.as_ref().and_then(|it| it.list.clone()).ok_or(AiError::NoCore)
    }

    async fn fetch_models(&self) -> Option<Value> {
        let catalog = self.core.ai_models().await;
        let catalog = catalog.inspect_err(|error| tracing::warn!(%error, "cannot get the AI models")).ok()?;
        let models = catalog.get("models").and_then(Value::as_array).into_iter().flatten();
        let models = models.map(|model| {
            let owner = model.get("provider").and_then(Value::as_str).unwrap_or("platform");
            json!({ "id": model.get("id"), "object": "model", "created": 0, "owned_by": owner })
        });
        Some(json!({ "object": "list", "data": models.collect::<Vec<_>>() }))
    }

    /// Makes a call for a project. Returns as soon as the upstream has responded: with the whole response, or with the
    /// first event or comment of a stream. If the returned future is dropped, a stream is aborted, and any other call
    /// continues.
    ///
    /// # Errors
    /// Returns an error if the call is refused or the upstream fails. The call is then free, unless the upstream's
    /// response began and did not end, or the node did not read it to its end.
    pub async fn complete(
        self: &Arc<Self>,
        owner: &str,
        project: &str,
        body: Bytes,
        memory: Reservation,
    ) -> Result<Completion> {
        let (sender, receiver) = oneshot::channel();
        let (this, owner, project) = (Arc::clone(self), owner.to_owned(), project.to_owned());
        self.runtime.spawn(async move {
            let mut sender = sender;
            let begun = this.begin(&owner, &project, body, memory, &mut sender).await;
            let ended = match begun {
                Ok((completion, call)) => {
                    // If the worker is gone, the call continues, and finds that its receiver is closed.
                    let _ = sender.send(Ok(completion));
                    match call {
                        Some(call) => call.pass_events().await,
                        None => Ok(()),
                    }
                }
                Err(error) => {
                    // The worker may be gone.
                    let _ = sender.send(Err(error.clone()));
                    Err(error)
                }
            };
            this.metrics.count(ended.as_ref().err().map_or("ok", AiError::outcome));
        });
        receiver.await.unwrap_or(Err(AiError::NoUpstream))
    }

    /// Requests the admission of a call and sends it. Also returns the call if it continues as a stream.
    async fn begin(
        &self,
        owner: &str,
        project: &str,
        body: Bytes,
        mut memory: Reservation,
        receiver: &mut oneshot::Sender<Result<Completion>>,
    ) -> Result<(Completion, Option<StreamCall>)> {
        let request = ChatRequest::parse(&body)?;
        drop(body);
        let upstream = self.upstream.as_ref().ok_or(AiError::NoUpstream)?;
        let response = if request.is_stream() { None } else { Some(self.responses.reserve(owner).await?) };
        let input_tokens = request.input_tokens();
        let (call, admitted) = self.admit(project, &request, input_tokens).await?;
        let AdmittedCall { upstream_model, context_tokens, max_output_tokens } = admitted;
        if receiver.is_closed() {
            self.meter.end(call, None).await;
            return Err(AiError::Abandoned);
        }
        let tokens = TokenLimits {
            input: input_tokens.min(context_tokens),
            expected_output: request.expected_output_tokens(max_output_tokens).min(context_tokens),
            context: context_tokens,
        };
        let sent = self.meter.record(call.id, CallState::Sent { input_tokens: tokens.input, output_tokens: 0 }).await;
        if let Err(error) = sent {
            self.meter.end(call, None).await;
            return Err(error);
        }
        let includes_usage = request.includes_usage();
        let body = request.into_upstream(&upstream_model, max_output_tokens);
        memory.shrink(body.len());
        let call = Call::new(call, tokens, upstream.max_duration(), Arc::clone(&self.meter), self.metrics.clone());
        match response {
            Some(response) => Ok((call.complete(upstream, body, response).await?, None)),
            None => {
                let (completion, call) = call.open_stream(upstream, body, includes_usage, receiver).await?;
                Ok((completion, Some(call)))
            }
        }
    }

    /// Requests the admission of a call. If it is not admitted, the call has ended.
    async fn admit(
        &self,
        project: &str,
        request: &ChatRequest,
        input_tokens: u32,
    ) -> Result<(MeteredCall, AdmittedCall)> {
        let call = self.meter.begin(project).ok_or(AiError::NoCore)?;
        let _request_permit =
            self.admissions.begin(project, request.model().to_owned()).await.map_err(|not_sent| match not_sent {
                NotSent::Refused(refusal) => refusal.into(),
                NotSent::Busy => AiError::NoCore,
            })?;
        self.meter.record(call.id, CallState::Asked).await?;
        let started = Instant::now();
        let asked = AiCallRequest {
            id: call.id.to_string(),
            project: project.to_owned(),
            model: request.model().to_owned(),
            input_tokens,
            max_output_tokens: request.max_output_tokens(),
        };
        match self.core.admit_ai_call(&asked).await {
            Ok(AiAdmission::Admitted(admitted)) => {
                self.metrics.admission.observe(started.elapsed().as_secs_f64());
                Ok((call, admitted))
            }
            Ok(AiAdmission::Refused(refusal)) => {
                if applies_to_project(refusal.code) {
                    self.admissions.repeat(project, asked.model, refusal.clone(), refusal.retry_after);
                }
                self.meter.forget(call).await;
                Err(refusal.into())
            }
            Err(error) => {
                tracing::warn!(%error, "cannot request the admission of an AI call");
                // The control plane may have admitted the call, so the call must be settled.
                self.meter.end(call, None).await;
                Err(AiError::NoCore)
            }
        }
    }
}

/// Returns whether the control plane would refuse every call of the project at the moment.
const fn applies_to_project(code: RefusalCode) -> bool {
    match code {
        RefusalCode::InsufficientCredit
        | RefusalCode::RateLimited
        | RefusalCode::SpendLimit
        | RefusalCode::NotGranted => true,
        RefusalCode::ModelNotFound | RefusalCode::ContextLengthExceeded => false,
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use reqwest::header::HeaderValue;

    use super::*;

    #[tokio::test]
    async fn unsettled_calls_of_a_project_do_not_exclude_those_of_others() {
        let (dir, mut tasks) = (tempfile::tempdir().unwrap(), JoinSet::new());
        let metrics = AiMetrics::new(&Registry::new()).unwrap();
        let journal = Journal::open(dir.path()).unwrap();
        let meter = Meter::start(journal, Core::unreachable(), metrics, &mut tasks).unwrap();
        // Some calls are in progress, and others have ended, but cannot be settled.
        for _ in 0..10 {
            let call = meter.begin("prj_1").unwrap();
            meter.end(call, None).await;
        }
        let in_progress: Vec<_> = std::iter::from_fn(|| meter.begin("prj_1")).collect();
        assert_eq!(in_progress.len() + 10, meter::MAX_PROJECT_UNSETTLED);
        assert!(meter.begin("prj_2").is_some());
    }

    #[tokio::test]
    async fn no_call_begins_while_too_many_wait_for_their_settlement() {
        let (dir, mut tasks) = (tempfile::tempdir().unwrap(), JoinSet::new());
        let metrics = AiMetrics::new(&Registry::new()).unwrap();
        let authorization = HeaderValue::from_static("Bearer x");
        let config = AiConfig::new("http://upstream.example/v1".to_owned(), authorization);
        let ai = Ai::open(Some(&config), dir.path(), Core::unreachable(), metrics.clone(), &mut tasks).unwrap();
        metrics.unsettled.set(meter::MAX_UNSETTLED);
        let memory = ai.reserve("usr_1", 100).await.unwrap();
        let body = Bytes::from_static(br#"{"model":"m","messages":[]}"#);
        let completed = Arc::new(ai).complete("usr_1", "prj_1", body, memory).await;
        assert_eq!(completed.err(), Some(AiError::NoCore));
        assert_eq!(std::fs::read_dir(dir.path().join("ai")).unwrap().count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn call_without_memory_for_its_response_is_not_sent() {
        let (dir, mut tasks) = (tempfile::tempdir().unwrap(), JoinSet::new());
        let metrics = AiMetrics::new(&Registry::new()).unwrap();
        let config = AiConfig::new("http://upstream.example/v1".to_owned(), HeaderValue::from_static("Bearer x"));
        let ai = Ai::open(Some(&config), dir.path(), Core::unreachable(), metrics, &mut tasks).unwrap();
        let ai = Arc::new(ai);
        let mut unread = Vec::new();
        while let Ok(response) = ai.responses.reserve("usr_1").await {
            unread.push(response);
        }
        let memory = ai.reserve("usr_1", 100).await.unwrap();
        let body = Bytes::from_static(br#"{"model":"m","messages":[]}"#);
        let completed = ai.complete("usr_1", "prj_1", body, memory).await;
        assert_eq!(completed.err(), Some(AiError::NoResponseMemory));
        assert_eq!(std::fs::read_dir(dir.path().join("ai")).unwrap().count(), 0);
        assert!(ai.responses.reserve("usr_2").await.is_ok());
    }
}
