//! Git over SSH (RFC 4254, section 6.5). A client can run the three git programs, and nothing else.

mod command;
mod keys;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::FutureExt as _;
use protocol::GitAccess;
use russh::keys::HashAlg;
use russh::keys::ssh_key::Algorithm;
use russh::server::{Auth, Config, Handler, Msg, Session, VerifiedPublicKey, run_stream};
use russh::{Channel, ChannelId, Disconnect, MethodKind, MethodSet, Preferred};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use self::command::{Command, end, parse, refuse};
use self::keys::{host_key_at, is_acceptable};
use crate::exchange::{Credential, Service};
use crate::limits::{AddressLimit, CountedConnection};
use crate::metrics::{Metrics, Transport};

/// The maximum number of concurrent connections.
const MAX_CONNECTIONS: usize = 1024;
/// The maximum number of unauthenticated connections per address.
const MAX_LOGINS_PER_ADDRESS: usize = 16;
/// The maximum duration of the authentication.
const LOGIN_GRACE: Duration = Duration::from_secs(30);
/// A connection without any data for this long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// The maximum number of channels per connection that have not started a command.
const MAX_CHANNELS: usize = 16;

/// Serves git clients over SSH.
pub struct SshServer {
    listener: TcpListener,
    config: Arc<Config>,
    service: Service,
    metrics: Metrics,
}

/// A connection.
struct Connection {
    service: Service,
    metrics: Metrics,
    is_authenticated: Arc<AtomicBool>,
    address: IpAddr,
    /// Counts the connection as unauthenticated. It is dropped when the client authenticates.
    login: Option<CountedConnection>,
    /// The fingerprint of the client's key, after authentication.
    fingerprint: Option<String>,
    /// The opened channels that have not started a command.
    channels: HashMap<ChannelId, OpenChannel>,
}

struct OpenChannel {
    /// The command takes ownership of the channel. If no command arrives within [`LOGIN_GRACE`], the channel is
    /// dropped, because its unread data would block the connection.
    channel: Arc<Mutex<Option<Channel<Msg>>>>,
    /// The protocol version of git that the client requested.
    protocol: Option<String>,
}

impl SshServer {
    /// Opens the listener. Creates the host key on the first start.
    pub async fn bind(
        address: SocketAddr,
        host_key: &Path,
        service: Service,
        metrics: Metrics,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let keys = vec![host_key_at(host_key).context("cannot use the SSH host key")?];
        // Rejects signatures with SHA-1.
        let is_strong = |algorithm: &&Algorithm| !matches!(algorithm, Algorithm::Rsa { hash: None });
        let algorithms = Preferred::DEFAULT.key.iter().filter(is_strong).cloned().collect();
        let config = Config {
            methods: MethodSet::from([MethodKind::PublicKey].as_slice()),
            auth_rejection_time: Duration::from_millis(300),
            auth_rejection_time_initial: Some(Duration::ZERO),
            keys,
            preferred: Preferred { key: algorithms, ..Preferred::DEFAULT },
            inactivity_timeout: Some(IDLE_TIMEOUT),
            keepalive_interval: Some(Duration::from_secs(60)),
            nodelay: true,
            ..Config::default()
        };
        Ok(Self { listener, config: Arc::new(config), service, metrics })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts connections.
    pub async fn run(self) {
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let logins = AddressLimit::new(MAX_LOGINS_PER_ADDRESS);
        loop {
            let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
            let (stream, address) = match self.listener.accept().await {
                Ok((stream, peer)) => (stream, peer.ip().to_canonical()),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an SSH connection");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Some(login) = logins.count(address) else {
                tracing::debug!(%address, "too many SSH connections before authentication");
                continue;
            };
            let is_authenticated = Arc::new(AtomicBool::new(false));
            let connection = Connection {
                service: self.service.clone(),
                metrics: self.metrics.clone(),
                is_authenticated: Arc::clone(&is_authenticated),
                address,
                login: Some(login),
                fingerprint: None,
                channels: HashMap::new(),
            };
            let config = Arc::clone(&self.config);
            tokio::spawn(async move {
                if let Err(error) = serve(config, stream, connection, &is_authenticated).await {
                    tracing::debug!(%error, "an SSH connection failed");
                }
                drop(permit);
            });
        }
    }
}

async fn serve(
    config: Arc<Config>,
    stream: TcpStream,
    connection: Connection,
    is_authenticated: &AtomicBool,
) -> Result<(), russh::Error> {
    let started = timeout(LOGIN_GRACE, run_stream(config, stream, connection)).await;
    let session = started.map_err(|_| russh::Error::ConnectionTimeout)??;
    let handle = session.handle();
    let mut session = session.fuse();
    tokio::select! {
        ended = &mut session => return ended,
        () = sleep(LOGIN_GRACE) => {}
    }
    if !is_authenticated.load(Ordering::Relaxed) {
        // The connection may have ended.
        let _ =
            handle.disconnect(Disconnect::ByApplication, "authentication took too long".into(), String::new()).await;
    }
    session.await
}

impl Handler for Connection {
    type Error = russh::Error;

