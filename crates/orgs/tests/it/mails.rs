//! Mails: their texts, their delivery through the outbox, and the stored time of delivery.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kernel::{OrgId, Paging, Role, Time, UserId};
use orgs::{InviteMails, MailMessage, Mailer, NewInvite, Notice, NotificationMails, OrgChange};
use store::outbox::{DeliveryError, Message, OutboxHandler};

use crate::kit::{Kit, project, raise, session_actor, site, token};

/// Records mails and returns queued results.
#[derive(Default)]
pub struct FakeMailer {
    sent: Mutex<Vec<MailMessage>>,
    /// The results of the next mails. Later mails succeed.
    results: Mutex<VecDeque<Result<bool, DeliveryError>>>,
}

impl FakeMailer {
    pub fn sent(&self) -> Vec<MailMessage> {
        self.sent.lock().unwrap().clone()
    }

    pub fn fail_next(&self, error: DeliveryError) {
        self.results.lock().unwrap().push_back(Err(error));
    }

    /// Refuses the next mail permanently.
    pub fn refuse_next(&self) {
        self.results.lock().unwrap().push_back(Ok(false));
    }
}

#[async_trait::async_trait]
impl Mailer for FakeMailer {
    async fn send(&self, mail: MailMessage) -> Result<bool, DeliveryError> {
        self.sent.lock().unwrap().push(mail);
        self.results.lock().unwrap().pop_front().unwrap_or(Ok(true))
    }
}

fn transient_error() -> DeliveryError {
    DeliveryError::Transient("451 try again".to_owned())
}

pub fn invites(kit: &Kit, mailer: &Arc<FakeMailer>) -> Arc<InviteMails> {
    Arc::new(InviteMails { store: kit.store.clone(), site: site(), mailer: mailer.clone() })
}

pub fn notifications(kit: &Kit, mailer: &Arc<FakeMailer>, max_per_recipient: u32) -> Arc<NotificationMails> {
    let (store, mailer) = (kit.store.clone(), mailer.clone());
    Arc::new(NotificationMails { store, max_per_recipient, site: site(), mailer })
}

/// Attempts all due messages.
pub async fn deliver(kit: &Kit, handler: Arc<dyn OutboxHandler>) {
    // When this count is zero, no message is due, and no first attempt is in progress. The stop of the worker waits for
    // other attempts.
    let due = format!(
        "SELECT count(*) FROM store.outbox WHERE dead_lettered_at IS NULL \
         AND (next_attempt_at <= '{}' OR last_error IS NULL AND attempts > 0)",
        kit.now()
    );
    let worker = kit.store.spawn_outbox_worker(handler);
    let idle = async {
        while kit.db_number(&due).await > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), idle).await.unwrap();
    worker.stop().await;
}

/// Creates an organization with a display name, and its admin.
async fn acme(kit: &Kit) -> (OrgId, UserId) {
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    let change = OrgChange { name: "Acme & Sons".parse().unwrap() };
    kit.orgs.rename(&session_actor(ada), Role::Admin, org, change).await.unwrap();
    (org, ada)
}

async fn invite(kit: &Kit, org: OrgId, ada: UserId) -> String {
    token(&kit.invite(org, ada, "bob@example.com", Role::Member).await.unwrap())
}

/// Returns the time at which the mail of the only open invitation was sent.
async fn sent_at(kit: &Kit, org: OrgId) -> Option<Time> {
    let [invite] = kit.orgs.invites(org, &Paging::default()).await.unwrap().items.try_into().unwrap();
    invite.sent_at
}

