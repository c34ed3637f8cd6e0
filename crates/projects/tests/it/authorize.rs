//! The redirect flow that gives a member access to a project.

use kernel::{AccessMode, ApiError as _, Plan, Role, UserId};
use projects::{AccessAuthorize, Authorize, NewHostname, ProjectDeletion, ProjectError};
use testkit::four_at_a_time;

use crate::access::SECRET;
use crate::kit::Kit;

const HOST: &str = "shop-acme.svc.example";

impl Kit {
    async fn authorize(&self, user: UserId, to: &str, next: &str) -> Result<AccessAuthorize, ProjectError> {
        self.projects.access_authorize(user, Authorize { to: to.to_owned(), next: next.to_owned() }).await
    }

    /// Returns an access code for a host.
    async fn code(&self, user: UserId, to: &str) -> String {
        parse_redirect(&self.authorize(user, to, "/").await.unwrap().redirect).1
    }
}

/// Parses the host, the code and `next` of a redirect, like a browser and the front.
fn parse_redirect(redirect: &str) -> (String, String, String) {
    let rest = redirect.strip_prefix("https://").unwrap();
    let (host, rest) = rest.split_at(rest.find(['/', '\\', '?', '#']).unwrap());
    let query = rest.strip_prefix("/__svc/access/callback?code=").unwrap();
    let (code, next) = query.split_once("&next=").unwrap();
    let safe = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"%._-~".contains(&b));
    assert!(safe(code) && safe(next), "{redirect}");
    let mut bytes = Vec::new();
    let mut left = next.bytes();
    while let Some(byte) = left.next() {
        let hex = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
        let decoded = if byte == b'%' { hex(left.next().unwrap()) * 16 + hex(left.next().unwrap()) } else { byte };
        bytes.push(decoded);
    }
    (host.to_owned(), code.to_owned(), String::from_utf8(bytes).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn access_depends_on_the_mode_and_the_role() {
    let kit = Kit::start().await;
    let (org, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let project = kit.live_project(&org).await;
    let mut users = Vec::new();
    for role in [None, Some(Role::Viewer), Some(Role::Member), Some(Role::Admin)] {
        users.push((role, kit.db_user(&org, role).await));
    }
    let outsider = kit.db_user(&other, Some(Role::Admin)).await;
    for (mode, password) in [(AccessMode::Public, None), (AccessMode::Org, None), (AccessMode::Password, Some(SECRET))]
    {
        kit.set(&org, project, mode, password).await.unwrap();
        for (role, user) in users.iter().copied().chain([(None, outsider)]) {
            let answer = kit.authorize(user, "SHOP-acme.svc.example.", "/").await;
            match role {
                None => assert!(matches!(answer, Err(ProjectError::Outsider)), "{mode:?}: {answer:?}"),
                Some(Role::Viewer) if mode == AccessMode::Org => {
                    assert!(matches!(answer, Err(ProjectError::MembersOnly(Role::Viewer))), "{answer:?}");
                }
                Some(_) => assert_eq!(parse_redirect(&answer.unwrap().redirect).0, HOST),
            }
        }
    }
    for refused in [ProjectError::Outsider, ProjectError::MembersOnly(Role::Viewer)] {
        assert_eq!(refused.code(), &kernel::Code::FORBIDDEN);
    }
    // A removed membership takes effect immediately.
    let member = users[2].1;
    let id = member.as_uuid();
    kit.db_execute(&format!("DELETE FROM orgs.members WHERE user_id = '{id}'")).await;
    let answer = kit.authorize(member, HOST, "/").await;
    assert!(matches!(answer, Err(ProjectError::Outsider)), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_active_hostnames_are_authorized() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.live_project(&org).await;
    let user = kit.db_user(&org, Some(Role::Admin)).await;
    let name = NewHostname { name: "www.example.org".to_owned() };
    kit.projects.hostname_add(&kit.actor, &org, project, None, name).await.unwrap();
    for to in [
        "www.example.org",
        "unknown.example",
        "evil.example",
        "shop-acme.svc.example.evil.example",
        "svc.example",
        "shop-acme.svc.example@evil.example",
        "evil.example/shop-acme.svc.example",
        "shop-acme.svc.example:8443",
        "https://shop-acme.svc.example",
        "shop-acme.svc.example/",
        "evil.example#shop-acme.svc.example",
        "",
        ".",
        "shop-acme.svc.example\n",
        "shop-acme.svc.example?",
        "\\shop-acme.svc.example",
    ] {
        let refused = kit.authorize(user, to, "/").await.unwrap_err();
        assert!(matches!(refused, ProjectError::UnknownHostname), "{to:?}: {refused:?}");
        assert_eq!(refused.code(), &kernel::Code::NOT_FOUND);
    }
    kit.records.cname("www.example.org", "fallback.svc.example");
    kit.projects.hostname_verify(&kit.actor, project, "www.example.org").await.unwrap();
    let redirect = kit.authorize(user, "www.example.org", "/").await.unwrap().redirect;
    assert_eq!(parse_redirect(&redirect).0, "www.example.org");

    let deletion = ProjectDeletion { confirm: "shop".to_owned() };
    kit.projects.delete(&kit.actor, &org, project, deletion).await.unwrap();
    for to in [HOST, "www.example.org"] {
        let refused = kit.authorize(user, to, "/").await;
        assert!(matches!(refused, Err(ProjectError::UnknownHostname)), "{to}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn next_must_be_a_path_on_the_host() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    kit.live_project(&org).await;
    let user = kit.db_user(&org, Some(Role::Member)).await;
    for next in [
        "",
        "x",
        "evil.example",
        "./x",
        "../x",
        "?x",
        "#x",
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "\\/evil.example",
        "/x\\evil",
        "https://evil.example",
        "https:/evil",
        "javascript:alert(1)",
        "/\t/evil.example",
        "/\n/evil.example",
        "/\r\nSet-Cookie: a=b",
        "/\u{0}",
        "/x\u{7f}",
        "/\u{85}/evil.example",
        " /x",
        "\t//evil.example",
        "\u{ff0f}/evil.example",
        "@evil.example",
        "//",
        "/\\",
    ] {
        let refused = kit.authorize(user, HOST, next).await.unwrap_err();
        assert!(matches!(&refused, ProjectError::Field(it) if it.path == "next"), "{next:?}: {refused:?}");
    }
    for next in [
        "/",
        "/x",
        "/a/b/?q=1&code=mine&next=//evil.example#top",
        "/a//b",
        "/..//evil.example",
        "/@evil.example",
        "/%2f%2fevil.example",
        "/%5cevil.example",
        "/%0d%0aa",
        "/x:y",
        "/ä/世界",
        "/\u{ff0f}evil.example",
        "/a b",
        "/%",
    ] {
        let redirect = kit.authorize(user, HOST, next).await.unwrap().redirect;
        let (host, _, decoded) = parse_redirect(&redirect);
        assert_eq!((host.as_str(), decoded.as_str()), (HOST, next), "{redirect}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn code_is_valid_once_for_its_host_and_a_minute() {
    let kit = Kit::start().await;
    let (org, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let (project, other_project) = (kit.live_project(&org).await, kit.project(&other, "shop").await);
    let user = kit.db_user(&org, Some(Role::Member)).await;
    let redeem = async |host: &str, code: &str| kit.projects.access_redeem(host, code).await;
    let invalid = |answer: Result<_, ProjectError>| matches!(answer, Err(ProjectError::InvalidCode));

    let code = kit.code(user, HOST).await;
    // Other hosts reject the code, and the attempts do not use it up.
    for host in [other_project.hostname.as_str(), "svc.example", "", "x.shop-acme.svc.example", "no host"] {
        assert!(invalid(redeem(host, &code).await), "{host}");
    }
    assert_eq!(redeem("SHOP-ACME.svc.example.", &code).await.unwrap(), (project, user));
    for _ in 0..2 {
        assert!(invalid(redeem(HOST, &code).await));
    }
    assert_eq!(ProjectError::InvalidCode.code(), &kernel::Code::BAD_REQUEST);

    // The code is valid in its last second, but not after it.
    let (late, later) = (kit.code(user, HOST).await, kit.code(user, HOST).await);
    assert_ne!(late, later);
    kit.advance(59);
    assert!(redeem(HOST, &late).await.is_ok());
    kit.advance(1);
    assert!(invalid(redeem(HOST, &later).await) && invalid(redeem(HOST, &late).await));
    // Redeeming a code purges expired codes, which remain invalid.
    let code = kit.code(user, HOST).await;
    assert!(redeem(HOST, &code).await.is_ok());
    assert_eq!(kit.db_number("SELECT count(*) FROM projects.used_access_codes").await, 1);
    assert!(invalid(redeem(HOST, &late).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_redemption_succeeds_once() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.live_project(&org).await;
    let user = kit.db_user(&org, Some(Role::Member)).await;
    let code = kit.code(user, HOST).await;
    let answers = four_at_a_time((0..20).map(|_| kit.projects.access_redeem(HOST, &code))).await;
    let (redeemed, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert!(refused.iter().all(|answer| matches!(answer, Err(ProjectError::InvalidCode))), "{refused:?}");
    assert_eq!(redeemed.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [(project, user)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_codes_are_rejected() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    kit.live_project(&org).await;
    let user = kit.db_user(&org, Some(Role::Member)).await;
    let code = kit.code(user, HOST).await;
    let (key, sealed) = code.split_once('.').unwrap();
    let mut garbage: Vec<String> =
        ["", ".", "..", "a", "a.b", "aa.bb", "äa.ää", "zz.zz", "ff.ff"].map(String::from).into();
    garbage.extend([
        format!("{key}."),
        format!(".{sealed}"),
        format!("{key}{sealed}"),
        format!("{sealed}.{key}"),
        format!("{key}.{}", &sealed[..sealed.len() - 2]),
        format!("{key}.{}", &sealed[..sealed.len() - 1]),
        format!("{key}.{sealed}00"),
        format!("{code}.{sealed}"),
        format!("{key}00.{sealed}"),
        "00".repeat(100_000),
    ]);
    // Change single digits.
    for at in (0..sealed.len()).step_by(7) {
        let digit = if sealed.as_bytes()[at] == b'0' { '1' } else { '0' };
        garbage.push(format!("{key}.{}{digit}{}", &sealed[..at], &sealed[at + 1..]));
    }
    for garbage in garbage {
        let refused = kit.projects.access_redeem(HOST, &garbage).await;
        assert!(matches!(refused, Err(ProjectError::InvalidCode)), "{garbage}: {refused:?}");
    }
    assert!(kit.projects.access_redeem(HOST, &code).await.is_ok());
}
