//! Clients that run until the faults have ended.

use std::future::{pending, ready};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::anyhow;
use chaos::run_clients;
use futures_util::FutureExt as _;

#[tokio::test]
async fn clients_run_until_the_faults_have_ended() {
    let stopped = AtomicBool::new(false);
    let clients = async {
        while !stopped.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        "journals"
    };
    assert_eq!(run_clients(clients, &stopped, ready(Ok("faults"))).await.unwrap(), ("journals", "faults"));
}

#[test]
fn error_of_a_fault_is_returned_even_if_the_clients_never_end() {
    let stopped = AtomicBool::new(false);
    let failure = Err::<(), _>(anyhow!("the node is not ready"));
    let failed = run_clients(pending::<()>(), &stopped, ready(failure)).now_or_never().unwrap();
    assert_eq!(failed.unwrap_err().to_string(), "the node is not ready");
}
