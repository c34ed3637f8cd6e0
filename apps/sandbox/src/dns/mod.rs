//! A name server, over UDP and TCP.

mod delegation;
mod zone;

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::TXT;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::{AbortHandle, JoinSet};

use crate::listener::accept;
pub use zone::InvalidRecord;
use zone::{Zone, parse_data, parse_name};

/// A fault of the name server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsFault {
    /// No response.
    Silent,
    /// No response over UDP.
    SilentUdp,
    /// No response over TCP.
    SilentTcp,
    /// TCP connections are closed without a response.
    CloseTcp,
    /// The response SERVFAIL.
    ServerFailure,
    /// The response REFUSED.
    Refused,
    /// The right id, followed by bytes that are not DNS.
    Garbage,
    /// A response with the wrong id.
    WrongId,
}

/// A name server. It is authoritative for all names: a name without records does not exist. Names below `localhost` have
/// the address 127.0.0.1 (RFC 6761 section 6.3).
#[derive(Debug)]
pub struct DnsServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    tasks: [AbortHandle; 2],
}

/// The maximum number of names and types whose queries are counted.
const MAX_COUNTED: usize = 10_000;

#[derive(Debug, Default)]
struct State {
    zone: Zone,
    fault: Option<DnsFault>,
    /// The names with a lame delegation.
    lame: HashSet<Name>,
    /// The nameserver of delegated names.
    nameserver: Option<SocketAddr>,
    queries: HashMap<(Name, RecordType), usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Udp,
    Tcp,
}

