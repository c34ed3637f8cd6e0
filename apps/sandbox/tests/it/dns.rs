//! Delegations of the name server, and names below `localhost`.

use std::net::SocketAddr;

use hickory_resolver::proto::op::{Message, Query, ResponseCode};
use hickory_resolver::proto::rr::Name;
use sandbox::{DnsFault, DnsServer, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

/// Queries a server over UDP and TCP, which must respond with the same records. Returns the data.
async fn query(server: &DnsServer, name: &str, kind: RecordType) -> Result<Vec<String>, ResponseCode> {
    let mut request = Message::query();
    request.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    let request = request.to_vec().unwrap();
    let (udp, tcp) = (udp(server.address(), &request).await, tcp(server.address(), &request).await);
    assert_eq!(udp, tcp);
    let response = Message::from_vec(&udp).unwrap();
    match response.metadata.response_code {
        ResponseCode::NoError => Ok(response.answers.iter().map(|record| record.data.to_string()).collect()),
        code => Err(code),
    }
}

async fn udp(server: SocketAddr, request: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(request, server).await.unwrap();
    let mut response = vec![0; 4096];
    let length = socket.recv(&mut response).await.unwrap();
    response.truncate(length);
    response
}

async fn tcp(server: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_u16(request.len().try_into().unwrap()).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut response = vec![0; stream.read_u16().await.unwrap().into()];
    stream.read_exact(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn queries_for_delegated_names_go_to_the_nameserver() {
    let (server, nameserver) = (DnsServer::start().await, DnsServer::start().await);
    nameserver.set("www.example.org.", RecordType::TXT, &["hosted"]);
    server.set("other.example.org.", RecordType::TXT, &["own"]);
    server.delegate_to(nameserver.address());
    assert_eq!(query(&server, "www.example.org.", RecordType::TXT).await, Err(ResponseCode::NXDomain));
    server.set("example.org.", RecordType::NS, &["ns1.svc.example"]);
    assert_eq!(query(&server, "www.example.org.", RecordType::TXT).await, Ok(vec!["hosted".to_owned()]));
    assert_eq!(query(&server, "example.org.", RecordType::NS).await, Ok(vec!["ns1.svc.example.".to_owned()]));
    assert_eq!(query(&server, "other.example.org.", RecordType::TXT).await, Ok(vec!["own".to_owned()]));
    // The nameserver does not have the zone.
    nameserver.inject(Some(DnsFault::Refused));
    assert_eq!(query(&server, "other.example.org.", RecordType::A).await, Ok(Vec::new()));
    drop(nameserver);
    assert_eq!(query(&server, "www.example.org.", RecordType::TXT).await, Err(ResponseCode::ServFail));
}

#[tokio::test]
async fn names_below_localhost_have_the_loopback_address() {
    let server = DnsServer::start().await;
    server.set("www.example.net.", RecordType::CNAME, &["fallback.localhost"]);
    assert_eq!(query(&server, "site-ada.localhost.", RecordType::A).await, Ok(vec!["127.0.0.1".to_owned()]));
    assert_eq!(query(&server, "site-ada.localhost.", RecordType::AAAA).await, Ok(Vec::new()));
    let alias = ["fallback.localhost.", "127.0.0.1"].map(str::to_owned);
    assert_eq!(query(&server, "www.example.net.", RecordType::A).await, Ok(alias.to_vec()));
}
