//! Mails on their way: queued, written, handed to whoever carries them, and noted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kernel::{OrgId, Paging, Role, Time, UserId};
use orgs::{InviteMails, Letter, NewInvite, Notice, NotificationMails, OrgChange, Orgs, Post};
use store::outbox::{Deliver, Message, Undelivered};

use crate::kit::{Kit, by, raise, site, token};

/// Nothing is left to do at this moment: every message is gone, waits for another attempt, or was given up.
const SETTLED: &str = "SELECT count(*) FROM store.outbox WHERE last_error IS NULL";

/// Keeps the letters, and answers as it was told.
#[derive(Default)]
struct FakePost {
    letters: Mutex<Vec<Letter>>,
    /// How the next letters fare; those after them go out.
    answers: Mutex<VecDeque<Undelivered>>,
}

impl FakePost {
    fn letters(&self) -> Vec<Letter> {
        self.letters.lock().unwrap().clone()
    }

    fn answer(&self, answer: Undelivered) {
        self.answers.lock().unwrap().push_back(answer);
    }
}

#[async_trait::async_trait]
impl Post for FakePost {
    async fn send(&self, letter: Letter) -> Result<(), Undelivered> {
        self.letters.lock().unwrap().push(letter);
        self.answers.lock().unwrap().pop_front().map_or(Ok(()), Err)
    }
}

fn later() -> Undelivered {
    Undelivered::Later("451 try again".to_owned())
}

fn invites(post: &Arc<FakePost>) -> Arc<InviteMails> {
    Arc::new(InviteMails { site: site(), post: post.clone() })
}

/// Delivers what is due now.
async fn deliver(kit: &Kit, deliverer: Arc<dyn Deliver>) {
    let pass = kit.store.deliver(deliverer);
    let settled = async {
        while kit.db_number(SETTLED).await > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), settled).await.unwrap();
    pass.stop().await;
}

/// An organization with a name of its own, and its admin.
async fn acme(kit: &Kit) -> (OrgId, UserId) {
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    let change = OrgChange { name: "Acme & Sons".parse().unwrap() };
    kit.orgs.rename(&by(ada), Role::Admin, org, change).await.unwrap();
    (org, ada)
}

async fn invite(kit: &Kit, org: OrgId, ada: UserId) -> String {
    token(&kit.invite(org, ada, "bob@example.com", Role::Member).await.unwrap())
}

