//! The certificates and the confirmation of the notification service.

use std::time::Duration;

use kernel::Time;
use providers::{OutboundConfigError, OutboundError, SnsClient, SnsError};
use sandbox::{SnsFault, SnsServer};
use tokio::task::JoinSet;
use url::Url;

/// 2026-11-26.
fn now() -> Time {
    Time::UNIX_EPOCH.plus_seconds(1_795_651_200)
}

fn client(service: &SnsServer) -> SnsClient {
    SnsClient::new(service.host().parse().unwrap(), Some(service.authority())).unwrap()
}

fn url(service: &SnsServer) -> Url {
    service.certificate_url().parse().unwrap()
}

#[tokio::test]
async fn concurrent_calls_share_one_request() {
    let service = SnsServer::start(None).await;
    let (client, url) = (client(&service), url(&service));
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let (client, url) = (client.clone(), url.clone());
        calls.spawn(async move { client.certificate(&url, now()).await });
    }
    assert!(calls.join_all().await.iter().all(Result::is_ok));
    client.certificate(&url, now()).await.unwrap();
    assert_eq!(service.requests().len(), 1);
    // Not cached after its end.
    let later = now().plus_seconds(100_000_000_000);
    assert!(!client.certificate(&url, later).await.unwrap().is_valid_at(later.unix_seconds()));
    assert_eq!(service.requests().len(), 2);
}

#[tokio::test]
async fn failed_requests_are_not_cached() {
    let service = SnsServer::start(None).await;
    let (client, url) = (client(&service), url(&service));
    for (fault, error) in [
        (SnsFault::Unavailable, SnsError::Call(OutboundError::Status(503))),
        (SnsFault::Html, SnsError::NotACertificate),
        (SnsFault::Redirect, SnsError::Call(OutboundError::Redirect(302))),
        (SnsFault::Large, SnsError::Call(OutboundError::TooLarge)),
    ] {
        service.inject(Some(fault));
        assert_eq!(client.certificate(&url, now()).await, Err(error));
    }
    service.inject(Some(SnsFault::Hang));
    let fifth_request = async {
        while service.requests().len() < 5 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let reach_timeout = async {
        tokio::time::timeout(Duration::from_secs(30), fifth_request).await.unwrap();
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(3)).await;
        tokio::time::resume();
    };
    let (hung, ()) = tokio::join!(client.certificate(&url, now()), reach_timeout);
    assert_eq!(hung, Err(SnsError::Call(OutboundError::Timeout)));
    service.inject(None);
    client.certificate(&url, now()).await.unwrap();
    assert_eq!(service.requests().len(), 6);
}

#[tokio::test]
async fn requests_in_flight_are_limited_and_do_not_evict_certificates() {
    let service = SnsServer::start(None).await;
    let client = client(&service);
    client.certificate(&url(&service), now()).await.unwrap();
    service.inject(Some(SnsFault::Hang));
    let nth = |n: usize| -> Url {
        format!("https://{}/SimpleNotificationService-{n:x}.pem", service.host()).parse().unwrap()
    };
    let mut calls = JoinSet::new();
    for n in 0..8 {
        let (client, url) = (client.clone(), nth(n));
        calls.spawn(async move { client.certificate(&url, now()).await });
    }
    while service.requests().len() < 9 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(client.certificate(&nth(8), now()).await, Err(SnsError::Busy));
    client.certificate(&url(&service), now()).await.unwrap();
    // The end of the requests makes room for others.
    service.inject(None);
    assert!(calls.join_all().await.iter().all(Result::is_err));
    client.certificate(&nth(8), now()).await.unwrap();
}

#[tokio::test]
async fn only_the_configured_hosts_and_authorities_are_trusted() {
    let (service, other) = (SnsServer::start(None).await, SnsServer::start(None).await);
    let client = client(&service);
    let not_allowed = SnsError::Call(OutboundError::NotAllowed);
    let plain = service.certificate_url().replace("https://", "http://");
    for url in [other.certificate_url(), plain, "https://localhost/".to_owned(), "data:,x".to_owned()] {
        let url: Url = url.parse().unwrap();
        assert_eq!(client.certificate(&url, now()).await, Err(not_allowed.clone()), "{url}");
        assert_eq!(client.confirm(&url).await, Err(OutboundError::NotAllowed), "{url}");
    }
    let untrusting = SnsClient::new(service.host().parse().unwrap(), None).unwrap();
    let error = untrusting.certificate(&url(&service), now()).await.unwrap_err();
    assert!(matches!(&error, SnsError::Call(OutboundError::Unreachable(what)) if what.contains("UnknownIssuer")));
    assert!(other.requests().is_empty() && service.requests().is_empty());
    let malformed = SnsClient::new(service.host().parse().unwrap(), Some("no certificate"));
    assert!(matches!(malformed, Err(OutboundConfigError::Ca)));
}

#[tokio::test]
async fn subscription_is_confirmed() {
    let service = SnsServer::start(None).await;
    let client = client(&service);
    let url: Url = service.subscription_confirmation()["SubscribeURL"].as_str().unwrap().parse().unwrap();
    for (fault, error) in
        [(SnsFault::Confirmation, OutboundError::Status(500)), (SnsFault::Redirect, OutboundError::Redirect(302))]
    {
        service.inject(Some(fault));
        assert_eq!(client.confirm(&url).await, Err(error));
        assert!(!service.is_confirmed());
    }
    service.inject(None);
    client.confirm(&url).await.unwrap();
    assert!(service.is_confirmed());
}
