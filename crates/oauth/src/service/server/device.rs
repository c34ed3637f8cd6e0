//! The device flow (RFC 8628).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kernel::audit::Actor;
use kernel::{Digest, Time, Token, TokenKind, UserId};
use store::{Connection, Error, Outcome};

use super::{OAuth, Result, client_actor, requested_scopes};
use crate::error::OAuthError;
use crate::model::{
    AuthenticatedClient, DeviceAuthorization, DeviceConsent, DeviceDecision, DeviceState, TokenResponse,
};
use crate::repository::{DeviceCount, DeviceRecord, DeviceRepository as _};

/// The time in which a user can decide.
const DEVICE_SECONDS: i64 = 600;
/// The minimum number of seconds between two polls. `slow_down` adds the same number (RFC 8628 section 3.5).
const INTERVAL_SECONDS: i32 = 5;
/// The longest interval that `slow_down` leads to.
const MAX_INTERVAL_SECONDS: i32 = 60;
/// A poll may arrive this much too early. A client that polls with a timer of exactly the interval would otherwise be
/// slowed down whenever a request takes less time than the previous one.
const POLL_TOLERANCE_SECONDS: i64 = 1;
/// The maximum number of undecided requests of a confidential client.
const MAX_PENDING: i64 = 1_000;
/// The maximum number of undecided requests of a public client from one address. Anyone can state the id of a public
/// client, so a limit for all addresses would let one address block the client for all its users.
const MAX_PENDING_PER_ADDRESS: i64 = 50;
/// The maximum number of undecided requests of public clients from one network, an IPv4 /24 or an IPv6 /48. One network
/// has many addresses, so the requests of its addresses would otherwise reach [`MAX_OPEN`].
const MAX_PENDING_PER_NETWORK: i64 = 500;
/// The number of requests of all clients without a grant above which public clients cannot start more, which limits the
/// size of the table. Confidential clients have only their own limits, so that public clients cannot block them.
const MAX_OPEN: i64 = 100_000;
/// The longest `Retry-After` (contract section 3, "Errors").
const MAX_RETRY_SECONDS: i64 = 60;
/// The letters of user codes. They contain no vowels, so that codes do not form words (RFC 8628 section 6.1).
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const USER_CODE_LETTERS: usize = 8;

const UNUSABLE: OAuthError =
    OAuthError::InvalidGrant("the device code is unknown or used, or belongs to another client");

impl OAuth {
    /// Starts the request of a device. `address` is the one to which rate limits apply. For a public client, limits of
    /// undecided requests apply to each address and to each network.
    ///
    /// # Errors
    /// Returns [`OAuthError::UnauthorizedClient`], [`OAuthError::InvalidScope`] or
    /// [`OAuthError::TooManyDeviceRequests`].
    pub async fn device_authorize(
        &self,
        client: &AuthenticatedClient,
        scope: Option<&str>,
        address: IpAddr,
    ) -> Result<DeviceAuthorization> {
        let page = self.device_page()?.to_owned();
        let (limit_key, max_pending) = pending_limit(client, address);
        let network_key = (!client.is_confidential()).then(|| Digest::of(network(address).to_string().as_bytes()));
        let AuthenticatedClient(client) = client;
        if !client.device {
            return Err(OAuthError::UnauthorizedClient("the client is not registered for the device flow"));
        }
        let scopes = requested_scopes(scope, client.scopes)?;
        let (created_at, device_code) = (self.now(), Token::mint(TokenKind::DeviceCode, self.store.clock_rng()));
        let mut device = DeviceRecord {
            device_code_hash: device_code.hash(),
            user_code: self.user_code(),
            client: client.id,
            limit_key: Some(limit_key),
            network_key,
            scopes,
            state: DeviceState::Pending,
            user: None,
            poll_interval: INTERVAL_SECONDS,
            last_polled_at: None,
            created_at,
            expires_at: created_at.plus_seconds(DEVICE_SECONDS),
            grant: None,
        };
        let mut connection = self.store.connection().await?;
        check_limit(connection.device_count_undecided(limit_key, created_at).await?, max_pending, created_at)?;
        if let Some(network_key) = network_key {
            let in_network = connection.device_count_network(network_key, created_at).await?;
            check_limit(in_network, MAX_PENDING_PER_NETWORK, created_at)?;
            check_limit(connection.device_count_open(created_at).await?, MAX_OPEN, created_at)?;
        }
        // There are 25 billion codes, so the loop ends.
        while !connection.device_insert(&device).await? {
            device.user_code = self.user_code();
        }
        let user_code = shown(&device.user_code);
        Ok(DeviceAuthorization {
            device_code,
            verification_uri_complete: format!("{page}?user_code={user_code}"),
            verification_uri: page,
            user_code,
            expires_in: DEVICE_SECONDS,
            interval: INTERVAL_SECONDS,
        })
    }

