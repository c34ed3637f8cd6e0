//! Git over SSH (RFC 4254, section 6.5). A client can run the three git programs, and nothing else.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use protocol::GitAccess;
use ring::rand::{SecureRandom as _, SystemRandom};
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::ssh_key::{Algorithm, LineEnding, PrivateKey};
use russh::keys::{HashAlg, PublicKey};
use russh::server::{Auth, Config, Handler, Msg, Session, VerifiedPublicKey, run_stream};
use russh::{
    Channel, ChannelId, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Disconnect, MethodKind, MethodSet, Preferred,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use crate::archive;
use crate::exchange::{Credential, Mode, Output, Service};
use crate::git::Program;
use crate::limits::{AddressLimit, Busy, CountedConnection};
use crate::metrics::{Metrics, Transport};
use crate::path::RepositoryPath;

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
/// A client that does not read for this long is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(120);
/// The maximum length of a command, in bytes.
const MAX_COMMAND_BYTES: usize = 1024;
/// The minimum length of an RSA modulus, in bits (specification, "SSH keys").
const MIN_RSA_BITS: usize = 2048;
/// The maximum number of chunks of an output that are buffered for the client.
const BUFFERED_PARTS: usize = 4;
/// The exit code of a refused command, which is the one that git uses.
const REFUSED: u8 = 128;

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

/// A command on a channel.
struct Command {
    service: Service,
    metrics: Metrics,
    fingerprint: String,
    address: IpAddr,
    program: Program,
    /// The path, as the client sent it.
    path: String,
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

impl Command {
    /// Runs the command. Returns its exit code.
    async fn run(self, reader: ChannelReadHalf, writer: &ChannelWriteHalf<Msg>) -> u8 {
        let credential = Some(Credential::SshKey(self.fingerprint.clone()));
        let path = RepositoryPath::parse(&self.path);
        let access = self.service.authorize(Transport::Ssh, credential, path, self.program.writes()).await;
        let grant = match access {
            Ok(GitAccess::Allowed(grant)) => grant,
            Ok(GitAccess::Unauthenticated) => return refuse(writer, "your key is not registered any more").await,
            Ok(GitAccess::Forbidden(message)) => return refuse(writer, &message).await,
            Ok(GitAccess::NotFound) => return refuse(writer, "repository not found").await,
            Err(_) => return refuse(writer, "the service is not available; try again in a moment").await,
        };
        let mut input = Box::pin(stream::unfold(reader, async |mut reader| {
            loop {
                match reader.wait().await {
                    Some(ChannelMsg::Data { data }) => return Some((Ok(data), reader)),
                    Some(ChannelMsg::Eof) => return None,
                    Some(ChannelMsg::Close) | None => {
                        return Some((Err(io::Error::from(io::ErrorKind::ConnectionAborted)), reader));
                    }
                    Some(_) => {}
                }
            }
        }));
        let request = match self.program {
            Program::UploadArchive => match archive::read_request(&mut input).await {
                Some(request) => Some(Ok(request)),
                None => {
                    return refuse(writer, "only --format, --prefix, --mtime, --verbose and a level are allowed").await;
                }
            },
            _ => None,
        };
        let input = stream::iter(request).chain(input);
        let mode = Mode { program: self.program, arguments: &[], protocol: self.protocol.as_deref() };
        let exchange = match self.service.start(&grant, self.address, mode).await {
            Ok(exchange) => exchange,
            Err(error) if error.is::<Busy>() => return refuse(writer, &error.to_string()).await,
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, repository = grant.repository, "cannot serve a repository");
                return refuse(writer, "the service is not available; try again in a moment").await;
            }
        };
        let (sender, mut receiver) = mpsc::channel(BUFFERED_PARTS);
        let started = Instant::now();
        let send = async {
            while let Some(output) = receiver.recv().await {
                let send = async {
                    match output {
                        Output::Data(data) => writer.data_bytes(data).await,
                        Output::Error(text) => writer.extended_data_bytes(1, text).await,
                        Output::Refusal(reason) => {
                            writer.extended_data_bytes(1, format!("svc: {reason}\n").into_bytes()).await
                        }
                        // The exit code is the client's error.
                        Output::Abort => Ok(()),
                    }
                };
                // The send waits until the client can receive more data. It does not detect the end of the connection,
                // so it has a timeout.
                if !timeout(WRITE_TIMEOUT, send).await.is_ok_and(|sent| sent.is_ok()) {
                    // The client disconnected. Dropping the receiver ends the exchange.
                    break;
                }
            }
            drop(receiver);
        };
        let (result, ()) = tokio::join!(exchange.run(input, sender, false), send);
        let (outcome, code) = match result {
            Ok(0) => ("success", 0),
            Ok(code) => ("failure", code),
            Err(error) => {
                let program = self.program.name();
                tracing::debug!(error = format!("{error:#}"), program, "an exchange was ended");
                ("ended", REFUSED)
            }
        };
        self.metrics.exchange(Transport::Ssh, self.program.name(), outcome, started.elapsed());
        code
    }
}

