//! What a request presents.

use std::net::{IpAddr, Ipv4Addr};

use actix_web::http::header::AUTHORIZATION;
use actix_web::{HttpRequest, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kernel::{Code, Token, TokenKind};
use settings::counted;

use crate::config::Config;
use crate::problem::Problem;

/// The credential that came with the request: a bearer token of one of these kinds, or a personal access token as the
/// password of `Basic`, whatever the user name (RFC 7617).
pub(super) fn presented(request: &HttpRequest, kinds: &[TokenKind]) -> Result<(TokenKind, Token), Problem> {
    let mut sent = request.headers().get_all(AUTHORIZATION);
    let Some(first) = sent.next() else { return Err(Problem::no_credential()) };
    let text = first.to_str().ok().filter(|_| sent.next().is_none()).unwrap_or_default();
    let (scheme, credential) = text.split_once(' ').unwrap_or_default();
    let read = |kind: TokenKind, text: &str| Token::parse(kind, text).map(|token| (kind, token));
    let found = if scheme.eq_ignore_ascii_case("bearer") {
        kinds.iter().find_map(|kind| read(*kind, credential.trim()))
    } else if scheme.eq_ignore_ascii_case("basic") && kinds.contains(&TokenKind::Access) {
        password(credential.trim()).and_then(|password| read(TokenKind::Access, &password))
    } else {
        None
    };
    found.ok_or_else(invalid)
}

fn password(credential: &str) -> Option<String> {
    let decoded = String::from_utf8(STANDARD.decode(credential).ok()?).ok()?;
    decoded.split_once(':').map(|(_, password)| password.to_owned())
}

/// The answer to a credential that opens nothing.
pub(crate) fn invalid() -> Problem {
    Problem::new(&Code::UNAUTHENTICATED, "the credential is unknown, expired or revoked; sign in again")
}

/// What the request's address is counted as.
pub(super) fn counted_address(request: &HttpRequest) -> IpAddr {
    let peer = request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
    let forwarded = request.headers().get_all("x-forwarded-for").filter_map(|value| value.to_str().ok());
    let config = request.app_data::<web::Data<Config>>();
    counted(config.map_or(peer, |config| config.trusted_proxies.client(peer, forwarded)))
}
