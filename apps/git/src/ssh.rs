//! Git over SSH (RFC 4254, section 6.5). A client can run the three git programs, and nothing else.

mod channels;
mod command;
mod keys;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::FutureExt as _;
use russh::keys::HashAlg;
use russh::keys::ssh_key::Algorithm;
use russh::server::{Auth, Config, Handler, Msg, Session, VerifiedPublicKey, run_stream};
use russh::{Channel, ChannelId, Disconnect, MethodKind, MethodSet, Preferred, Pty, Sig};
use semaphores::KeyedSemaphores;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::channels::{ChannelCount, ChannelCounts, wait_for_stop, wait_until_done};
use self::command::{Command, end, parse, refuse};
use self::keys::{host_key_at, is_acceptable};
use crate::exchange::Service;
use crate::limits::{AddressSemaphores, Busy};
use crate::metrics::Metrics;

/// The maximum number of concurrent connections.
const MAX_CONNECTIONS: usize = 1024;
/// The maximum number of unauthenticated connections per address.
const MAX_LOGINS_PER_ADDRESS: usize = 16;
/// A connection without an open channel for this long is closed, for example because the client does not authenticate.
/// A channel is closed if it starts no command for this long. `git-upload-archive` waits this long for its request, and
/// a refused command until the client can receive the reason.
const GRACE: Duration = Duration::from_secs(30);
/// The maximum time for which a stop of the server waits for the commands in progress.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection without any data for this long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// The maximum number of open channels per connection. `MaxSessions` of OpenSSH has the same default.
const MAX_CHANNELS: usize = 10;
/// The maximum number of channels that a client can open on one connection. If the server closes a channel first, russh
/// keeps a part of it in memory until the connection ends.
const MAX_OPENED_CHANNELS: usize = 256;

/// The maximum size of a packet of data, or of the text in another message of a channel.
const MAX_PACKET_BYTES: u32 = 32 * 1024;
/// The maximum number of messages of a channel that are kept until they are read: packets of data and, before the
/// command, environment variables, of which clients send about a dozen. Further messages block the connection.
const MAX_UNREAD_MESSAGES: usize = 32;

/// Serves git clients over SSH.
pub struct SshServer {
    listener: TcpListener,
    config: Arc<Config>,
    service: Service,
    max_per_user: usize,
    metrics: Metrics,
}

/// A connection.
struct Connection {
    service: Service,
    metrics: Metrics,
    address: IpAddr,
    /// The authenticated connections of all users.
    users: Arc<KeyedSemaphores<String>>,
    max_per_user: usize,
    /// Count the connection: by its address until the client authenticates, and then by its user.
    permits: Vec<OwnedSemaphorePermit>,
    /// The fingerprint of the client's key, after authentication.
    fingerprint: Option<String>,
    /// The reason why the client can run no command.
    refusal: Option<Busy>,
    /// The opened channels that have not started a command.
    channels: HashMap<ChannelId, OpenChannel>,
    /// All channels, with those that run a command.
    counts: watch::Sender<ChannelCounts>,
}

struct OpenChannel {
    /// The command takes ownership of the channel. If no command arrives within [`GRACE`], the channel is dropped,
    /// because its unread data would block the connection.
    channel: Arc<Mutex<Option<CountedChannel>>>,
    /// The protocol version of git that the client requested.
    protocol: Option<String>,
    /// Drops the channel after [`GRACE`].
    _timer: JoinSet<()>,
}

/// A channel that counts as open until it is dropped.
struct CountedChannel {
    channel: Channel<Msg>,
    count: ChannelCount,
}

