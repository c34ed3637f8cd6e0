//! A signer with one key, over TCP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use dns::signer::Signer;
use kernel::ClockRng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const SOA: u16 = 6;
const DNSKEY: u16 = 48;

/// A signer whose key is this number. It refuses all queries while the number is 0.
pub struct FakeSigner {
    address: SocketAddr,
    key: Arc<AtomicU8>,
}

impl FakeSigner {
    /// Starts a signer that refuses all queries.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, key) = (listener.local_addr().unwrap(), Arc::<AtomicU8>::default());
        let served = key.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, served.clone()));
            }
        });
        Self { address, key }
    }

    /// Returns the client of the service.
    pub fn client(&self, clock_rng: ClockRng) -> Signer {
        Signer::new(self.address, clock_rng)
    }

    pub fn set_key(&self, key: u8) {
        self.key.store(key, Ordering::SeqCst);
    }
}

async fn serve(mut stream: TcpStream, key: Arc<AtomicU8>) {
    while let Ok(length) = stream.read_u16().await {
        let mut request = vec![0; usize::from(length)];
        stream.read_exact(&mut request).await.unwrap();
        let response = respond(&request, key.load(Ordering::SeqCst));
        let length = u16::try_from(response.len()).unwrap().to_be_bytes();
        stream.write_all(&[&length[..], &response].concat()).await.unwrap();
    }
}

/// Returns the response to a query: the request's id and question, and one record (RFC 1035 section 4.1).
fn respond(request: &[u8], key: u8) -> Vec<u8> {
    let (id, question) = (&request[..2], &request[12..]);
    if key == 0 {
        return [id, &[0x80, 5, 0, 1, 0, 0, 0, 0, 0, 0], question].concat();
    }
    let kind = &question[question.len() - 4..question.len() - 2];
    let data = match u16::from_be_bytes([kind[0], kind[1]]) {
        // The names are the root. Only the serial matters.
        SOA => [&[0, 0][..], &1_u32.to_be_bytes(), &[0; 16]].concat(),
        DNSKEY => [&[1, 1, 3, 13][..], &[key; 64]].concat(),
        // CDS.
        _ => [&[0, key, 13, 2][..], &[key; 32]].concat(),
    };
    let length = u16::try_from(data.len()).unwrap().to_be_bytes();
    // The name is a pointer to the question's.
    let record = [&[0xc0, 12][..], kind, &[0, 1, 0, 0, 1, 44], &length, &data].concat();
    [id, &[0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0], question, &record].concat()
}