impl DnsServer {
    /// Starts a name server on a free port.
    ///
    /// # Panics
    /// Panics if no port is free.
    pub async fn start() -> Self {
        Self::start_on((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap()
    }

    /// Starts a name server on this address. Port 0 selects a free port.
    ///
    /// # Errors
    /// Returns an error if the address is in use or not local.
    pub async fn start_on(address: SocketAddr) -> io::Result<Self> {
        let (listener, socket) = bind(address).await?;
        let (address, state) = (listener.local_addr()?, Arc::<Mutex<State>>::default());
        let udp = tokio::spawn(serve_udp(socket, Arc::clone(&state)));
        let served = Arc::clone(&state);
        let tcp = tokio::spawn(accept(listener, move |stream| serve_stream(stream, Arc::clone(&served))));
        Ok(Self { address, state, tasks: [udp.abort_handle(), tcp.abort_handle()] })
    }

    /// Returns the server's address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the records of a name and type. The text of a record is an address or a name. For CAA, it is the
    /// authority that may issue, or empty. For MX, it contains the preference and a name; for SOA, the primary's name,
    /// the mailbox and the serial. The text of a TXT record is split into strings of 255 bytes.
    ///
    /// # Panics
    /// Panics if a text does not match the type, or the type is not A, AAAA, CAA, CNAME, MX, NS, SOA or TXT.
    pub fn set(&self, owner: &str, kind: RecordType, texts: &[&str]) {
        let data = texts.iter().map(|text| parse_data(kind, text).unwrap()).collect();
        self.state().zone.set(parse_name(owner).unwrap(), kind, data);
    }

    /// Replaces the TXT records of a name by one record with these strings.
    ///
    /// # Panics
    /// Panics if the name is invalid.
    pub fn set_strings(&self, owner: &str, strings: &[&[u8]]) {
        let data = RData::TXT(TXT::from_bytes(strings.to_vec()));
        self.state().zone.set(parse_name(owner).unwrap(), RecordType::TXT, vec![data]);
    }

    /// Adds a record.
    ///
    /// # Errors
    /// Returns an error if the name, the type or the text is invalid.
    pub fn add(&self, owner: &str, kind: &str, text: &str) -> Result<(), InvalidRecord> {
        let kind = kind.parse().map_err(|_| InvalidRecord("the type"))?;
        self.state().zone.add(parse_name(owner)?, kind, parse_data(kind, text)?);
        Ok(())
    }

    /// Removes the records of a name and type.
    ///
    /// # Errors
    /// Returns an error if the name or the type is invalid.
    pub fn remove(&self, owner: &str, kind: &str) -> Result<(), InvalidRecord> {
        let kind = kind.parse().map_err(|_| InvalidRecord("the type"))?;
        self.state().zone.set(parse_name(owner)?, kind, Vec::new());
        Ok(())
    }

    /// Replaces the NS records of a name.
    ///
    /// # Errors
    /// Returns an error if a name is invalid.
    pub fn delegate(&self, owner: &str, nameservers: &[String]) -> Result<(), InvalidRecord> {
        let data = nameservers.iter().map(|target| parse_data(RecordType::NS, target)).collect::<Result<_, _>>()?;
        self.state().zone.set(parse_name(owner)?, RecordType::NS, data);
        Ok(())
    }

    /// Returns all records as name, type and text, sorted.
    #[must_use]
    pub fn records(&self) -> Vec<[String; 3]> {
        self.state().zone.records()
    }

    /// Injects a fault, or removes it.
    pub fn inject(&self, fault: Option<DnsFault>) {
        self.state().fault = fault;
    }

    /// Makes a name with NS records a delegation to this nameserver: it gets the queries for the name and all names below
    /// it, except those for records that this server has. For a name that the nameserver refuses, this server responds.
    pub fn delegate_to(&self, nameserver: SocketAddr) {
        self.state().nameserver = Some(nameserver);
    }

    /// Makes the delegation of a name lame: the response for the name and all names below it is SERVFAIL.
    ///
    /// # Panics
    /// Panics if the name is invalid.
    pub fn set_lame(&self, owner: &str) {
        self.state().lame.insert(parse_name(owner).unwrap());
    }

    /// Returns the number of queries for a name and type so far, over UDP and TCP, with or without a response.
    ///
    /// # Panics
    /// Panics if the name is invalid.
    #[must_use]
    pub fn queries(&self, owner: &str, kind: RecordType) -> usize {
        self.state().queries.get(&(parse_name(owner).unwrap(), kind)).copied().unwrap_or_default()
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

/// Binds the same port for TCP and UDP.
async fn bind(address: SocketAddr) -> io::Result<(TcpListener, UdpSocket)> {
    for _ in 0..20 {
        let listener = TcpListener::bind(address).await?;
        match UdpSocket::bind(listener.local_addr()?).await {
            Ok(socket) => return Ok((listener, socket)),
            Err(error) if address.port() != 0 => return Err(error),
            // Another process uses this port for UDP, so try another port.
            Err(_) => {}
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

async fn serve_udp(socket: UdpSocket, state: Arc<Mutex<State>>) {
    let (socket, mut buffer) = (Arc::new(socket), [0; 4096]);
    let mut responses = JoinSet::new();
    while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
        let request = buffer.get(..length).unwrap_or_default().to_vec();
        let (socket, state) = (Arc::clone(&socket), Arc::clone(&state));
        responses.spawn(async move {
            if let Some(answer) = respond(&state, &request, Transport::Udp).await {
                // If this fails, the client receives no response, as if the datagram was lost.
                let _ = socket.send_to(&answer, client).await;
            }
        });
        while responses.try_join_next().is_some() {}
    }
}

async fn serve_stream(mut stream: TcpStream, state: Arc<Mutex<State>>) -> io::Result<()> {
    loop {
        let mut request = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut request).await?;
        match respond(&state, &request, Transport::Tcp).await {
            Some(answer) if answer.is_empty() => return Ok(()),
            Some(answer) => {
                stream.write_u16(answer.len().try_into().unwrap()).await?;
                stream.write_all(&answer).await?;
            }
            None => pending().await,
        }
    }
}

/// Responds to a request. Returns `None` to send no response, and an empty response to close the connection.
async fn respond(state: &Mutex<State>, bytes: &[u8], transport: Transport) -> Option<Vec<u8>> {
    let request = Message::from_vec(bytes).ok()?;
    let nameserver = state.lock().unwrap().begin(&request);
    if let Some(nameserver) = nameserver {
        let Ok(answer) = delegation::forward(nameserver, bytes, transport).await else {
            return refusal(&request, ResponseCode::ServFail).to_vec().ok();
        };
        let code = Message::from_vec(&answer).ok()?.metadata.response_code;
        if code != ResponseCode::Refused {
            return Some(answer);
        }
    }
    state.lock().unwrap().answer(&request, transport)
}

impl State {
    /// Counts a request. Returns the nameserver to which it must be forwarded.
    fn begin(&mut self, request: &Message) -> Option<SocketAddr> {
        let query = request.queries.first()?;
        // Only tests read the counts, and they query fewer names.
        if self.queries.len() == MAX_COUNTED {
            self.queries.clear();
        }
        *self.queries.entry((query.name().clone(), query.query_type())).or_default() += 1;
        self.nameserver.filter(|_| self.fault.is_none() && self.zone.is_delegated(query))
    }

    /// Answers a request with the records of this server. Returns `None` to send no response, and an empty response to
    /// close the connection.
    fn answer(&self, request: &Message, transport: Transport) -> Option<Vec<u8>> {
        let mut answer = self.zone.answer(request);
        if request.queries.iter().any(|query| self.lame.iter().any(|apex| apex.zone_of(query.name()))) {
            answer = refusal(request, ResponseCode::ServFail);
        }
        match (self.fault, transport) {
            (Some(DnsFault::Silent), _)
            | (Some(DnsFault::SilentUdp), Transport::Udp)
            | (Some(DnsFault::SilentTcp), Transport::Tcp) => return None,
            (Some(DnsFault::CloseTcp), Transport::Tcp) => return Some(Vec::new()),
            (Some(DnsFault::ServerFailure), _) => answer = refusal(request, ResponseCode::ServFail),
            (Some(DnsFault::Refused), _) => answer = refusal(request, ResponseCode::Refused),
            (Some(DnsFault::Garbage), _) => return Some([&request.id.to_be_bytes()[..], &[0xff; 30]].concat()),
            (Some(DnsFault::WrongId), _) => answer.metadata.id ^= 1,
            _ => {}
        }
        let whole = answer.to_vec().unwrap();
        // Without EDNS, the limit is 512 bytes (RFC 1035 section 2.3.4).
        let fits = transport == Transport::Tcp || whole.len() <= usize::from(request.max_payload());
        Some(if fits { whole } else { answer.truncate().to_vec().unwrap() })
    }
}

fn refusal(request: &Message, code: ResponseCode) -> Message {
    let mut answer = Message::error_msg(request.id, request.op_code, code);
    answer.add_queries(request.queries.iter().cloned());
    answer
}