#[tokio::test(flavor = "multi_thread")]
async fn invitation_mail_names_organization_inviter_role_and_link() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let (queued_at, mailer) = (kit.now(), Arc::new(FakeMailer::default()));
    let link_token = invite(&kit, org, ada).await;
    assert_eq!(sent_at(&kit, org).await, None);
    kit.advance(30);
    deliver(&kit, invites(&kit, &mailer)).await;
    let [mail] = mailer.sent().try_into().unwrap();
    assert_eq!((mail.to.as_str(), mail.date), ("bob@example.com", queued_at));
    let link = ("Accept the invitation".to_owned(), format!("https://dashboard.example/invites/{link_token}"));
    assert_eq!(mail.action, Some(link));
    assert_eq!(mail.subject, "ADA invites you to join Acme & Sons on Svc");
    let text = mail.paragraphs.join("\n");
    for named in ["ADA", "Acme & Sons", "Svc", "member", "2026-11-28 10:00"] {
        assert!(text.contains(named), "{named}: {text}");
    }
    assert!(mail.footer.contains("bob@example.com"), "{}", mail.footer);
    assert!(!text.contains(&link_token) && !mail.subject.contains(&link_token) && !mail.id.contains(&link_token));
    assert_eq!(sent_at(&kit, org).await, Some(kit.now()));
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox").await, 0);
    // The mail is sent only once.
    deliver(&kit, invites(&kit, &mailer)).await;
    assert_eq!(mailer.sent().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn invitation_mail_names_the_subject_of_an_inviter_without_a_name() {
    let kit = Kit::start().await;
    let user = kit.db_users("nameless", 1).await[0];
    let org = kit.org(user, "acme").await.id;
    let mailer = Arc::new(FakeMailer::default());
    invite(&kit, org, user).await;
    deliver(&kit, invites(&kit, &mailer)).await;
    assert_eq!(mailer.sent()[0].subject, "nameless-1 invites you to join acme on Svc");
}

/// An outage of the mail server or an operator's retry of a dead letter can delay the mail by days.
#[tokio::test(flavor = "multi_thread")]
async fn mail_of_an_expired_invitation_is_not_sent() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let mailer = Arc::new(FakeMailer::default());
    invite(&kit, org, ada).await;
    kit.advance(7 * 24 * 3600);
    deliver(&kit, invites(&kit, &mailer)).await;
    assert_eq!((mailer.sent(), sent_at(&kit, org).await), (vec![], None));
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox").await, 0);
}

