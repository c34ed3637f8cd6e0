//! A TCP proxy in front of Postgres that can be cut.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;
use tokio_postgres::config::Host;

pub struct Proxy {
    /// The database's address through the proxy.
    pub url: String,
    cut: watch::Sender<u64>,
    refusing: Arc<AtomicBool>,
}

impl Proxy {
    /// In front of the database at this address of a unix socket.
    pub async fn before(url: &str) -> Self {
        let database: tokio_postgres::Config = url.parse().unwrap();
        let [Host::Unix(folder)] = database.get_hosts() else { panic!("not one unix socket: {url}") };
        let port = database.get_ports().first().copied().unwrap_or(5432);
        let socket = folder.join(format!(".s.PGSQL.{port}"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, cuts) = watch::channel(0);
        let refusing = Arc::new(AtomicBool::new(false));
        tokio::spawn(serve(listener, socket, cuts, refusing.clone()));
        let (user, name) = (database.get_user().unwrap(), database.get_dbname().unwrap());
        let url = format!("postgres://{user}@127.0.0.1:{port}/{name}");
        Self { url, cut, refusing }
    }

    /// Ends every connection and lets none in.
    pub fn cut(&self) {
        self.refusing.store(true, Ordering::SeqCst);
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    /// Lets connections in again.
    pub fn restore(&self) {
        self.refusing.store(false, Ordering::SeqCst);
    }
}

async fn serve(listener: TcpListener, socket: PathBuf, cuts: watch::Receiver<u64>, refusing: Arc<AtomicBool>) {
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        if refusing.load(Ordering::SeqCst) {
            continue;
        }
        let (socket, mut cuts) = (socket.clone(), cuts.clone());
        cuts.mark_unchanged();
        tokio::spawn(async move {
            let mut server = UnixStream::connect(&socket).await.unwrap();
            tokio::select! {
                _ = cuts.changed() => {}
                _ = copy_bidirectional(&mut client, &mut server) => {}
            }
        });
    }
}
