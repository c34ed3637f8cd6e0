//! A database of its own for each test, a clock that stands, and looks behind the service.

use diesel::QueryableByName;
use diesel::sql_types::{Integer, Jsonb, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::audit::{Actor, Credential};
use kernel::{Limits, OrgId, Provider, Role, Secret, SessionId, Time, UserId};
use orgs::{Invited, NewInvite, NewMember, NewOrg, Org, OrgError, Orgs, Site};
use serde_json::Value;
use store::testing::{TestClock, TestDatabase};
use store::{Lease, Store};

pub struct Kit {
    pub orgs: Orgs,
    pub store: Store,
    clock: TestClock,
    pub database: TestDatabase,
}

/// A row of the audit log, without its id and time.
#[derive(Debug, PartialEq, QueryableByName)]
pub struct Audit {
    #[diesel(sql_type = Text)]
    pub event: String,
    #[diesel(sql_type = Nullable<Uuid>)]
    pub org_id: Option<OrgId>,
    #[diesel(sql_type = Nullable<Uuid>)]
    pub actor_id: Option<UserId>,
    #[diesel(sql_type = Text)]
    pub credential: String,
    #[diesel(sql_type = Text)]
    pub target: String,
    #[diesel(sql_type = Jsonb)]
    pub data: Value,
    #[diesel(sql_type = Text)]
    pub request_id: String,
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
        let (database, clock) = (TestDatabase::create().await, TestClock::default());
        let mut config = store::Config::new(Secret::new(database.url()), "test");
        // Nobody of a race waits for a connection: what is raced for is a row.
        config.connections = 32;
        config.keys = store::testing::keys();
        let store = Store::new(&config, clock.world()).unwrap();
        let orgs = Orgs::new(store.clone(), limits, site());
        Self { orgs, store, clock, database }
    }

    /// What the audit log tells of the present moment, which is over then: the next look tells of what came after.
    pub async fn audited(&self) -> Vec<Audit> {
        let query = diesel::sql_query("SELECT * FROM store.audit WHERE created_at = $1 ORDER BY event, id");
        let now = self.now();
        self.clock.pass(1);
        let query = query.bind::<Timestamptz, _>(now);
        query.load(&mut self.connection().await).await.unwrap()
    }

    /// An organization that `admin` has just created; the audit row of that has been looked at.
    pub async fn org(&self, admin: UserId, slug: &str) -> Org {
        let org = self.orgs.create(&by(admin), admin, new_org(slug)).await.unwrap();
        assert_eq!(self.audited().await.len(), 1);
        org
    }

    /// Somebody new with this role.
    pub async fn joined(&self, org: OrgId, subject: &str, role: Role) -> UserId {
        let user = self.db_user(subject).await;
        let actor = Actor::operator("test");
        self.orgs.member_add(&actor, org, new_member(subject, role)).await.unwrap();
        self.audited().await;
        user
    }

    /// Somebody who has signed in, with an address and a name.
    pub async fn db_user(&self, subject: &str) -> UserId {
        let query = diesel::sql_query(
            "INSERT INTO identity.users VALUES (gen_random_uuid(), 'dev', $1, upper($1), $1 || '@example.org', \
             'https://pictures.example/' || $1, now()) RETURNING id",
        );
        let row: UserRow = query.bind::<Text, _>(subject).get_result(&mut self.connection().await).await.unwrap();
        row.id
    }

    /// So many people, `prefix-1` and onward, by their ids.
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

    /// Makes all of them members, without a word to the audit log.
    pub async fn db_join(&self, org: OrgId, users: &[UserId], role: Role) {
        for user in users {
            let query = diesel::sql_query("INSERT INTO orgs.members VALUES ($1, $2, $3, now())");
            let query = query.bind::<Uuid, _>(org).bind::<Uuid, _>(*user).bind::<Text, _>(role);
            query.execute(&mut self.connection().await).await.unwrap();
        }
    }

    /// The one number that a statement answers.
    pub async fn db_number(&self, statement: &str) -> i64 {
        self.database.number(statement).await
    }

    pub async fn db_execute(&self, statement: &str) {
        self.database.run(statement).await;
    }

    /// An invitation by somebody who may invite.
    pub async fn invite(&self, org: OrgId, by_whom: UserId, email: &str, role: Role) -> Result<Invited, OrgError> {
        let new = NewInvite { email: email.parse().unwrap(), role };
        self.orgs.invite(&by(by_whom), org, by_whom, new).await
    }

    pub fn pass(&self, seconds: i64) {
        self.clock.pass(seconds);
    }

    pub fn now(&self) -> Time {
        self.store.world().now()
    }

    pub async fn connection(&self) -> Lease {
        self.store.connection().await.unwrap()
    }
}

pub fn site() -> Site {
    Site { name: "Svc".to_owned(), dashboard_url: "https://dashboard.example".to_owned(), sends_mail: true }
}

/// A user with a session of the same number.
pub fn by(user: UserId) -> Actor {
    Actor {
        user: Some(user),
        credential: Credential::Session(SessionId::from_uuid(user.as_uuid())),
        request_id: "req-1".to_owned(),
        once: None,
    }
}

/// The row that an event of `actor` leaves.
pub fn told(event: &str, actor: &Actor, org: OrgId, target: impl ToString, data: Value) -> Audit {
    Audit {
        event: event.to_owned(),
        org_id: Some(org),
        actor_id: actor.user,
        credential: actor.credential.to_string(),
        target: target.to_string(),
        data,
        request_id: actor.request_id.clone(),
    }
}

pub fn new_org(slug: &str) -> NewOrg {
    NewOrg { slug: slug.parse().unwrap(), name: None }
}

pub fn new_member(subject: &str, role: Role) -> NewMember {
    NewMember { provider: Provider::Dev, subject: subject.to_owned(), role }
}

/// What opens an invitation that was just made or sent again.
pub fn token(invited: &Invited) -> String {
    let (Invited::New(created) | Invited::Again(created)) = invited;
    created.accept_url.rsplit('/').next().unwrap().to_owned()
}
