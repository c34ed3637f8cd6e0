//! Test fixture: a database per test, a manual clock, and direct access to the tables.

use std::ops::Deref;

use diesel::QueryableByName;
use diesel::sql_types::{Integer, Text, Uuid};
use diesel_async::RunQueryDsl;
use kernel::audit::{Actor, Event};
use kernel::{Limits, NamedProject, NotificationId, OrgId, ProjectId, Provider, Role, Time, UserId};
use orgs::{InviteOutcome, NewInvite, NewMember, NewOrg, Notice, Org, OrgError, Orgs, Site};
use serde_json::{Value, json};
use store::Outcome;
use testkit::{Audit, TestStore};

pub use testkit::session_actor;

pub struct Kit {
    pub orgs: Orgs,
    base: TestStore,
}

impl Deref for Kit {
    type Target = TestStore;

    fn deref(&self) -> &TestStore {
        &self.base
    }
}

#[derive(QueryableByName)]
struct UserRow {
    #[diesel(sql_type = Uuid)]
    id: UserId,
}

impl Kit {
    pub async fn start() -> Self {
        Self::with(Limits::default()).await
    }

    pub async fn with(limits: Limits) -> Self {
        let base = TestStore::start().await;
        let orgs = Orgs::new(base.store.clone(), limits, site());
        Self { orgs, base }
    }

    /// Creates an organization and discards its audit row.
    pub async fn org(&self, admin: UserId, slug: &str) -> Org {
        let org = self.orgs.create(&session_actor(admin), admin, new_org(slug)).await.unwrap();
        assert_eq!(self.audited().await.len(), 1);
        org
    }

    /// Creates a user and adds them with this role.
    pub async fn joined(&self, org: OrgId, subject: &str, role: Role) -> UserId {
        let user = self.db_user(subject).await;
        let actor = Actor::operator("test");
        self.orgs.member_add(&actor, org, new_member(subject, role)).await.unwrap();
        self.audited().await;
        user
    }

    /// Inserts a user with an address and a name.
    pub async fn db_user(&self, subject: &str) -> UserId {
        let query = diesel::sql_query(
            "INSERT INTO identity.users VALUES (gen_random_uuid(), 'dev', $1, upper($1), $1 || '@example.org', \
             'https://pictures.example/' || $1, now()) RETURNING id",
        );
        let row: UserRow = query.bind::<Text, _>(subject).get_result(&mut self.connection().await).await.unwrap();
        row.id
    }

    /// Inserts `count` users named `prefix-1` and so on, and returns their ids in order.
    pub async fn db_users(&self, prefix: &str, count: i32) -> Vec<UserId> {
        let query = diesel::sql_query(
            "INSERT INTO identity.users (id, provider, subject, created_at) \
             SELECT gen_random_uuid(), 'dev', $1 || '-' || n, now() FROM generate_series(1, $2) n RETURNING id",
        );
        let query = query.bind::<Text, _>(prefix).bind::<Integer, _>(count);
        let rows: Vec<UserRow> = query.load(&mut self.connection().await).await.unwrap();
        let mut users: Vec<UserId> = rows.into_iter().map(|row| row.id).collect();
        users.sort();
        users
    }

    /// Inserts members without audit events.
    pub async fn db_join(&self, org: OrgId, users: &[UserId], role: Role) {
        for user in users {
            let query = diesel::sql_query("INSERT INTO orgs.members VALUES ($1, $2, $3, now())");
            let query = query.bind::<Uuid, _>(org).bind::<Uuid, _>(*user).bind::<Text, _>(role);
            query.execute(&mut self.connection().await).await.unwrap();
        }
    }

    /// Sends an invitation as `by`.
    pub async fn invite(&self, org: OrgId, by: UserId, email: &str, role: Role) -> Result<InviteOutcome, OrgError> {
        let new = NewInvite { email: email.parse().unwrap(), role };
        self.orgs.invite(&session_actor(by), org, by, new).await
    }
}

pub fn site() -> Site {
    Site { name: "Svc".to_owned(), dashboard_url: "https://dashboard.example".to_owned(), sends_mail: true }
}

/// Raises a notice in its own transaction, with its own audit event.
pub async fn raise(orgs: &Orgs, kit: &Kit, org: OrgId, notice: Notice) -> Result<Option<NotificationId>, OrgError> {
    kit.store
        .transaction(&Actor::operator("test"), async |tx| {
            Ok(match orgs.raise(tx, org, notice).await? {
                None => Outcome::Unchanged(None),
                Some(id) => Outcome::Changed(Some(id), Event::in_org("notification.raise", org, id, json!({}))),
            })
        })
        .await
}

/// Returns the audit row of an event by `actor`.
pub fn audit_row(event: &'static str, actor: &Actor, org: OrgId, target: impl ToString, data: Value) -> Audit {
    Audit::of(actor, Event::in_org(event, org, target, data))
}

pub fn new_org(slug: &str) -> NewOrg {
    NewOrg { slug: slug.parse().unwrap(), name: None }
}

pub fn new_member(subject: &str, role: Role) -> NewMember {
    NewMember { provider: Provider::Dev, subject: subject.to_owned(), role }
}

/// Returns the token of a new or resent invitation.
pub fn token(invited: &InviteOutcome) -> String {
    let (InviteOutcome::Created(created) | InviteOutcome::Resent(created)) = invited;
    created.accept_url.rsplit('/').next().unwrap().to_owned()
}

/// Returns a project with this name. Its id depends only on the name.
pub fn project(name: &str) -> NamedProject {
    let number = name.bytes().map(i64::from).sum();
    NamedProject { id: ProjectId::earliest_at(Time::UNIX_EPOCH.plus_seconds(number)), name: name.to_owned() }
}
