//! Git over HTTP: the smart protocol (gitprotocol-http(5)). The older "dumb" protocol is not served.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use actix_web::dev::Server;
use actix_web::http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, EXPIRES, HeaderName, PRAGMA, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{self, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpResponseBuilder, HttpServer, rt};
use bytes::Bytes;
use flate2::write::GzDecoder;
use futures_util::{Stream, StreamExt as _, stream};
use protocol::{GitAccess, SecretValue, basic_password};
use settings::Networks;
use tokio::sync::mpsc;

use crate::exchange::{Credential, Exchange, Mode, Output, Service, is_refusal};
use crate::git::{Program, is_protocol};
use crate::limits::Busy;
use crate::metrics::{Metrics, Transport};
use crate::path::RepositoryPath;

const GIT_PROTOCOL: HeaderName = HeaderName::from_static("git-protocol");
/// The maximum length of a password, in bytes.
const MAX_PASSWORD_BYTES: usize = 1024;
const COMPRESSED_PIECE_BYTES: usize = 4096;
/// The maximum number of chunks of a response that are buffered for the client.
const BUFFERED_PARTS: usize = 4;

/// A request in the smart protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SmartRequest<'a> {
    /// `None` if no repository can have the path.
    path: Option<RepositoryPath<'a>>,
    program: Program,
    /// Whether the request is for the list of refs, which a client reads before the exchange itself.
    is_advertisement: bool,
}

/// The reason why a request is not one of the smart protocol.
#[derive(Debug, Clone, Copy)]
struct Malformed {
    status: StatusCode,
    message: &'static str,
    /// The method of the address, if the request has another one.
    allow: Option<&'static str>,
}

/// Starts a server for git clients.
pub fn listen(
    address: SocketAddr,
    service: Service,
    trusted_proxies: Networks,
    metrics: Metrics,
) -> io::Result<(SocketAddr, Server)> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let app = move || {
        App::new()
            .app_data(Data::new(service.clone()))
            .app_data(Data::new(trusted_proxies.clone()))
            .app_data(Data::new(metrics.clone()))
            .default_service(web::to(serve))
    };
    let server = HttpServer::new(app)
        .tcp_nodelay(true)
        .client_request_timeout(Duration::from_secs(10))
        .shutdown_timeout(30)
        .disable_signals()
        .listen(listener)?;
    Ok((address, server.run()))
}

async fn serve(
    request: HttpRequest,
    payload: web::Payload,
    service: Data<Service>,
    trusted_proxies: Data<Networks>,
    metrics: Data<Metrics>,
) -> HttpResponse {
    let asked = match parse(request.method(), request.uri().path(), request.query_string()) {
        Ok(asked) => asked,
        Err(malformed) => return malformed.response(),
    };
    let Ok(credential) = password(&request) else { return unauthenticated() };
    let protocol = request.headers().get(GIT_PROTOCOL).and_then(|value| value.to_str().ok());
    let protocol = protocol.filter(|protocol| is_protocol(protocol));
    let address = client_address(&request, &trusted_proxies);
    let client = (Transport::Http, address);
    let access = service.authorize(client, credential, asked.path, asked.program.writes()).await;
    let grant = match access {
        Ok(GitAccess::Allowed(grant)) => grant,
        Ok(GitAccess::Unauthenticated) => return unauthenticated(),
        Ok(GitAccess::Forbidden(message)) => return refuse(StatusCode::FORBIDDEN, &message),
        Ok(GitAccess::NotFound) => return refuse(StatusCode::NOT_FOUND, "The repository does not exist."),
        Err(error) if is_refusal(&error) => return busy(&error),
        Err(_) => return unavailable(),
    };
    let program = asked.program;
    let (arguments, kind): (&[&str], _) = match asked.is_advertisement {
        true => (&["--stateless-rpc", "--http-backend-info-refs"], "advertisement"),
        false => (&["--stateless-rpc"], "result"),
    };
    if !asked.is_advertisement {
        let expected = format!("application/x-{}-request", program.name());
        let given = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if given != Some(expected.as_str()) {
            return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, &format!("The Content-Type must be {expected}."));
        }
    }
    let coding = request.headers().get(CONTENT_ENCODING).map(|coding| coding.as_bytes().to_ascii_lowercase());
    let is_gzip = match coding.as_deref() {
        None | Some(b"identity") => false,
        Some(b"gzip" | b"x-gzip") => true,
        Some(_) => return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "The Content-Encoding must be gzip."),
    };
    let exchange = match service.start(&grant, address, Mode { program, arguments, protocol }).await {
        Ok(exchange) => exchange,
        Err(error) if is_refusal(&error) => return busy(&error),
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), repository = grant.repository, "cannot serve a repository");
            return unavailable();
        }
    };
    let is_v2 = protocol.is_some_and(|protocol| protocol.split(':').any(|part| part == "version=2"));
    let first = (asked.is_advertisement && !is_v2).then(|| {
        let line = format!("# service={}\n", program.name());
        Bytes::from(format!("{:04x}{line}0000", line.len() + 4))
    });
    let output = run(exchange, program, decode(payload, is_gzip), metrics.get_ref().clone());
    uncached(StatusCode::OK)
        .insert_header((CONTENT_TYPE, format!("application/x-{}-{kind}", program.name())))
        .streaming(stream::iter(first).map(Ok::<_, io::Error>).chain(output))
}

