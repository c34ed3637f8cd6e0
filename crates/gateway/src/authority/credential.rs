//! What a request presents.

use std::net::IpAddr;

use actix_web::http::header::AUTHORIZATION;
use actix_web::{HttpRequest, web};
use kernel::{Token, TokenKind};

use crate::config::Config;
use crate::problem::Problem;
use crate::protocol;

/// The bearer token of this kind that came with the request.
pub(super) fn bearer(request: &HttpRequest, kind: TokenKind) -> Result<Token, Problem> {
    let mut sent = request.headers().get_all(AUTHORIZATION);
    let Some(first) = sent.next() else {
        let message = "sign in first, and send the token as Authorization: Bearer <token>";
        return Err(Problem::unauthenticated(&protocol::UNAUTHENTICATED, message, false));
    };
    let text = first.to_str().ok().filter(|_| sent.next().is_none()).unwrap_or_default();
    let (scheme, credential) = text.split_once(' ').unwrap_or_default();
    let token = scheme.eq_ignore_ascii_case("bearer").then(|| Token::parse(kind, credential.trim())).flatten();
    token.ok_or_else(invalid)
}

/// The answer to a credential that opens nothing.
pub(super) fn invalid() -> Problem {
    let message = "the credential is unknown, expired or revoked; sign in again";
    Problem::unauthenticated(&protocol::UNAUTHENTICATED, message, true)
}

/// Where the request came from: the peer, or whom a trusted proxy names.
pub(super) fn address(request: &HttpRequest) -> IpAddr {
    let peer = request.peer_addr().map_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
    let trusted = |address: &IpAddr| {
        request
            .app_data::<web::Data<Config>>()
            .is_some_and(|config| config.trusted_proxies.iter().any(|net| net.contains(address)))
    };
    if !trusted(&peer) {
        return peer;
    }
    let forwarded = request.headers().get_all("x-forwarded-for").filter_map(|value| value.to_str().ok());
    let hops: Vec<IpAddr> =
        forwarded.flat_map(|value| value.split(',')).filter_map(|hop| hop.trim().parse().ok()).collect();
    hops.into_iter().rev().find(|hop| !trusted(hop)).unwrap_or(peer)
}
