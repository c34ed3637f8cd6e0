//! A name server, over UDP and TCP.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::TXT;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::{AbortHandle, JoinSet};

use super::zone::{Zone, data, name};

/// How a name server misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsTrouble {
    /// It answers nothing.
    Silent,
    /// It answers nothing over UDP.
    SilentUdp,
    /// It answers nothing over TCP.
    SilentTcp,
    /// It ends connections over TCP instead of answering.
    CloseTcp,
    /// It answers SERVFAIL.
    ServerFailure,
    /// It answers REFUSED.
    Refused,
    /// It answers with bytes that are no DNS, behind the right id.
    Garbage,
    /// It answers a question of another id.
    WrongId,
}

/// A name server on a port of its own. It knows nothing until it is told and claims authority for all names, so that
/// one which it was not told does not exist.
#[derive(Debug)]
pub struct DnsServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    tasks: [AbortHandle; 2],
}

#[derive(Debug, Default)]
struct State {
    zone: Zone,
    trouble: Option<DnsTrouble>,
    queries: HashMap<(Name, RecordType), usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Udp,
    Tcp,
}

impl DnsServer {
    /// Starts one.
    ///
    /// # Panics
    /// When there is no port.
    pub async fn start() -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST.into()).await.unwrap()
    }

    /// Starts one on this address of the machine.
    ///
    /// # Errors
    /// The machine has no such address, or no port.
    pub async fn start_on(ip: IpAddr) -> io::Result<Self> {
        let (listener, socket) = bind(ip).await?;
        let (address, state) = (listener.local_addr()?, Arc::<Mutex<State>>::default());
        let udp = tokio::spawn(serve_udp(socket, Arc::clone(&state)));
        let tcp = tokio::spawn(serve_tcp(listener, Arc::clone(&state)));
        Ok(Self { address, state, tasks: [udp.abort_handle(), tcp.abort_handle()] })
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on the name has these records of the type, and none when there are none here. A record is its text: an
    /// address, a name, for SOA the primary's name, the mailbox and the serial. TXT is cut into strings of 255 bytes.
    ///
    /// # Panics
    /// When a text is none of the type, or the type is none of A, AAAA, CNAME, NS, SOA and TXT.
    pub fn set(&self, owner: &str, kind: RecordType, texts: &[&str]) {
        let data = texts.iter().map(|text| data(kind, text)).collect();
        self.state().zone.set(name(owner), kind, data);
    }

    /// From now on the name has one TXT record, of these strings.
    ///
    /// # Panics
    /// When the name is none.
    pub fn set_strings(&self, owner: &str, strings: &[&[u8]]) {
        let data = RData::TXT(TXT::from_bytes(strings.to_vec()));
        self.state().zone.set(name(owner), RecordType::TXT, vec![data]);
    }

    /// From now on it misbehaves, or behaves again.
    pub fn trouble(&self, trouble: Option<DnsTrouble>) {
        self.state().trouble = trouble;
    }

    /// How often it was asked for this so far, over UDP and TCP together and answered or not.
    ///
    /// # Panics
    /// When the name is none.
    #[must_use]
    pub fn queries(&self, owner: &str, kind: RecordType) -> usize {
        self.state().queries.get(&(name(owner), kind)).copied().unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The same port twice.
async fn bind(ip: IpAddr) -> io::Result<(TcpListener, UdpSocket)> {
    for _ in 0..20 {
        let listener = TcpListener::bind((ip, 0)).await?;
        if let Ok(socket) = UdpSocket::bind(listener.local_addr()?).await {
            return Ok((listener, socket));
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

async fn serve_udp(socket: UdpSocket, state: Arc<Mutex<State>>) {
    let mut buffer = [0; 4096];
    while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
        let answer = buffer.get(..length).and_then(|request| state.lock().unwrap().answer(request, Over::Udp));
        if let Some(answer) = answer {
            let _ = socket.send_to(&answer, client).await;
        }
    }
}

async fn serve_tcp(listener: TcpListener, state: Arc<Mutex<State>>) {
    // The connections end with this task, which owns them.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve_stream(stream, Arc::clone(&state)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve_stream(mut stream: TcpStream, state: Arc<Mutex<State>>) -> io::Result<()> {
    loop {
        let mut request = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut request).await?;
        let answer = state.lock().unwrap().answer(&request, Over::Tcp);
        match answer {
            Some(answer) if answer.is_empty() => return Ok(()),
            Some(answer) => {
                stream.write_u16(answer.len().try_into().unwrap()).await?;
                stream.write_all(&answer).await?;
            }
            None => pending().await,
        }
    }
}

impl State {
    /// None is silence; nothing is the end of the connection.
    fn answer(&mut self, request: &[u8], over: Over) -> Option<Vec<u8>> {
        let request = Message::from_vec(request).ok()?;
        if let Some(query) = request.queries.first() {
            *self.queries.entry((query.name().clone(), query.query_type())).or_default() += 1;
        }
        let mut answer = self.zone.answer(&request);
        match (self.trouble, over) {
            (Some(DnsTrouble::Silent), _)
            | (Some(DnsTrouble::SilentUdp), Over::Udp)
            | (Some(DnsTrouble::SilentTcp), Over::Tcp) => return None,
            (Some(DnsTrouble::CloseTcp), Over::Tcp) => return Some(Vec::new()),
            (Some(DnsTrouble::ServerFailure), _) => answer = refusal(&request, ResponseCode::ServFail),
            (Some(DnsTrouble::Refused), _) => answer = refusal(&request, ResponseCode::Refused),
            (Some(DnsTrouble::Garbage), _) => return Some([&request.id.to_be_bytes()[..], &[0xff; 30]].concat()),
            (Some(DnsTrouble::WrongId), _) => answer.metadata.id ^= 1,
            _ => {}
        }
        let whole = answer.to_vec().unwrap();
        // Without EDNS it is 512 bytes (RFC 1035 section 2.3.4).
        let fits = over == Over::Tcp || whole.len() <= usize::from(request.max_payload());
        Some(if fits { whole } else { answer.truncate().to_vec().unwrap() })
    }
}

fn refusal(request: &Message, code: ResponseCode) -> Message {
    let mut answer = Message::error_msg(request.id, request.op_code, code);
    answer.add_queries(request.queries.iter().cloned());
    answer
}