/// Runs an exchange. Returns a stream of its output.
fn run(
    exchange: Exchange,
    program: Program,
    input: impl Stream<Item = io::Result<Bytes>> + 'static,
    metrics: Metrics,
) -> impl Stream<Item = io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(BUFFERED_PARTS);
    let started = Instant::now();
    rt::spawn(async move {
        let result = exchange.run(input, sender, true).await;
        let outcome = match result {
            Ok(0) => "success",
            Ok(_) => "failure",
            Err(error) => {
                tracing::debug!(error = format!("{error:#}"), program = program.name(), "an exchange was ended");
                "ended"
            }
        };
        metrics.exchange(Transport::Http, program.name(), outcome, started.elapsed());
    });
    stream::unfold(receiver, async |mut receiver| {
        loop {
            match receiver.recv().await? {
                Output::Data(data) => return Some((Ok(data), receiver)),
                // git's protocol sends messages for the user as part of the data.
                Output::Error(text) => {
                    let text = String::from_utf8_lossy(&text);
                    tracing::debug!(text = text.trim_end(), "git wrote to its error output");
                }
                Output::Refusal(reason) => return Some((Ok(fatal_message(&reason)), receiver)),
                // Closes the connection without the end of the body.
                Output::Abort => return Some((Err(io::Error::other("the push was not recorded")), receiver)),
            }
        }
    })
}

/// Creates a message on the third side band, which makes the client stop with an error (gitprotocol-pack(5), "Packfile
/// Data").
fn fatal_message(text: &str) -> Bytes {
    Bytes::from(format!("{:04x}\x03{text}\n", text.len() + 6))
}

/// Decompresses the body of a request in small chunks, because each compressed chunk can become a thousand times
/// longer.
fn decode(payload: web::Payload, is_gzip: bool) -> impl Stream<Item = io::Result<Bytes>> {
    let decoder = is_gzip.then(|| GzDecoder::new(Vec::new()));
    stream::unfold((payload, decoder, Bytes::new()), async |(mut payload, mut decoder, mut rest)| {
        if rest.is_empty() {
            match payload.next().await? {
                Ok(chunk) => rest = chunk,
                Err(error) => return Some((Err(io::Error::other(error)), (payload, decoder, rest))),
            }
        }
        let decoded = match &mut decoder {
            None => Ok(std::mem::take(&mut rest)),
            Some(decoder) => {
                let piece = rest.split_to(rest.len().min(COMPRESSED_PIECE_BYTES));
                let written = decoder.write_all(&piece).and_then(|()| decoder.flush());
                written.map(|()| Bytes::from(std::mem::take(decoder.get_mut())))
            }
        };
        Some((decoded, (payload, decoder, rest)))
    })
}

impl Malformed {
    const fn new(status: StatusCode, message: &'static str) -> Self {
        Self { status, message, allow: None }
    }

    fn response(self) -> HttpResponse {
        let Self { status, message, allow } = self;
        let mut response = refuse(status, message);
        if let Some(method) = allow {
            response.headers_mut().insert(ALLOW, actix_web::http::header::HeaderValue::from_static(method));
        }
        response
    }
}

fn parse<'a>(method: &Method, path: &'a str, query: &str) -> Result<SmartRequest<'a>, Malformed> {
    const DUMB: Malformed =
        Malformed::new(StatusCode::FORBIDDEN, "This server requires the smart protocol. Update your git client.");
    let (repository, is_advertisement, program) = if let Some(repository) = path.strip_suffix("/info/refs") {
        let service = query.split('&').find_map(|parameter| parameter.strip_prefix("service=")).ok_or(DUMB)?;
        (repository, true, Program::named(service))
    } else {
        let (repository, program) = path.rsplit_once('/').unwrap_or_default();
        (repository, false, Program::named(program))
    };
    // Archives are served only over SSH.
    let program = program.filter(|program| *program != Program::UploadArchive);
    let program = program.ok_or(Malformed::new(StatusCode::NOT_FOUND, "Clone this address with git."))?;
    let expected = if is_advertisement { "GET" } else { "POST" };
    if method.as_str() != expected {
        let message = "The smart protocol does not use this method here.";
        return Err(Malformed { status: StatusCode::METHOD_NOT_ALLOWED, message, allow: Some(expected) });
    }
    Ok(SmartRequest { path: RepositoryPath::parse(repository), program, is_advertisement })
}

