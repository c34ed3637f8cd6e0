//! A TCP proxy in front of Postgres that can be cut.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;

pub struct Proxy {
    /// The database's address through the proxy.
    pub url: String,
    cut: watch::Sender<u64>,
    refusing: Arc<AtomicBool>,
}

impl Proxy {
    /// In front of the database at this address of a unix socket.
    pub async fn before(url: &str) -> Self {
        let (address, query) = url.split_once('?').unwrap();
        let database = address.rsplit_once('/').unwrap().1;
        let parameter = |name: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            value.map(|value| value.replace("%2F", "/"))
        };
        let folder = parameter("host").expect("a unix socket");
        let socket = PathBuf::from(folder).join(format!(".s.PGSQL.{}", parameter("port").unwrap_or("5432".into())));
        let user = parameter("user").or_else(|| {
            let authority = address.strip_prefix("postgres://")?.split('/').next()?;
            authority.split_once('@').map(|(user, _)| user.to_owned())
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, cuts) = watch::channel(0);
        let refusing = Arc::new(AtomicBool::new(false));
        tokio::spawn(serve(listener, socket, cuts, refusing.clone()));
        let url = format!("postgres://{}@127.0.0.1:{port}/{database}", user.expect("a user"));
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
