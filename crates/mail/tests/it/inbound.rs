//! Mail that the mail node received.

use bytes::Bytes;
use futures_util::stream;
use kernel::MailId;
use mail::{MailError, NewInboundMail, RecipientOwner, Target};

use crate::kit::Kit;

pub const MESSAGE: &[u8] = b"Subject: Hi\r\n\r\nHello\r\n";

impl Kit {
    pub async fn upload(&self, id: MailId, message: &'static [u8]) -> Result<(), MailError> {
        let chunks = message.chunks(7).map(|chunk| Ok::<_, std::io::Error>(Bytes::from_static(chunk)));
        self.mail.upload(id, stream::iter(chunks)).await
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
        self.upload(id, MESSAGE).await.unwrap();
        let mut mail = self.inbound(id, target, from);
        mail.to = vec![format!("sales@{}", self.mail.status(target).await.unwrap().address)];
        self.mail.receive(mail).await.unwrap();
        id
    }
}

/// Between the reception and the hand-over, another project can get the domain.
#[tokio::test(flavor = "multi_thread")]
async fn mail_to_an_address_of_another_project_is_not_stored() {
    let kit = Kit::start().await;
    let (_, blog) = (kit.project("shop").await, kit.project("blog").await);
    let id = kit.new_id();
    kit.upload(id, MESSAGE).await.unwrap();
    let received = kit.mail.receive(kit.inbound(id, blog, "eve@example.org")).await;
    assert!(matches!(received, Err(MailError::ProjectNotFound)), "{received:?}");
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.messages").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn received_mail_is_in_the_log_once() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.new_id();
    let mut mail = kit.inbound(id, shop, "");
    mail.subject = Some("a\0b\r\nc".to_owned());
    // After the first run, each step can be repeated in any order.
    for _ in 0..2 {
        kit.upload(id, MESSAGE).await.unwrap();
        kit.upload(id, MESSAGE).await.unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn mail_of_a_deleted_project_is_dropped() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.new_id();
    kit.upload(id, MESSAGE).await.unwrap();
    kit.db_execute("UPDATE projects.projects SET deleted_at = now()").await;
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
    assert_eq!(field(valid.clone()).await, "id");
    kit.upload(id, MESSAGE).await.unwrap();
    assert_eq!(field(NewInboundMail { spf: "maybe".to_owned(), ..valid.clone() }).await, "spf");
    assert_eq!(field(NewInboundMail { size_bytes: 21, ..valid.clone() }).await, "sizeBytes");
    kit.mail.receive(valid.clone()).await.unwrap();
    let blog = kit.project("blog").await;
    assert_eq!(field(NewInboundMail { project: blog.project, ..valid }).await, "project");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_or_large_upload_leaves_nothing() {
    let kit = Kit::start().await;
    let broken = stream::iter([Ok(Bytes::from_static(b"a")), Err(std::io::Error::other("closed"))]);
    assert!(matches!(kit.mail.upload(kit.new_id(), broken).await, Err(MailError::UploadBroken(_))));
    let large = stream::iter((0..27).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 1024 * 1024]))));
    assert!(matches!(kit.mail.upload(kit.new_id(), large).await, Err(MailError::MessageTooLarge { .. })));
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
