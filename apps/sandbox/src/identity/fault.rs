//! Faults of a provider, and of a single sign-in.

use serde_json::Value;

use crate::oauth::ResponseFault;

/// A fault of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityFault {
    /// An endpoint has this fault.
    Response(IdentityEndpoint, ResponseFault),
    /// The provider sends the browser back with this error code (RFC 6749 section 4.1.2.1).
    Authorization(&'static str),
    /// The code has already expired when the browser receives it.
    ExpiredCode,
    /// The ID token has this fault.
    IdToken(IdTokenFault),
}

/// An endpoint that the app's platform calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdentityEndpoint {
    Token,
    User,
    /// The keys that sign ID tokens.
    Keys,
}

/// A fault of an ID token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdTokenFault {
    /// The token response contains no ID token.
    Missing,
    /// The ID token is not a JWT.
    Malformed,
    /// The ID token is of another issuer.
    Issuer,
    /// The ID token is for another client.
    Audience,
    /// The ID token expired an hour ago.
    Expired,
    /// The nonce is that of another sign-in.
    Nonce,
    /// The ID token has no nonce.
    NoNonce,
    /// The ID token is of another person than the user endpoint's response.
    Subject,
    /// The signature is invalid.
    Signature,
    /// The ID token names a key that the provider does not have.
    UnknownKey,
    /// The ID token has no signature (`alg` is `none`).
    Unsigned,
}

/// The faults with their names on the pages.
pub(super) static FAULTS: [(&str, IdentityFault); 23] = {
    use IdTokenFault as IdToken;
    use IdentityEndpoint::{Keys, Token, User};
    use IdentityFault::Response;
    [
        ("token: 500", Response(Token, ResponseFault::Status(500))),
        ("token: slow", Response(Token, ResponseFault::Slow)),
        ("token: no response", Response(Token, ResponseFault::Hang)),
        ("token: 50 MB", Response(Token, ResponseFault::Large)),
        ("token: a page", Response(Token, ResponseFault::Html)),
        ("token: other JSON", Response(Token, ResponseFault::Json(Value::Null))),
        ("user: 500", Response(User, ResponseFault::Status(500))),
        ("user: no response", Response(User, ResponseFault::Hang)),
        ("user: a page", Response(User, ResponseFault::Html)),
        ("keys: 500", Response(Keys, ResponseFault::Status(500))),
        ("error: server_error", IdentityFault::Authorization("server_error")),
        ("code: expired", IdentityFault::ExpiredCode),
        ("ID token: missing", IdentityFault::IdToken(IdToken::Missing)),
        ("ID token: malformed", IdentityFault::IdToken(IdToken::Malformed)),
        ("ID token: other issuer", IdentityFault::IdToken(IdToken::Issuer)),
        ("ID token: other audience", IdentityFault::IdToken(IdToken::Audience)),
        ("ID token: expired", IdentityFault::IdToken(IdToken::Expired)),
        ("ID token: other nonce", IdentityFault::IdToken(IdToken::Nonce)),
        ("ID token: no nonce", IdentityFault::IdToken(IdToken::NoNonce)),
        ("ID token: other subject", IdentityFault::IdToken(IdToken::Subject)),
        ("ID token: invalid signature", IdentityFault::IdToken(IdToken::Signature)),
        ("ID token: unknown key", IdentityFault::IdToken(IdToken::UnknownKey)),
        ("ID token: not signed", IdentityFault::IdToken(IdToken::Unsigned)),
    ]
};

/// The name for no fault on the pages.
pub(super) const NONE: &str = "none";

/// Returns the fault with a name on the pages, which is `None` for [`NONE`] and for an empty name.
///
/// # Errors
/// Returns an error for an unknown name.
pub(super) fn find(name: &str) -> Result<Option<IdentityFault>, ()> {
    if ["", NONE].contains(&name) {
        return Ok(None);
    }
    FAULTS.iter().find(|(known, _)| *known == name).map(|(_, fault)| Some(fault.clone())).ok_or(())
}

/// Returns the names of the faults, and whether each is the current one.
pub(super) fn names(current: Option<&IdentityFault>) -> impl Iterator<Item = (&'static str, bool)> {
    let faults = FAULTS.iter().map(move |(name, fault)| (*name, current == Some(fault)));
    std::iter::once((NONE, current.is_none())).chain(faults)
}
