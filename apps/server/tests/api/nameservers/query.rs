//! DNS queries over UDP.

use std::time::Duration;

use hickory_proto::op::{Edns, Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// The answer of a nameserver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The response code. `None` after a timeout.
    pub code: Option<ResponseCode>,
    /// The records of the queried type, sorted.
    pub data: Vec<String>,
    /// Whether the answer contains RRSIG records.
    pub is_signed: bool,
}

pub async fn query(port: u16, name: &str, kind: &str) -> Answer {
    let kind: RecordType = kind.parse().unwrap();
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(format!("{name}.")).unwrap(), kind));
    let mut edns = Edns::new();
    edns.set_dnssec_ok(true).set_max_payload(1232);
    message.set_edns(edns);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(("127.0.0.1", port)).await.unwrap();
    let exchange = async {
        socket.send(&message.to_vec().unwrap()).await?;
        let mut buffer = [0; 4096];
        loop {
            let length = socket.recv(&mut buffer).await?;
            let answer = Message::from_vec(&buffer[..length]).unwrap();
            // Another query, which was dropped, may have had the same port before.
            if answer.id == message.id {
                return Ok::<_, std::io::Error>(answer);
            }
        }
    };
    let Ok(Ok(answer)) = timeout(Duration::from_secs(5), exchange).await else {
        return Answer { code: None, data: Vec::new(), is_signed: false };
    };
    let records = |kind: RecordType| answer.answers.iter().filter(move |record| record.record_type() == kind);
    let mut data: Vec<String> = records(kind).map(|record| record.data.to_string()).collect();
    data.sort();
    Answer { code: Some(answer.response_code), data, is_signed: records(RecordType::RRSIG).next().is_some() }
}

/// Sends a query twice at the same time, because UDP may drop a datagram. Returns the first answer.
pub async fn query_twice(port: u16, name: &str, kind: &str) -> Answer {
    tokio::select! {
        answer = query(port, name, kind) => answer,
        answer = query(port, name, kind) => answer,
    }
}

impl Answer {
    /// Returns whether the answer has exactly this data. If `data` is empty, NXDOMAIN matches, too.
    pub fn is(&self, data: &[&str]) -> bool {
        let exists = self.code == Some(ResponseCode::NoError);
        (exists || data.is_empty() && self.code == Some(ResponseCode::NXDomain)) && self.data == data
    }

    /// Returns whether the nameserver does not serve the zone.
    pub fn is_refused(&self) -> bool {
        self.code == Some(ResponseCode::Refused)
    }
}