/// The clock of the process becomes wrong after the claim of the mail.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_clock_does_not_expire_an_invitation() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let (store, mailer) = (kit.with_clock_ahead(30 * 24 * 3600), Arc::new(FakeMailer::default()));
    store.corrected_now(&mut *kit.connection().await).await.unwrap();
    invite(&kit, org, ada).await;
    deliver(&kit, Arc::new(InviteMails { store, site: site(), mailer: mailer.clone() })).await;
    assert_eq!(mailer.sent().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_mail_is_retried_until_it_is_sent_once() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let mailer = Arc::new(FakeMailer::default());
    invite(&kit, org, ada).await;
    for attempts in 1..=3 {
        mailer.fail_next(transient_error());
        deliver(&kit, invites(&kit, &mailer)).await;
        assert_eq!((mailer.sent().len(), sent_at(&kit, org).await), (attempts, None));
        kit.advance(20);
    }
    deliver(&kit, invites(&kit, &mailer)).await;
    assert_eq!(sent_at(&kit, org).await, Some(kit.now()));
    kit.advance(3600);
    deliver(&kit, invites(&kit, &mailer)).await;
    // Three failed attempts and one success. All attempts send the same mail.
    let sent = mailer.sent();
    assert_eq!(sent.len(), 4);
    assert!(sent.iter().all(|mail| *mail == sent[0] && !mail.id.is_empty()), "{sent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_mail_stays_unsent_until_the_invitation_is_resent() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let mailer = Arc::new(FakeMailer::default());
    mailer.refuse_next();
    invite(&kit, org, ada).await;
    deliver(&kit, invites(&kit, &mailer)).await;
    kit.advance(3600);
    deliver(&kit, invites(&kit, &mailer)).await;
    assert_eq!((mailer.sent().len(), sent_at(&kit, org).await), (1, None));
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox").await, 0);

    let link_token = invite(&kit, org, ada).await;
    deliver(&kit, invites(&kit, &mailer)).await;
    assert_eq!(sent_at(&kit, org).await, Some(kit.now()));
    let sent = mailer.sent();
    assert!(sent[1].action.as_ref().is_some_and(|(_, link)| link.ends_with(&link_token)));
    assert_ne!(sent[0].id, sent[1].id);
    // A resend resets the time if it queues a new mail.
    invite(&kit, org, ada).await;
    assert_eq!(sent_at(&kit, org).await, Some(kit.now()));
    kit.advance(600);
    invite(&kit, org, ada).await;
    assert_eq!(sent_at(&kit, org).await, None);
}

/// Resends the invitation during a long delivery of the first mail. The second mail fails at first.
struct ResendDuringSend {
    kit: Arc<Kit>,
    org: OrgId,
    ada: UserId,
    mailer: FakeMailer,
}

#[async_trait::async_trait]
impl Mailer for ResendDuringSend {
    async fn send(&self, mail: MailMessage) -> Result<bool, DeliveryError> {
        if self.mailer.sent().is_empty() {
            let new = NewInvite { email: mail.to.parse().unwrap(), role: Role::Admin };
            // Record the mail first, because the next mail may be delivered before `invite` returns.
            self.mailer.sent.lock().unwrap().push(mail);
            self.kit.db_execute("UPDATE orgs.invite_mails SET due_at = due_at - interval '10 minutes'").await;
            self.kit.orgs.invite(&session_actor(self.ada), self.org, self.ada, new).await.unwrap();
            return Ok(true);
        }
        self.mailer.send(mail).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_of_an_outdated_mail_does_not_mark_the_invitation_as_sent() {
    let kit = Arc::new(Kit::start().await);
    let (org, ada) = acme(&kit).await;
    let resending = Arc::new(ResendDuringSend { kit: kit.clone(), org, ada, mailer: FakeMailer::default() });
    resending.mailer.fail_next(transient_error());
    let mails = || Arc::new(InviteMails { store: kit.store.clone(), site: site(), mailer: resending.clone() });
    invite(&kit, org, ada).await;
    deliver(&kit, mails()).await;
    assert_eq!((resending.mailer.sent().len(), sent_at(&kit, org).await), (2, None));
    kit.advance(20);
    deliver(&kit, mails()).await;
    let sent = resending.mailer.sent();
    assert_eq!((sent.len(), sent_at(&kit, org).await), (3, Some(kit.now())));
    assert!(sent[0].action != sent[1].action && sent[1] == sent[2], "{sent:?}");
}

/// Records the last delivered message.
struct MessageRecorder {
    mails: Arc<InviteMails>,
    message: Mutex<Option<Message>>,
}

#[async_trait::async_trait]
impl OutboxHandler for MessageRecorder {
    fn topic(&self) -> &'static str {
        self.mails.topic()
    }

    async fn deliver(&self, message: &Message) -> Result<(), DeliveryError> {
        *self.message.lock().unwrap() = Some(message.clone());
        self.mails.deliver(message).await
    }

    async fn on_delivered(&self, tx: &mut store::Connection, message: &Message, at: Time) -> store::Result<()> {
        self.mails.on_delivered(tx, message, at).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_delivery_of_the_newest_mail_is_recorded() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let mailer = Arc::new(FakeMailer::default());
    let recorder = Arc::new(MessageRecorder { mails: invites(&kit, &mailer), message: Mutex::default() });
    let mut messages = Vec::new();
    for _ in 0..2 {
        kit.advance(600);
        mailer.fail_next(transient_error());
        invite(&kit, org, ada).await;
        deliver(&kit, recorder.clone()).await;
        messages.push(recorder.message.lock().unwrap().take().unwrap());
    }
    for (message, expected) in messages.iter().zip([None, Some(kit.now())]) {
        message.response.set(true.into()).unwrap();
        recorder.on_delivered(&mut *kit.connection().await, message, kit.now()).await.unwrap();
        assert_eq!(sent_at(&kit, org).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_is_mailed_to_admins_and_sent_with_the_first_mail() {
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    kit.joined(org, "bob", Role::Admin).await;
    kit.joined(org, "eve", Role::Member).await;
    kit.joined(org, "zoe", Role::Viewer).await;
    kit.db_join(org, &kit.db_users("nameless", 1).await, Role::Admin).await;
    let reason = "The node could not reach the store".to_owned();
    let notice = Notice::BackupFailed { project: project("shop"), reason };
    let (queued_at, mailer) = (kit.now(), Arc::new(FakeMailer::default()));
    raise(&kit.orgs, &kit, org, notice).await.unwrap().unwrap();
    let mails = || notifications(&kit, &mailer, 60);
    let sent_at = async || kit.orgs.notifications(org, &Paging::default()).await.unwrap().items[0].sent_at;
    assert_eq!(sent_at().await, None);

    kit.advance(30);
    // One of the two mails fails at first.
    mailer.fail_next(transient_error());
    let first = kit.now();
    deliver(&kit, mails()).await;
    assert_eq!((mailer.sent().len(), sent_at().await), (2, Some(first)));
    kit.advance(20);
    deliver(&kit, mails()).await;
    assert_eq!(sent_at().await, Some(first));
    let mut sent = mailer.sent();
    assert!(sent[..2].contains(&sent[2]), "{sent:?}");
    sent.truncate(2);
    sent.sort_by(|a, b| a.to.cmp(&b.to));
    assert_eq!(sent.iter().map(|mail| mail.to.as_str()).collect::<Vec<_>>(), ["ada@example.org", "bob@example.org"]);
    assert_ne!(sent[0].id, sent[1].id);
    for mail in sent {
        assert_eq!(mail.subject, "Acme & Sons: The backup of shop failed");
        assert_eq!((mail.heading.as_str(), mail.date), ("The backup of shop failed", queued_at));
        assert_eq!(mail.paragraphs, ["The node could not reach the store."]);
        assert!(mail.action.is_some_and(|(_, address)| address == "https://dashboard.example"));
        assert!(mail.footer.contains("Acme & Sons"), "{}", mail.footer);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_notification_is_mailed_only_to_users_who_are_still_admins() {
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    for subject in ["demoted", "removed", "moved"] {
        kit.joined(org, subject, Role::Admin).await;
    }
    let mailer = Arc::new(FakeMailer::default());
    let notice = Notice::BackupFailed { project: project("shop"), reason: "The store is full".to_owned() };
    raise(&kit.orgs, &kit, org, notice).await.unwrap().unwrap();
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox").await, 4);
    let user = |subject: &str| format!("(SELECT id FROM identity.users WHERE subject = '{subject}')");
    for change in [
        format!("UPDATE orgs.members SET role = 'member' WHERE user_id = {}", user("demoted")),
        format!("DELETE FROM orgs.members WHERE user_id = {}", user("removed")),
        "UPDATE identity.users SET email = 'other@example.org' WHERE subject = 'moved'".to_owned(),
    ] {
        kit.db_execute(&change).await;
    }
    deliver(&kit, notifications(&kit, &mailer, 60)).await;
    let sent = mailer.sent();
    let recipients: Vec<&str> = sent.iter().map(|mail| mail.to.as_str()).collect();
    assert_eq!(recipients, ["ada@example.org"]);
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_without_a_remaining_recipient_stays_unsent() {
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    let mailer = Arc::new(FakeMailer::default());
    let notice = Notice::BackupFailed { project: project("shop"), reason: "The store is full".to_owned() };
    raise(&kit.orgs, &kit, org, notice).await.unwrap().unwrap();
    kit.db_execute("UPDATE orgs.members SET role = 'member'").await;
    deliver(&kit, notifications(&kit, &mailer, 60)).await;
    assert_eq!((mailer.sent(), kit.db_number("SELECT count(*) FROM store.outbox").await), (vec![], 0));
    assert_eq!(kit.orgs.notifications(org, &Paging::default()).await.unwrap().items[0].sent_at, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_that_is_refused_for_an_admin_is_mailed_to_the_others() {
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    let mailer = Arc::new(FakeMailer::default());
    let sent_at = async || kit.orgs.notifications(org, &Paging::default()).await.unwrap().items[0].sent_at;
    let notice = |reason: &str| Notice::BackupFailed { project: project("shop"), reason: reason.to_owned() };
    mailer.refuse_next();
    raise(&kit.orgs, &kit, org, notice("The store is full")).await.unwrap().unwrap();
    deliver(&kit, notifications(&kit, &mailer, 60)).await;
    assert_eq!((mailer.sent().len(), sent_at().await), (1, None));

    kit.joined(org, "bob", Role::Admin).await;
    kit.advance(1);
    mailer.refuse_next();
    raise(&kit.orgs, &kit, org, notice("The store is still full")).await.unwrap().unwrap();
    deliver(&kit, notifications(&kit, &mailer, 60)).await;
    assert_eq!((mailer.sent().len(), sent_at().await), (3, Some(kit.now())));
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox").await, 0);
}