async fn refuse(writer: &ChannelWriteHalf<Msg>, message: &str) -> u8 {
    // The client may have disconnected.
    let _ = writer.extended_data_bytes(1, Bytes::from(format!("svc: {message}\n"))).await;
    REFUSED
}

async fn end(writer: &ChannelWriteHalf<Msg>, code: u8) -> Result<(), russh::Error> {
    writer.exit_status(u32::from(code)).await?;
    writer.eof().await?;
    writer.close().await
}

/// Parses a command of a git client, such as `git-upload-pack '/ada/site/app.git'`. No shell is involved: only the
/// quotes that git writes are parsed.
fn parse(command: &[u8]) -> Option<(Program, String)> {
    let command = str::from_utf8(command).ok().filter(|command| command.len() <= MAX_COMMAND_BYTES)?;
    let (program, path) = match command.strip_prefix("git ") {
        // The form without a hyphen: `git upload-pack '…'`.
        Some(rest) => rest.split_once(' ').map(|(program, path)| (format!("git-{program}"), path))?,
        None => command.split_once(' ').map(|(program, path)| (program.to_owned(), path))?,
    };
    let path = path.trim();
    let path = path.strip_prefix('\'').and_then(|path| path.strip_suffix('\'')).unwrap_or(path);
    Some((Program::named(&program)?, path.to_owned()))
}

/// Returns whether a key may authenticate, by its type, its length and the algorithm of its signature.
fn is_acceptable(key: &PublicKey, algorithm: &Algorithm) -> bool {
    match algorithm {
        Algorithm::Ed25519 | Algorithm::Ecdsa { .. } => true,
        Algorithm::Rsa { hash: Some(_) } => key.key_data().rsa().is_some_and(|rsa| {
            let bits = rsa.n().as_positive_bytes().map_or(0, |bytes| {
                let leading = bytes.first().map_or(0, |first| first.leading_zeros() as usize);
                bytes.len() * 8 - leading
            });
            bits >= MIN_RSA_BITS
        }),
        _ => false,
    }
}

/// Reads the host key, or creates it.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
fn host_key_at(path: &Path) -> anyhow::Result<PrivateKey> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(PrivateKey::from_openssh(text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut seed = [0; 32];
            SystemRandom::new().fill(&mut seed).map_err(io::Error::other)?;
            let key = PrivateKey::from(Ed25519Keypair::from_seed(&seed));
            // Only the owner can read a temporary file.
            let mut file = tempfile::NamedTempFile::new_in(path.parent().context("the key has a directory")?)?;
            file.write_all(key.to_openssh(LineEnding::LF)?.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(key)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commands_of_git_are_parsed() {
        let path = "/ada/site/app.git".to_owned();
        for command in [
            "git-upload-pack '/ada/site/app.git'",
            "git upload-pack '/ada/site/app.git'",
            "git-upload-pack /ada/site/app.git",
        ] {
            assert_eq!(parse(command.as_bytes()), Some((Program::UploadPack, path.clone())), "{command}");
        }
        for command in ["ls", "git", "git-shell 'x'", "git-upload-pack", "sh -c 'git-upload-pack x'", ""] {
            assert_eq!(parse(command.as_bytes()), None, "{command}");
        }
        assert_eq!(parse(b"git-upload-pack '\xff'"), None);
    }
}
