//! Mail that the mail node received.

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use kernel::MailId;
use mail::{MailDirection, MailError, NewInboundMail, RecipientOwner, Target};
use tokio::task::JoinSet;

use crate::kit::Kit;

pub const MESSAGE: &[u8] = b"Subject: Hi\r\n\r\nHello\r\n";

/// The bytes that a mail of [`Kit::inbound`] counts: the minimum, its recipient and its subject.
pub const STORED_BYTES: u64 = 4096 + 28 + 2;

impl Kit {
    pub async fn upload(&self, target: Target, id: MailId, message: &'static [u8]) -> Result<(), MailError> {
        let chunks = message.chunks(7).map(|chunk| Ok::<_, std::io::Error>(Bytes::from_static(chunk)));
        self.mail.upload(target.project, id, stream::iter(chunks)).await
    }

    pub fn inbound(&self, id: MailId, target: Target, from: &str) -> NewInboundMail {
        NewInboundMail {
            id,
            project: target.project,
            from: from.to_owned(),
            to: vec!["sales@shop.acme.mail.example".to_owned()],
            subject: Some("Hi".to_owned()),
            spf: "pass".to_owned(),
            size_bytes: MESSAGE.len() as u64,
            received_at: self.now(),
        }
    }

    /// Receives a mail for a project.
    pub async fn receive(&self, target: Target, from: &str) -> MailId {
        let id = self.new_id();
        self.upload(target, id, MESSAGE).await.unwrap();
        let mut mail = self.inbound(id, target, from);
        mail.to = vec![format!("sales@{}", self.mail.status(target).await.unwrap().address)];
        self.mail.receive(mail).await.unwrap();
        id
    }
}

/// The mail node has acknowledged the mail, so it must not be lost.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_mail_stays_with_the_project_that_had_the_address() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.project("shop").await, kit.ungranted("blog").await);
    let id = kit.new_id();
    kit.upload(shop, id, MESSAGE).await.unwrap();
    let mail = kit.inbound(id, shop, "eve@example.org");
    kit.revoke(shop).await;
    kit.grant(blog, "shop").await;
    kit.mail.receive(mail).await.unwrap();
    assert_eq!(kit.entry(shop, id).await.outcome.to_string(), "received");
    assert_eq!(kit.count(blog, MailDirection::In).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn received_mail_is_in_the_log_once() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.new_id();
    let mut mail = kit.inbound(id, shop, "");
    mail.subject = Some("a\0b\r\nc".to_owned());
    // After the first round, each step can be repeated in any order.
    for _ in 0..2 {
        kit.upload(shop, id, MESSAGE).await.unwrap();
        kit.upload(shop, id, MESSAGE).await.unwrap();
        kit.mail.receive(mail.clone()).await.unwrap();
        kit.mail.receive(mail.clone()).await.unwrap();
    }
    let entry = kit.entry(shop, id).await;
    assert_eq!(
        (entry.outcome.to_string().as_str(), entry.from.as_str(), entry.spf.as_deref()),
        ("received", "", Some("pass"))
    );
    assert_eq!((entry.subject.as_deref(), entry.size_bytes, entry.has_raw), (Some("a b  c"), 22, true));
    assert_eq!(entry.to, ["sales@shop.acme.mail.example"]);
    assert_eq!(kit.mail.raw(shop.project, id).await.unwrap().0, 22);
    let rows = "SELECT (SELECT count(*) FROM mail.messages) * 10 + (SELECT count(*) FROM mail.deliveries)";
    assert_eq!((kit.db_number(rows).await, kit.objects()), (11, 1));
    assert_eq!(kit.mail.status(shop).await.unwrap().received_last24h, 1);
}

