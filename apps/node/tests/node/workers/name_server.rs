//! A name server whose answers change with each query.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::A;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// A name server over UDP.
pub struct NameServer {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    _task: JoinSet<()>,
}

#[derive(Default)]
struct State {
    /// The answers to consecutive queries for the addresses of a name. The last one repeats.
    answers: HashMap<String, VecDeque<Vec<Ipv4Addr>>>,
    /// The answers that were sent since `set`, by name and the id of the query. A client repeats a query that is not
    /// answered in time, with the same id.
    sent: HashMap<String, HashMap<u16, Vec<Ipv4Addr>>>,
}

impl NameServer {
    pub async fn start() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, state) = (socket.local_addr().unwrap(), Arc::<Mutex<State>>::default());
        let mut task = JoinSet::new();
        let served = Arc::clone(&state);
        task.spawn(async move {
            let mut request = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut request).await {
                let answer = served.lock().unwrap().answer(&request[..length]);
                let _ = socket.send_to(&answer, client).await;
            }
        });
        Self { address, state, _task: task }
    }

    /// Sets the answers to consecutive queries for the addresses of a name.
    pub fn set(&self, name: &str, answers: &[&[Ipv4Addr]]) {
        let answers = answers.iter().map(|addresses| addresses.to_vec()).collect();
        let (name, mut state) = (format!("{name}."), self.state.lock().unwrap());
        state.sent.remove(&name);
        state.answers.insert(name, answers);
    }

    /// Returns the number of queries for the IPv4 addresses of a name since `set`, without repeated ones.
    pub fn queries(&self, name: &str) -> usize {
        self.state.lock().unwrap().sent.get(&format!("{name}.")).map_or(0, HashMap::len)
    }
}

impl State {
    fn answer(&mut self, request: &[u8]) -> Vec<u8> {
        let request = Message::from_vec(request).unwrap();
        let query = request.queries.first().unwrap();
        let name = query.name().to_ascii().to_lowercase();
        let mut answer = Message::error_msg(request.id, request.op_code, ResponseCode::NoError);
        answer.add_queries(request.queries.iter().cloned());
        if query.query_type() == RecordType::A {
            let answers = self.answers.entry(name.clone()).or_default();
            let addresses = self.sent.entry(name).or_default().entry(request.id).or_insert_with(|| {
                let next = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
                next.unwrap_or_default()
            });
            for address in &*addresses {
                answer.add_answer(Record::from_rdata(query.name().clone(), 0, RData::A(A(*address))));
            }
        }
        answer.to_vec().unwrap()
    }
}