/// When the one open invitation's mail went out.
async fn sent_at(kit: &Kit, org: OrgId) -> Option<Time> {
    let [invite] = kit.orgs.invites(org, &Paging::default()).await.unwrap().items.try_into().unwrap();
    invite.sent_at
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mail_that_invites_names_organization_inviter_role_and_link() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let (asked, post) = (kit.now(), Arc::new(FakePost::default()));
    let opens = invite(&kit, org, ada).await;
    assert_eq!(sent_at(&kit, org).await, None);
    kit.advance(30);
    deliver(&kit, invites(&post)).await;
    let [letter] = post.letters().try_into().unwrap();
    assert_eq!((letter.to.as_str(), letter.date), ("bob@example.com", asked));
    let link = ("Accept the invitation".to_owned(), format!("https://dashboard.example/invites/{opens}"));
    assert_eq!(letter.action, Some(link));
    assert_eq!(letter.subject, "ADA invites you to Acme & Sons on Svc");
    let text = letter.paragraphs.join("\n");
    for named in ["ADA", "Acme & Sons", "Svc", "member", "2026-11-28 10:00"] {
        assert!(text.contains(named), "{named}: {text}");
    }
    assert!(letter.footer.contains("bob@example.com"), "{}", letter.footer);
    assert!(!text.contains(&opens) && !letter.subject.contains(&opens) && !letter.id.contains(&opens));
    assert_eq!(sent_at(&kit, org).await, Some(kit.now()));
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox").await, 0);
    // Once is enough.
    deliver(&kit, invites(&post)).await;
    assert_eq!(post.letters().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inviter_without_a_name_is_called_as_they_sign_in() {
    let kit = Kit::start().await;
    let user = kit.db_users("nameless", 1).await[0];
    let org = kit.org(user, "acme").await.id;
    let post = Arc::new(FakePost::default());
    invite(&kit, org, user).await;
    deliver(&kit, invites(&post)).await;
    assert_eq!(post.letters()[0].subject, "nameless-1 invites you to acme on Svc");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_that_has_to_wait_is_sent_later_and_once() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let post = Arc::new(FakePost::default());
    invite(&kit, org, ada).await;
    for attempts in 1..=3 {
        post.answer(later());
        deliver(&kit, invites(&post)).await;
        assert_eq!((post.letters().len(), sent_at(&kit, org).await), (attempts, None));
        kit.advance(20);
    }
    deliver(&kit, invites(&post)).await;
    assert_eq!(sent_at(&kit, org).await, Some(kit.now()));
    kit.advance(3600);
    deliver(&kit, invites(&post)).await;
    // Three that failed and the one that went out; a reader of two would know them for one.
    let letters = post.letters();
    assert_eq!(letters.len(), 4);
    assert!(letters.iter().all(|letter| *letter == letters[0] && !letter.id.is_empty()), "{letters:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_that_is_refused_for_good_counts_as_unsent_until_the_invitation_is_sent_again() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let post = Arc::new(FakePost::default());
    post.answer(Undelivered::Never("550 no such user".to_owned()));
    invite(&kit, org, ada).await;
    deliver(&kit, invites(&post)).await;
    kit.advance(3600);
    deliver(&kit, invites(&post)).await;
    assert_eq!((post.letters().len(), sent_at(&kit, org).await), (1, None));
    let dead = "SELECT count(*) FROM store.outbox WHERE dead_at IS NOT NULL";
    assert_eq!(kit.db_number(dead).await, 1);

    let opens = invite(&kit, org, ada).await;
    assert_eq!(kit.db_number(dead).await, 0);
    deliver(&kit, invites(&post)).await;
    assert_eq!(sent_at(&kit, org).await, Some(kit.now()));
    let letters = post.letters();
    assert!(letters[1].action.as_ref().is_some_and(|(_, link)| link.ends_with(&opens)));
    assert_ne!(letters[0].id, letters[1].id);
    // Another mail is another one to note: nothing is known of it yet.
    invite(&kit, org, ada).await;
    assert_eq!(sent_at(&kit, org).await, None);
}

/// While the first letter is on its way, somebody sends the invitation again; the mail of that has to wait.
struct Overtaken {
    orgs: Orgs,
    org: OrgId,
    ada: UserId,
    post: FakePost,
}

#[async_trait::async_trait]
impl Post for Overtaken {
    async fn send(&self, letter: Letter) -> Result<(), Undelivered> {
        if self.post.letters().is_empty() {
            let new = NewInvite { email: letter.to.parse().unwrap(), role: Role::Admin };
            // The next mail may be on its way before this returns.
            self.post.letters.lock().unwrap().push(letter);
            self.orgs.invite(&by(self.ada), self.org, self.ada, new).await.unwrap();
            return Ok(());
        }
        self.post.send(letter).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_that_was_overtaken_on_its_way_is_not_taken_for_the_newest() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let overtaken = Arc::new(Overtaken { orgs: kit.orgs.clone(), org, ada, post: FakePost::default() });
    overtaken.post.answer(later());
    let mails = || Arc::new(InviteMails { site: site(), post: overtaken.clone() });
    invite(&kit, org, ada).await;
    deliver(&kit, mails()).await;
    assert_eq!((overtaken.post.letters().len(), sent_at(&kit, org).await), (2, None));
    kit.advance(20);
    deliver(&kit, mails()).await;
    let letters = overtaken.post.letters();
    assert_eq!((letters.len(), sent_at(&kit, org).await), (3, Some(kit.now())));
    assert!(letters[0].action != letters[1].action && letters[1] == letters[2], "{letters:?}");
}

/// Keeps the message that it delivers.
struct Kept {
    mails: Arc<InviteMails>,
    message: Mutex<Option<Message>>,
}

#[async_trait::async_trait]
impl Deliver for Kept {
    fn topic(&self) -> &'static str {
        self.mails.topic()
    }

    async fn deliver(&self, message: &Message) -> Result<(), Undelivered> {
        *self.message.lock().unwrap() = Some(message.clone());
        self.mails.deliver(message).await
    }

    async fn delivered(&self, tx: &mut store::Connection, message: &Message, at: Time) -> store::Result<()> {
        self.mails.delivered(tx, message, at).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_mail_with_the_newest_link_is_noted() {
    let kit = Kit::start().await;
    let (org, ada) = acme(&kit).await;
    let post = Arc::new(FakePost::default());
    let kept = Arc::new(Kept { mails: invites(&post), message: Mutex::default() });
    let mut messages = Vec::new();
    for _ in 0..2 {
        post.answer(later());
        invite(&kit, org, ada).await;
        deliver(&kit, kept.clone()).await;
        messages.push(kept.message.lock().unwrap().take().unwrap());
    }
    for (message, noted) in messages.iter().zip([None, Some(kit.now())]) {
        kept.delivered(&mut *kit.connection().await, message, kit.now()).await.unwrap();
        assert_eq!(sent_at(&kit, org).await, noted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_is_mailed_to_the_admins_and_sent_when_the_first_has_it() {
    let kit = Kit::start().await;
    let (org, _) = acme(&kit).await;
    kit.joined(org, "bob", Role::Admin).await;
    kit.joined(org, "eve", Role::Member).await;
    kit.joined(org, "zoe", Role::Viewer).await;
    kit.db_join(org, &kit.db_users("nameless", 1).await, Role::Admin).await;
    let reason = "The node could not reach the store".to_owned();
    let notice = Notice::BackupFailed { project: "shop".to_owned(), reason };
    let (asked, post) = (kit.now(), Arc::new(FakePost::default()));
    raise(&kit.orgs, &kit, org, notice).await.unwrap().unwrap();
    let mails = || Arc::new(NotificationMails { site: site(), post: post.clone() });
    let sent_at = async || kit.orgs.notifications(org, &Paging::default()).await.unwrap().items[0].sent_at;
    assert_eq!(sent_at().await, None);

    kit.advance(30);
    // One of the two has to wait.
    post.answer(later());
    let first = kit.now();
    deliver(&kit, mails()).await;
    assert_eq!((post.letters().len(), sent_at().await), (2, Some(first)));
    kit.advance(20);
    deliver(&kit, mails()).await;
    assert_eq!(sent_at().await, Some(first));
    let mut letters = post.letters();
    assert!(letters[..2].contains(&letters[2]), "{letters:?}");
    letters.truncate(2);
    letters.sort_by(|a, b| a.to.cmp(&b.to));
    assert_eq!(
        letters.iter().map(|letter| letter.to.as_str()).collect::<Vec<_>>(),
        ["ada@example.org", "bob@example.org"]
    );
    assert_ne!(letters[0].id, letters[1].id);
    for letter in letters {
        assert_eq!(letter.subject, "Acme & Sons: The backup of shop failed");
        assert_eq!((letter.heading.as_str(), letter.date), ("The backup of shop failed", asked));
        assert_eq!(
            letter.paragraphs,
            ["The node could not reach the store. The backup is repeated; earlier generations are unaffected."]
        );
        assert!(letter.action.is_some_and(|(_, address)| address == "https://dashboard.example"));
        assert!(letter.footer.contains("Acme & Sons"), "{}", letter.footer);
    }
}