    async fn auth_publickey(&mut self, _: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        if !is_acceptable(key.public_key, key.algorithm) {
            return Ok(Auth::reject());
        }
        let fingerprint = key.public_key.fingerprint(HashAlg::Sha256).to_string();
        let credential = Some(Credential::SshKey(fingerprint.clone()));
        // Here, only the signature is checked. Each command asks the control plane whether its access is allowed.
        match self.service.authorize(Transport::Ssh, credential, None, false).await {
            Ok(GitAccess::Allowed(_) | GitAccess::Forbidden(_) | GitAccess::NotFound) => {
                self.is_authenticated.store(true, Ordering::Relaxed);
                self.login = None;
            }
            Ok(GitAccess::Unauthenticated) => return Ok(Auth::reject()),
            // If the control plane is unavailable, the key is accepted, so that the command can report this to the
            // user; otherwise SSH would report a refused key. The connection keeps the limits of an unauthenticated
            // one.
            Err(_) => {}
        }
        self.fingerprint = Some(fingerprint);
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: russh::server::ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        if self.channels.len() >= MAX_CHANNELS {
            // The reply is dropped without an answer, which rejects the channel.
            return Ok(());
        }
        let (id, channel) = (channel.id(), Arc::new(Mutex::new(Some(channel))));
        let unused = Arc::clone(&channel);
        tokio::spawn(async move {
            sleep(LOGIN_GRACE).await;
            drop(unused.lock().unwrap_or_else(PoisonError::into_inner).take());
        });
        self.channels.insert(id, OpenChannel { channel, protocol: None });
        reply.accept().await;
        Ok(())
    }

    async fn env_request(
        &mut self,
        id: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        match self.channels.get_mut(&id).filter(|_| name == "GIT_PROTOCOL") {
            Some(channel) => {
                channel.protocol = Some(value.to_owned());
                session.channel_success(id)
            }
            // Other variables are not passed to git.
            None => session.channel_failure(id),
        }
    }

    async fn exec_request(&mut self, id: ChannelId, command: &[u8], session: &mut Session) -> Result<(), Self::Error> {
        let open = self.channels.remove(&id).and_then(|open| Some((open.take()?, open.protocol)));
        let (Some((channel, protocol)), Some(fingerprint)) = (open, self.fingerprint.clone()) else {
            return session.channel_failure(id);
        };
        session.channel_success(id)?;
        let (service, metrics, address) = (self.service.clone(), self.metrics.clone(), self.address);
        let command = parse(command).map(|(program, path)| Command {
            service,
            metrics,
            fingerprint,
            address,
            program,
            path,
            protocol,
        });
        tokio::spawn(async move {
            let (reader, writer) = channel.split();
            let code = match command {
                Some(command) => command.run(reader, &writer).await,
                None => {
                    refuse(&writer, "this server runs git-upload-pack, git-receive-pack and git-upload-archive").await
                }
            };
            if let Err(error) = end(&writer, code).await {
                tracing::debug!(%error, "an SSH client disconnected");
            }
        });
        Ok(())
    }

    async fn shell_request(&mut self, id: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        if let Some(channel) = self.channels.remove(&id).and_then(|open| open.take()) {
            session.channel_success(id)?;
            tokio::spawn(async move {
                let (_, writer) = channel.split();
                let code = refuse(&writer, "your key is registered; this server has no shell, use git").await;
                if let Err(error) = end(&writer, code).await {
                    tracing::debug!(%error, "an SSH client disconnected");
                }
            });
        }
        Ok(())
    }

    async fn subsystem_request(&mut self, id: ChannelId, _: &str, session: &mut Session) -> Result<(), Self::Error> {
        session.channel_failure(id)
    }

    async fn channel_close(&mut self, id: ChannelId, _: &mut Session) -> Result<(), Self::Error> {
        self.channels.remove(&id);
        Ok(())
    }
}

impl OpenChannel {
    fn take(&self) -> Option<Channel<Msg>> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