impl SshServer {
    /// Opens the listener. Creates the host key on the first start. A user can have `max_per_user` connections.
    pub async fn bind(
        address: SocketAddr,
        host_key: &Path,
        service: Service,
        max_per_user: usize,
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
            maximum_packet_size: MAX_PACKET_BYTES,
            channel_buffer_size: MAX_UNREAD_MESSAGES,
            nodelay: true,
            ..Config::default()
        };
        Ok(Self { listener, config: Arc::new(config), service, max_per_user, metrics })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts connections until `stop` completes. Then waits for the commands in progress.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let stopping = watch::Sender::new(false);
        tokio::select! {
            () = self.accept(&stopping) => {}
            () = stop => {}
        }
        // Closes the listener.
        drop(self);
        stopping.send_replace(true);
        // Each connection has a receiver.
        if timeout(STOP_TIMEOUT, stopping.closed()).await.is_err() {
            tracing::warn!(connections = stopping.receiver_count(), "stopped before all SSH clients had finished");
        }
    }

    async fn accept(&self, stopping: &watch::Sender<bool>) {
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let logins = AddressSemaphores::new(MAX_LOGINS_PER_ADDRESS);
        let users = Arc::new(KeyedSemaphores::new(self.max_per_user));
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
            let Ok(permits) = logins.of(address).map(Semaphore::try_acquire_owned).collect() else {
                tracing::debug!(%address, "too many SSH connections before authentication");
                continue;
            };
            let connection = Connection {
                service: self.service.clone(),
                metrics: self.metrics.clone(),
                address,
                users: Arc::clone(&users),
                max_per_user: self.max_per_user,
                permits,
                fingerprint: None,
                refusal: None,
                channels: HashMap::new(),
                counts: watch::Sender::new(ChannelCounts::default()),
            };
            let (config, stopping) = (Arc::clone(&self.config), stopping.subscribe());
            tokio::spawn(async move {
                if let Err(error) = serve(config, stream, connection, stopping).await {
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
    mut stopping: watch::Receiver<bool>,
) -> Result<(), russh::Error> {
    let counts = connection.counts.subscribe();
    let started = tokio::select! {
        started = timeout(GRACE, run_stream(config, stream, connection)) => started,
        () = wait_for_stop(&mut stopping) => return Ok(()),
    };
    let session = started.map_err(|_| russh::Error::ConnectionTimeout)??;
    let handle = session.handle();
    let mut session = session.fuse();
    tokio::select! {
        ended = &mut session => return ended,
        () = wait_until_done(counts, &mut stopping) => {}
    }
    // The connection may have ended.
    let _ = handle.disconnect(Disconnect::ByApplication, "the connection is not in use".into(), String::new()).await;
    session.await
}

impl Handler for Connection {
    type Error = russh::Error;

    async fn auth_publickey(&mut self, _: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        if !is_acceptable(key.public_key, key.algorithm) {
            return Ok(Auth::reject());
        }
        let fingerprint = key.public_key.fingerprint(HashAlg::Sha256).to_string();
        // Each command asks the control plane whether its access is allowed. If the user has too many connections, or
        // the control plane is unavailable, the key is accepted, so that the command can report this to the user;
        // otherwise SSH would report a refused key. The connection keeps the limits of an unauthenticated one.
        match self.service.authenticate(self.address, fingerprint.clone()).await {
            Ok(Some(user)) => match self.users.of(user).try_acquire_owned() {
                Ok(permit) => self.permits = vec![permit],
                Err(_) => self.refusal = Some(Busy::Connections(self.max_per_user)),
            },
            Ok(None) => return Ok(Auth::reject()),
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
        if !self.counts.borrow().can_open() {
            // The reply is dropped without an answer, which rejects the channel.
            return Ok(());
        }
        let (id, count) = (channel.id(), ChannelCount::new(&self.counts));
        let channel = Arc::new(Mutex::new(Some(CountedChannel { channel, count })));
        let unused = Arc::clone(&channel);
        let mut timer = JoinSet::new();
        timer.spawn(async move {
            sleep(GRACE).await;
            drop(unused.lock().unwrap_or_else(PoisonError::into_inner).take());
        });
        self.channels.insert(id, OpenChannel { channel, protocol: None, _timer: timer });
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
        check_size(name.len() + value.len())?;
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
        check_size(command.len())?;
        let open = self.channels.remove(&id).and_then(|open| Some((open.take()?, open.protocol)));
        let (Some((CountedChannel { channel, count }, protocol)), Some(fingerprint)) = (open, self.fingerprint.clone())
        else {
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
        let refusal = self.refusal;
        tokio::spawn(async move {
            let _count = count;
            let (reader, writer) = channel.split();
            let code = match (command, refusal) {
                (_, Some(refusal)) => refuse(reader, &writer, &refusal.to_string()).await,
                (Some(command), None) => command.run(reader, &writer).await,
                (None, None) => {
                    let reason = "this server runs git-upload-pack, git-receive-pack and git-upload-archive";
                    refuse(reader, &writer, reason).await
                }
            };
            if let Err(error) = end(&writer, code).await {
                tracing::debug!(%error, "an SSH client disconnected");
            }
        });
        Ok(())
    }

    async fn shell_request(&mut self, id: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        if let Some(CountedChannel { channel, count }) = self.channels.remove(&id).and_then(|open| open.take()) {
            session.channel_success(id)?;
            tokio::spawn(async move {
                let _count = count;
                let (reader, writer) = channel.split();
                let reason = "your key is registered; this server has no shell, use git";
                let code = refuse(reader, &writer, reason).await;
                if let Err(error) = end(&writer, code).await {
                    tracing::debug!(%error, "an SSH client disconnected");
                }
            });
        }
        Ok(())
    }

    async fn data(&mut self, id: ChannelId, data: &[u8], _: &mut Session) -> Result<(), Self::Error> {
        if self.channels.contains_key(&id) {
            return Err(russh::Error::Inconsistent);
        }
        check_size(data.len())
    }

    async fn extended_data(&mut self, _: ChannelId, _: u32, _: &[u8], _: &mut Session) -> Result<(), Self::Error> {
        Err(russh::Error::Inconsistent)
    }

    async fn subsystem_request(&mut self, id: ChannelId, name: &str, session: &mut Session) -> Result<(), Self::Error> {
        check_size(name.len())?;
        session.channel_failure(id)
    }

    async fn pty_request(
        &mut self,
        _: ChannelId,
        terminal: &str,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: &[(Pty, u32)],
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        check_size(terminal.len())
    }

    async fn x11_request(
        &mut self,
        _: ChannelId,
        _: bool,
        protocol: &str,
        cookie: &str,
        _: u32,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        check_size(protocol.len() + cookie.len())
    }

    async fn signal(&mut self, _: ChannelId, signal: Sig, _: &mut Session) -> Result<(), Self::Error> {
        match signal {
            Sig::Custom(name) => check_size(name.len()),
            _ => Ok(()),
        }
    }

    async fn channel_close(&mut self, id: ChannelId, _: &mut Session) -> Result<(), Self::Error> {
        self.channels.remove(&id);
        Ok(())
    }
}

impl OpenChannel {
    fn take(&self) -> Option<CountedChannel> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Returns an error, which ends the connection, if a message of a channel is too large. russh keeps messages of any size
/// until they are read.
fn check_size(bytes: usize) -> Result<(), russh::Error> {
    if bytes > MAX_PACKET_BYTES as usize {
        return Err(russh::Error::Inconsistent);
    }
    Ok(())
}