/// Returns the password of a request, or an error if the header is malformed.
fn password(request: &HttpRequest) -> Result<Option<Credential>, ()> {
    let Some(header) = request.headers().get(AUTHORIZATION) else { return Ok(None) };
    let (scheme, encoded) = header.to_str().map_err(drop)?.split_once(' ').ok_or(())?;
    if !scheme.eq_ignore_ascii_case("basic") || encoded.len() > 2 * MAX_PASSWORD_BYTES {
        return Err(());
    }
    let password = basic_password(encoded).ok_or(())?;
    Ok(Some(Credential::Password(SecretValue::new(password))))
}

/// Returns the address of the client. If the peer is a trusted proxy, this is the address in its header.
fn client_address(request: &HttpRequest, trusted_proxies: &Networks) -> IpAddr {
    let peer = request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
    let forwarded = request.headers().get_all("x-forwarded-for").filter_map(|value| value.to_str().ok());
    trusted_proxies.client(peer, forwarded)
}

fn uncached(status: StatusCode) -> HttpResponseBuilder {
    let mut response = HttpResponse::build(status);
    response
        .insert_header((EXPIRES, "Fri, 01 Jan 1980 00:00:00 GMT"))
        .insert_header((PRAGMA, "no-cache"))
        .insert_header((CACHE_CONTROL, "no-cache, max-age=0, must-revalidate"));
    response
}

fn refuse(status: StatusCode, message: &str) -> HttpResponse {
    uncached(status).insert_header((CONTENT_TYPE, "text/plain; charset=utf-8")).body(format!("{message}\n"))
}

fn unauthenticated() -> HttpResponse {
    let mut response = refuse(
        StatusCode::UNAUTHORIZED,
        "The token is missing, unknown, expired or revoked. Use a personal access token with the scope git:read or \
         git:write as the password.",
    );
    let challenge = actix_web::http::header::HeaderValue::from_static("Basic realm=\"git\", charset=\"UTF-8\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

fn unavailable() -> HttpResponse {
    retry_later(StatusCode::SERVICE_UNAVAILABLE, "The service is not available. Try again in a moment.")
}

/// Returns the response to a refused access: 429 if the client has reached its limit, otherwise 503.
fn busy(refusal: &anyhow::Error) -> HttpResponse {
    let status = match refusal.downcast_ref() {
        Some(Busy::Programs(_) | Busy::Connections(_) | Busy::Rate) => StatusCode::TOO_MANY_REQUESTS,
        Some(Busy::Anonymous | Busy::Server) | None => StatusCode::SERVICE_UNAVAILABLE,
    };
    retry_later(status, &refusal.to_string())
}

fn retry_later(status: StatusCode, message: &str) -> HttpResponse {
    let mut response = refuse(status, message);
    response.headers_mut().insert(RETRY_AFTER, actix_web::http::header::HeaderValue::from_static("5"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_smart_protocol_are_parsed() {
        let app = RepositoryPath::parse("/ada/site/app");
        let asked = parse(&Method::GET, "/ada/site/app.git/info/refs", "service=git-upload-pack").unwrap();
        assert_eq!(asked, SmartRequest { path: app, program: Program::UploadPack, is_advertisement: true });
        let asked = parse(&Method::POST, "/ada/site/app/git-receive-pack", "").unwrap();
        assert_eq!(asked, SmartRequest { path: app, program: Program::ReceivePack, is_advertisement: false });
        let status = |method, path, query| parse(&method, path, query).unwrap_err().status.as_u16();
        assert_eq!(status(Method::GET, "/ada/site/app.git/info/refs", ""), 403);
        assert_eq!(status(Method::GET, "/ada/site/app.git/info/refs", "service=git-upload-archive"), 404);
        assert_eq!(status(Method::GET, "/ada/site/app.git/HEAD", ""), 404);
        assert_eq!(status(Method::GET, "/ada/site/app.git/git-upload-pack", ""), 405);
        let hidden = parse(&Method::POST, "/ada/../site/app.git/git-upload-pack", "").unwrap();
        assert_eq!(hidden.path, None);
    }
}