    /// Returns an undecided request, which the dashboard shows before the user decides.
    ///
    /// # Errors
    /// Returns [`OAuthError::NotConfigured`] or [`OAuthError::DeviceRequestNotFound`].
    pub async fn device_request(&self, user_code: &str) -> Result<DeviceConsent> {
        self.require_device_requests()?;
        let code = normalized(user_code).ok_or(OAuthError::DeviceRequestNotFound)?;
        let found = self.store.connection().await?.device_find_pending(&code, self.now()).await?;
        let (device, name) = found.ok_or(OAuthError::DeviceRequestNotFound)?;
        Ok(DeviceConsent {
            user_code: shown(&device.user_code),
            client_id: device.client,
            name,
            scopes: device.scopes.iter().collect(),
            expires_at: device.expires_at,
        })
    }

    /// Stores the decision of a user.
    ///
    /// # Errors
    /// Returns [`OAuthError::NotConfigured`] or [`OAuthError::DeviceRequestNotFound`].
    pub async fn device_decide(&self, actor: &Actor, user: UserId, decision: DeviceDecision) -> Result<()> {
        self.require_device_requests()?;
        let code = normalized(&decision.user_code).ok_or(OAuthError::DeviceRequestNotFound)?;
        let state = if decision.approve { DeviceState::Approved } else { DeviceState::Denied };
        let now = self.now();
        self.store
            .transaction_unaudited_as(actor, async |tx: &mut Connection| {
                if tx.device_decide(&code, user, state, now).await? {
                    Ok(())
                } else {
                    Err(OAuthError::DeviceRequestNotFound)
                }
            })
            .await
    }

    /// Handles a poll of a device. After the approval of the user, creates the grant.
    ///
    /// # Errors
    /// Returns [`OAuthError::AuthorizationPending`], [`OAuthError::SlowDown`], [`OAuthError::AccessDenied`],
    /// [`OAuthError::ExpiredToken`], [`OAuthError::InvalidGrant`], [`OAuthError::InvalidTarget`] or
    /// [`OAuthError::NoSigningKey`].
    pub async fn exchange_device_code(
        &self,
        client: &AuthenticatedClient,
        device_code: &str,
        resource: Option<&str>,
        request_id: &str,
    ) -> Result<TokenResponse> {
        self.device_page()?;
        self.check_resource(resource)?;
        let code = Token::parse(TokenKind::DeviceCode, device_code).ok_or(UNUSABLE)?.hash();
        let found = self.store.connection().await?.device_find(code).await?;
        let device = found.filter(|device| device.client == client.id()).ok_or(UNUSABLE)?;
        let now = self.now();
        if device.grant.is_none() && device.expires_at <= now {
            return Err(OAuthError::ExpiredToken);
        }
        let user = match (device.state, device.user) {
            (DeviceState::Pending, _) => return Err(self.poll(&device).await?),
            (DeviceState::Denied, _) => return Err(OAuthError::AccessDenied),
            (DeviceState::Approved, Some(user)) => user,
            (DeviceState::Approved, None) => return Err(Error::inconsistent("an approval without a user").into()),
        };
        let keys = self.signing_keys().await?;
        let actor = client_actor(user, client.id(), request_id);
        let result = self
            .store
            .transaction(&actor, async |tx: &mut Connection| {
                let holder = (user, client.id());
                let (grant, response, event) = self.create_grant(tx, &keys, holder, device.scopes, now).await?;
                if tx.device_use(code, grant, now).await? {
                    Ok(Outcome::Changed(response, event))
                } else {
                    Err(UNUSABLE)
                }
            })
            .await;
        if let Err(OAuthError::InvalidGrant(_)) = result {
            let used = self.store.connection().await?.device_find(code).await?.and_then(|device| device.grant);
            if let Some(grant) = used {
                self.end_reused(&actor, user, grant, "device_code_reuse").await?;
            }
        }
        result
    }