/// The mails that arrive during a transaction share the next one.
#[tokio::test(flavor = "multi_thread")]
async fn mails_of_a_project_share_transactions() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.project("shop").await, kit.project("blog").await);
    let ids: Vec<MailId> = (0..10).map(|_| kit.new_id()).collect();
    for id in &ids {
        kit.upload(shop, *id, MESSAGE).await.unwrap();
    }
    let transactions =
        format!("SELECT count(DISTINCT xmin::text) FROM mail.messages WHERE project_id = '{}'", shop.project.as_uuid());
    // A mail that is handed over twice at the same time is counted once.
    let repeated = ids.iter().chain(&ids).map(|id| kit.mail.receive(kit.inbound(*id, shop, "eve@example.org")));
    for received in join_all(repeated).await {
        received.unwrap();
    }
    kit.receive(blog, "eve@example.org").await;
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.messages").await, 11);
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.deliveries").await, 11);
    assert!(kit.db_number(&transactions).await < 10);
    assert_eq!(kit.mail.status(shop).await.unwrap().received_bytes.unsigned_abs(), 10 * STORED_BYTES);
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_of_a_deleted_project_is_dropped() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.new_id();
    kit.db_execute("UPDATE projects.projects SET deleted_at = now()").await;
    kit.upload(shop, id, MESSAGE).await.unwrap();
    assert!(matches!(kit.mail.receive(kit.inbound(id, shop, "a@b.org")).await, Err(MailError::ProjectNotFound)));
    assert_eq!(kit.objects(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_without_its_message_or_with_another_size_is_rejected() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.new_id();
    let field = async |mail| match kit.mail.receive(mail).await {
        Err(MailError::Field(field)) => field.path,
        other => panic!("{other:?}"),
    };
    let valid = kit.inbound(id, shop, "a@b.org");
    let mismatch = async |mail| matches!(kit.mail.receive(mail).await, Err(MailError::UploadMismatch));
    assert!(mismatch(valid.clone()).await);
    kit.upload(shop, id, MESSAGE).await.unwrap();
    assert_eq!(field(NewInboundMail { spf: "maybe".to_owned(), ..valid.clone() }).await, "spf");
    assert!(mismatch(NewInboundMail { size_bytes: 21, ..valid.clone() }).await);
    kit.mail.receive(valid.clone()).await.unwrap();
    let blog = kit.project("blog").await;
    assert_eq!(field(NewInboundMail { project: blog.project, ..valid }).await, "project");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_or_large_upload_leaves_nothing() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await.project;
    let broken = stream::iter([Ok(Bytes::from_static(b"a")), Err(std::io::Error::other("closed"))]);
    assert!(matches!(kit.mail.upload(shop, kit.new_id(), broken).await, Err(MailError::UploadBroken(_))));
    let large = stream::iter((0..27).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 1024 * 1024]))));
    assert!(matches!(kit.mail.upload(shop, kit.new_id(), large).await, Err(MailError::MessageTooLarge { .. })));
    assert_eq!(kit.objects(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn recipient_belongs_to_the_project_that_has_its_domain() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let owner = async |domain: &str| kit.mail.recipient_owner(domain).await.unwrap();
    assert_eq!(owner("SHOP.acme.mail.example").await, RecipientOwner::Project(shop.project));
    for unknown in ["blog.acme.mail.example", "sub.shop.acme.mail.example", "acme.mail.example", "mail.example"] {
        assert_eq!(owner(unknown).await, RecipientOwner::Unknown, "{unknown}");
    }
    for foreign in ["example.org", "evilmail.example", "shop.acme.mail.example.evil.org", "", "a\0.mail.example"] {
        assert_eq!(owner(foreign).await, RecipientOwner::Foreign, "{foreign:?}");
    }
    kit.revoke(shop).await;
    assert_eq!(owner("shop.acme.mail.example").await, RecipientOwner::Unknown);
    kit.grant(shop, "shop").await;
    kit.db_execute("UPDATE projects.projects SET deleted_at = now()").await;
    assert_eq!(owner("shop.acme.mail.example").await, RecipientOwner::Unknown);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_hand_overs_do_not_block_the_project() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    for _ in 0..20 {
        let mut handovers = JoinSet::new();
        for _ in 0..4 {
            let id = kit.new_id();
            kit.upload(shop, id, MESSAGE).await.unwrap();
            let (service, mail) = (kit.mail.clone(), kit.inbound(id, shop, "eve@example.org"));
            handovers.spawn(async move { service.receive(mail).await });
        }
        handovers.join_next().await.unwrap().unwrap().unwrap();
        handovers.abort_all();
        let id = kit.receive(shop, "eve@example.org").await;
        assert_eq!(kit.entry(shop, id).await.id, id);
    }
}
