//! The test fixture: a primary with zones, and a secondary that uses hickory.

use std::net::SocketAddr;
use std::str::FromStr as _;
use std::time::Duration;

use dns::primary::{Primary, PrimaryConfig};
use dns::{Hosting, Rdata, RecordType, ZoneName};
use hickory_proto::op::{Message, Query};
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::rdata::tsig::TsigAlgorithm;
use hickory_proto::rr::{Name, RData, Record, RecordType as Kind, TSigner};
use kernel::ClockRng;
use testkit::TestStore;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

pub const NOW: u64 = 1_795_255_200;

pub struct Rig {
    pub base: TestStore,
    pub at: SocketAddr,
    _primary: tokio::task::JoinHandle<()>,
}

impl Rig {
    /// Starts a primary with this address as its only secondary.
    pub async fn start(secondary: &str) -> Self {
        let base = TestStore::start().await;
        let config = PrimaryConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            key: "xfr:hmac-sha256:MDEyMzQ1Njc4OWFiY2RlZg==".parse().unwrap(),
            secondaries: vec![secondary.parse().unwrap()],
            catalog: ZoneName::new_unchecked("catalog.invalid".to_owned()),
        };
        let hosting = Hosting::new(&["ns1.svc.example".to_owned()], "fallback.localhost").unwrap();
        let primary = Primary::bind(config, base.store.clone(), hosting).unwrap();
        let at = primary.listen;
        Self { base, at, _primary: tokio::spawn(primary.run()) }
    }

    /// Inserts a zone with this many addresses directly into Postgres.
    pub async fn zone(&self, name: &str, serial: u32, addresses: u32) {
        let id: uuid::Uuid = ClockRng::system().id();
        let path: String = name.rsplit('.').flat_map(|label| [label, "."]).collect();
        let statement = format!(
            "INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at) VALUES ('{id}', 'o{}', 'o', 'free', false, now()); \
             INSERT INTO dns.zones (id, org_id, name, path, serial, rrset_count, bytes, last_change_number, journal_bytes, \
                     dnssec_state, ds, created_at) \
                 VALUES ('{id}', '{id}', '{name}', '{path}', {serial}, {addresses} + 1, 0, 0, 0, 'off', '[]', now()); \
             INSERT INTO dns.rrsets (zone_id, name, sort_key, kind, ttl, rdata) \
                 VALUES ('{id}', '@', '', 'NS', 3600, '\\x000100'); \
             INSERT INTO dns.rrsets (zone_id, name, sort_key, kind, ttl, rdata) \
                 SELECT '{id}', 'host-' || n, convert_to('host-' || n, 'UTF8') || '\\x00', 'A', 300, \
                     '\\x00040a00'::bytea || set_byte(set_byte('\\x0000'::bytea, 0, n / 256), 1, n % 256) \
                 FROM generate_series(0, {addresses} - 1) n;",
            id.simple()
        );
        self.base.db_execute(&statement).await;
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at).await.unwrap()
    }

    /// Sends a message over UDP and returns the answer.
    pub async fn datagram(&self, message: &[u8]) -> Option<Message> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(message, self.at).await.unwrap();
        let mut buffer = [0; 4096];
        let length = timeout(Duration::from_secs(30), socket.recv(&mut buffer)).await.ok()?.unwrap();
        Some(Message::from_vec(&buffer[..length]).unwrap())
    }
}

pub fn signer(secret: &[u8]) -> TSigner {
    TSigner::new(secret.to_vec(), TsigAlgorithm::HmacSha256, Name::from_ascii("xfr.").unwrap(), 300).unwrap()
}

pub fn key() -> TSigner {
    signer(b"0123456789abcdef")
}

/// Creates a query. A query for IXFR contains the serial of the client.
pub fn question(zone: &str, kind: Kind, since: Option<u32>) -> Message {
    let name = Name::from_str(zone).unwrap();
    let mut message = Message::query();
    message.add_query(Query::query(name.clone(), kind));
    if let Some(serial) = since {
        let soa = SOA::new(Name::root(), Name::root(), serial, 0, 0, 0, 0);
        message.add_authority(Record::from_rdata(name, 0, RData::SOA(soa)));
    }
    message
}

/// Signs the message at this time. Returns the signed message and its MAC.
pub fn signed(mut message: Message, key: &TSigner, at: u64) -> (Vec<u8>, Vec<u8>) {
    let (signature, _) = key.sign_message(&message, at).unwrap();
    let mac = signature.data.mac.clone();
    message.set_signature(signature);
    (message.to_vec().unwrap(), mac)
}

pub async fn send(stream: &mut TcpStream, message: &[u8]) {
    let length = u16::try_from(message.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], message].concat()).await.unwrap();
}

/// Receives the next message. Returns `None` at the end of the connection.
pub async fn receive(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let receive = async {
        let mut bytes = vec![0; stream.read_u16().await.ok()?.into()];
        stream.read_exact(&mut bytes).await.ok()?;
        Some(bytes)
    };
    timeout(Duration::from_secs(15), receive).await.expect("an answer or the end of the connection")
}

/// Runs a transfer and verifies every signature. Returns the number of messages, and the records.
pub async fn transfer(stream: &mut TcpStream, question: Message) -> (usize, Vec<Record>) {
    let (bytes, mut mac) = signed(question, &key(), NOW);
    send(stream, &bytes).await;
    let (mut messages, mut records): (usize, Vec<Record>) = (0, Vec::new());
    loop {
        let bytes = receive(stream).await.expect("the transfer's next message");
        (mac, ..) = key().verify_message_byte(&bytes, Some(&mac), messages == 0).unwrap();
        let message = Message::from_vec(&bytes).unwrap();
        assert_eq!(message.response_code, hickory_proto::op::ResponseCode::NoError);
        records.extend(message.answers.clone());
        messages += 1;
        let ends = records.iter().filter(|it| it.record_type() == Kind::SOA && it.data == records[0].data).count();
        if ends >= 2 || records.len() == 1 {
            return (messages, records);
        }
    }
}

/// Record data in the column format, as hex.
pub fn packed(kind: RecordType, text: &str) -> String {
    let data = Rdata::parse(kind, text, &ZoneName::new_unchecked("example.org".to_owned())).unwrap();
    let length = u16::try_from(data.wire().len()).unwrap().to_be_bytes();
    kernel::hex(&[&length[..], data.wire()].concat())
}
