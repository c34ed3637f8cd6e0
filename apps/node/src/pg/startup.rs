//! The beginning of a session: settings and authentication.

use fallible_iterator::FallibleIterator as _;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;

use super::cancel::CancelKey;
use super::error::{Failure, violation};
use super::wire::Wire;
use crate::database::server::Credentials;

/// The settings of a session. They have priority over those of roles and databases, and a reset restores them.
const SETTINGS: [(&str, &str); 9] = [
    ("application_name", "env.db"),
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("TimeZone", "UTC"),
    ("IntervalStyle", "postgres"),
    ("bytea_output", "hex"),
    // Prints the shortest text that denotes the same number.
    ("extra_float_digits", "1"),
    // The node cancels statements itself, so there is no timeout. If the node is killed, the interval lets the server
    // notice that the connection is closed.
    ("statement_timeout", "0"),
    ("client_connection_check_interval", "5s"),
];

/// Logs in.
///
/// # Errors
/// Returns [`Failure::Server`] if the server refuses the login.
pub async fn log_in(wire: &mut Wire, credentials: &Credentials) -> Result<Option<CancelKey>, Failure> {
    let login = [
        ("user", credentials.user.as_str()),
        ("database", credentials.database.as_str()),
        ("role", credentials.role.as_str()),
    ];
    frontend::startup_message(login.into_iter().chain(SETTINGS), &mut wire.outgoing)?;
    wire.send().await?;
    match wire.next().await? {
        Message::AuthenticationOk => {}
        Message::AuthenticationSasl(offer) => authenticate(wire, &offer, credentials).await?,
        _ => return Err(violation("the server requests an authentication other than SCRAM-SHA-256")),
    }
    let mut key = None;
    loop {
        match wire.next().await? {
            Message::BackendKeyData(data) => {
                key = Some(CancelKey { process: data.process_id(), secret: data.secret_key() });
            }
            Message::ReadyForQuery(_) => return Ok(key),
            _ => return Err(violation("unexpected message in a login")),
        }
    }
}

async fn authenticate(
    wire: &mut Wire,
    offer: &AuthenticationSaslBody,
    credentials: &Credentials,
) -> Result<(), Failure> {
    if !offer.mechanisms().any(|mechanism| Ok(mechanism == SCRAM_SHA_256))? {
        return Err(violation("the server does not offer SCRAM-SHA-256"));
    }
    let password = credentials.password.reveal().as_bytes();
    // The TLS certificate is verified, so the login needs no channel binding.
    let mut scram = ScramSha256::new(password, ChannelBinding::unsupported());
    frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), &mut wire.outgoing)?;
    wire.send().await?;
    let Message::AuthenticationSaslContinue(challenge) = wire.next().await? else {
        return Err(violation("the server sent no challenge"));
    };
    scram.update(challenge.data())?;
    frontend::sasl_response(scram.message(), &mut wire.outgoing)?;
    wire.send().await?;
    let Message::AuthenticationSaslFinal(proof) = wire.next().await? else {
        return Err(violation("the server did not prove that it knows the password"));
    };
    scram.finish(proof.data())?;
    match wire.next().await? {
        Message::AuthenticationOk => Ok(()),
        _ => Err(violation("unexpected message in an authentication")),
    }
}