    /// Records a poll that arrives before the decision, and returns its error.
    async fn poll(&self, device: &DeviceRecord) -> Result<OAuthError> {
        let now = self.now();
        let wait = i64::from(device.poll_interval) - POLL_TOLERANCE_SECONDS;
        let is_early = device.last_polled_at.is_some_and(|at| now < at.plus_seconds(wait));
        let slower = if is_early { INTERVAL_SECONDS } else { 0 };
        let interval = device.poll_interval.saturating_add(slower).min(MAX_INTERVAL_SECONDS);
        self.store.connection().await?.device_poll(device.device_code_hash, now, interval).await?;
        Ok(if is_early { OAuthError::SlowDown } else { OAuthError::AuthorizationPending })
    }

    fn device_page(&self) -> Result<&str> {
        self.config()?
            .device_verification_uri
            .as_deref()
            .ok_or(OAuthError::UnauthorizedClient("the device flow is off"))
    }

    /// Returns an error if the device flow is off, because no request of a device can then exist.
    fn require_device_requests(&self) -> Result<()> {
        match self.config()?.device_verification_uri {
            Some(_) => Ok(()),
            None => Err(OAuthError::DeviceRequestNotFound),
        }
    }

    fn user_code(&self) -> String {
        let random: [u8; 8] = self.store.clock_rng().bytes();
        let mut rest = u64::from_be_bytes(random);
        let mut code = String::with_capacity(USER_CODE_LETTERS);
        for _ in 0..USER_CODE_LETTERS {
            let digit = usize::try_from(rest % 20).unwrap_or_default();
            code.push(char::from(LETTERS.get(digit).copied().unwrap_or(b'B')));
            rest /= 20;
        }
        code
    }
}

/// Returns the key of the limit that applies to undecided requests of a client, and the limit.
fn pending_limit(client: &AuthenticatedClient, address: IpAddr) -> (Digest, i64) {
    let id = client.id();
    if client.is_confidential() {
        (Digest::of(id.to_string().as_bytes()), MAX_PENDING)
    } else {
        (Digest::of(format!("{id} {address}").as_bytes()), MAX_PENDING_PER_ADDRESS)
    }
}

/// Returns the network of an address: the IPv4 /24 or the IPv6 /48.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & (u32::MAX << 8)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 80)).into(),
    }
}

/// Returns an error if the number of requests has reached its limit. It is below the limit again when the first of them
/// expires.
fn check_limit(count: DeviceCount, limit: i64, now: Time) -> Result<()> {
    let DeviceCount { number, first_expiry } = count;
    if number < limit {
        return Ok(());
    }
    let wait = first_expiry.map_or(1, |expiry| expiry.seconds_since(now));
    Err(OAuthError::TooManyDeviceRequests { number, retry_after: wait.clamp(1, MAX_RETRY_SECONDS) })
}

/// Returns the letters of a user code. Ignores the case, and the hyphens and spaces that people add.
fn normalized(text: &str) -> Option<String> {
    let letters = text.chars().filter(|c| !matches!(c, '-' | ' ')).map(|c| c.to_ascii_uppercase());
    let code: String = letters.collect();
    let is_code = code.len() == USER_CODE_LETTERS && code.bytes().all(|letter| LETTERS.contains(&letter));
    is_code.then_some(code)
}

/// Formats a user code as two groups.
fn shown(code: &str) -> String {
    let (first, second) = code.split_at_checked(USER_CODE_LETTERS / 2).unwrap_or((code, ""));
    format!("{first}-{second}")
}
