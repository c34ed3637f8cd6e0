//! Chunked request bodies that the app does not read to their end.
//!
//! actix reads and discards the rest of a chunked body that the app dropped, without a limit. If the body still exists,
//! or has a known length, actix closes the connection after the response. So the server keeps chunked bodies until then.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_http::{HttpMessage as _, Payload, Request, Response};
use actix_service::{Service, ServiceFactory, apply_fn_factory};
use actix_web::HttpResponse;
use actix_web::body::{BodySize, EitherBody, MessageBody};
use actix_web::web::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::task::yield_now;

use crate::unread_frames::track_frames;

/// The body of a request, which the app reads.
struct RequestBody(#[expect(dead_code, reason = "kept until the response is sent")] Rc<RefCell<Payload>>);

impl RequestBody {
    /// Shares the body of a request with the app, if it is chunked.
    fn share(request: &mut Request) -> Option<Self> {
        if !request.chunked().unwrap_or(false) {
            return None;
        }
        let body = Rc::new(RefCell::new(request.take_payload()));
        let of_app = Rc::clone(&body);
        let of_app = stream::poll_fn(move |context| of_app.borrow_mut().poll_next_unpin(context));
        *request.payload() = Payload::Stream { payload: Box::pin(of_app) };
        Some(Self(body))
    }
}

/// The body of a response, which keeps that of its request.
pub(crate) struct KeepingBody<B> {
    body: Pin<Box<B>>,
    _request: RequestBody,
}

impl<B: MessageBody> KeepingBody<B> {
    fn new(body: B, request: Option<RequestBody>) -> EitherBody<B, Self> {
        match request {
            Some(request) => EitherBody::right(Self { body: Box::pin(body), _request: request }),
            None => EitherBody::left(body),
        }
    }
}

impl<B: MessageBody> MessageBody for KeepingBody<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        self.get_mut().body.as_mut().poll_next(context)
    }
}

/// Keeps the chunked bodies of an app's requests until the responses are sent, and tracks the frames that the app reads.
pub(crate) fn wrap_request_bodies<S, B>(
    app: S,
) -> impl ServiceFactory<
    Request,
    Config = S::Config,
    Response = Response<EitherBody<B, KeepingBody<B>>>,
    Error = HttpResponse,
    InitError = S::InitError,
    Service: Service<Request, Future: 'static> + 'static,
    Future: 'static,
>
where
    S: ServiceFactory<
            Request,
            Response: Into<Response<B>> + 'static,
            Error = HttpResponse,
            Service: Service<Request, Future: 'static> + 'static,
            Future: 'static,
        > + 'static,
    B: MessageBody + 'static,
{
    apply_fn_factory(app, |mut request: Request, app: &S::Service| {
        track_frames(&mut request);
        let body = RequestBody::share(&mut request);
        let served = app.call(request);
        async move {
            let served = served.await;
            if body.is_some() {
                // If the whole body has arrived, actix notices its end now, and keeps the connection open.
                yield_now().await;
            }
            match served {
                Ok(response) => Ok(response.into().map_body(|_, response| KeepingBody::new(response, body))),
                Err(response) => {
                    Err(response.map_body(|_, response| KeepingBody::new(response, body)).map_into_boxed_body())
                }
            }
        }
    })
}
