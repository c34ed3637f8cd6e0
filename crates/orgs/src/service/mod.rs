//! Use cases of organizations. This file contains organizations and members; the other files contain invitations and
//! notifications.

mod invite;
mod invite_mail;
mod notification;

pub use invite::InviteOutcome;

use kernel::audit::{Actor, Event};
use kernel::{AbuseLimits, AuditId, Limits, OrgId, Page, Paging, Plan, Role, UserId};
use serde_json::json;
use store::{Connection, Outcome, Store};

use crate::error::OrgError;
use crate::model::{
    AuditEvent, AuditFilter, Member, NewMember, NewOrg, NewSlug, Org, OrgChange, OrgMembership, RoleChange, Slug,
};
use crate::repository::{AuditLog, OrgRecord, OrgRepository as _, Person};

/// The service for organizations and members. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Orgs {
    store: Store,
    limits: Limits,
    abuse_limits: AbuseLimits,
    site: Site,
}

/// The name and the dashboard of this installation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Site {
    pub name: String,
    /// The address of the dashboard, where invitations are accepted, without a trailing slash.
    pub dashboard_url: String,
    /// Whether the installation sends mail. If not, no mail is queued.
    pub sends_mail: bool,
}

/// The maximum length of a slug without its suffix. A slug has at most 40 characters, and a suffix at most 9.
const MAX_SLUG_STEM: usize = 31;

/// How long the retention of the pro plan applies after its end.
const PRO_RETENTION_SECONDS: i64 = 30 * 24 * 3600;

type Result<T> = std::result::Result<T, OrgError>;

impl Orgs {
    /// Creates the service, with the default limits against abuse.
    #[must_use]
    pub fn new(store: Store, limits: Limits, site: Site) -> Self {
        Self { store, limits, abuse_limits: AbuseLimits::default(), site }
    }

    /// Sets the limits against abuse.
    #[must_use]
    pub fn with_abuse_limits(self, abuse_limits: AbuseLimits) -> Self {
        Self { abuse_limits, ..self }
    }

    /// Returns the organizations of a user, sorted by id. `only` is the restriction of the credential.
    pub async fn list(&self, user: UserId, only: Option<&[OrgId]>, paging: &Paging<OrgId>) -> Result<Page<Org>> {
        let rows = self.store.connection().await?.org_list(user, only, Some(paging)).await?;
        let orgs = rows.into_iter().map(|(org, role)| self.org_view(org, role)).collect();
        Ok(Page::cut(orgs, paging, |org: &Org| org.id))
    }

    /// Returns all organizations of a user, for the user's profile. `only` is the restriction of the credential.
    pub async fn memberships(&self, user: UserId, only: Option<&[OrgId]>) -> Result<Vec<OrgMembership>> {
        let rows = self.store.connection().await?.org_list(user, only, None).await?;
        Ok(rows.into_iter().map(|(org, role)| self.org_view(org, role).into()).collect())
    }

    /// Creates an organization whose first admin is `user`.
    ///
    /// # Errors
    /// Returns [`OrgError::SlugTaken`] or [`OrgError::TooManyOrgs`].
    pub async fn create(&self, actor: &Actor, user: UserId, new: NewOrg) -> Result<Org> {
        let NewOrg { slug, name } = new;
        let slug = Slug::from(slug);
        let name = name.map_or_else(|| slug.to_string(), |name| name.to_string());
        let org = self.new_record(user, slug, name, false);
        self.store
            .transaction(actor, async |tx| {
                self.ensure_below_org_limit(tx, user).await?;
                if !self.insert_with_admin(tx, &org, user).await? {
                    return Err(OrgError::SlugTaken(org.slug.to_string()));
                }
                let data = json!({ "slug": org.slug, "name": org.name });
                let event = Event::in_org("org.create", org.id, org.id, data);
                Ok(Outcome::Changed(self.org_view(org, Role::Admin), event))
            })
            .await
    }

    /// Renames an organization. `role` is the caller's role. The same name is a no-op.
    pub async fn rename(&self, actor: &Actor, role: Role, org: OrgId, change: OrgChange) -> Result<Org> {
        let OrgChange { name } = change;
        self.store
            .transaction(actor, async |tx| {
                let Some(renamed) = tx.org_rename(org, name.as_str()).await? else {
                    let same = tx.org_find(org).await?.ok_or_else(|| store::Error::inconsistent("no organization"))?;
                    return Ok(Outcome::Unchanged(self.org_view(same, role)));
                };
                let event = Event::in_org("org.rename", org, org, json!({ "name": name }));
                Ok(Outcome::Changed(self.org_view(renamed, role), event))
            })
            .await
    }

    /// Locks an organization until the caller's transaction ends, and returns its plan; `None` for an unknown
    /// organization. Operations that a plan limits wait for the lock.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<Option<Plan>> {
        tx.org_lock(org).await
    }

    /// Changes the plan of a locked organization, in the caller's transaction. After the end of the pro plan, its
    /// retention applies for another 30 days ([`Plan::for_retention`]).
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn set_plan(&self, tx: &mut Connection, org: OrgId, plan: Plan) -> store::Result<()> {
        let pro_retention_until = match plan {
            Plan::Free => Some(self.store.clock_rng().now().plus_seconds(PRO_RETENTION_SECONDS)),
            Plan::Pro => None,
        };
        tx.org_set_plan(org, plan, pro_retention_until).await
    }

    /// Returns the audit events of a user's own account, newest first: its sessions, credentials and grants.
    ///
    /// # Errors
    /// Returns [`OrgError::Store`].
    pub async fn account_audit(
        &self,
        user: UserId,
        filter: &AuditFilter,
        paging: &Paging<AuditId>,
    ) -> Result<Page<AuditEvent>> {
        self.audit_page(AuditLog::Account(user), filter, paging).await
    }

    /// Returns the audit events of an organization, newest first.
    pub async fn audit(&self, org: OrgId, filter: &AuditFilter, paging: &Paging<AuditId>) -> Result<Page<AuditEvent>> {
        self.audit_page(AuditLog::Org(org), filter, paging).await
    }

    /// Returns a page of a log. A page without a filter is a lookup. A filter may skip many events, so it is not.
    async fn audit_page(
        &self,
        log: AuditLog,
        filter: &AuditFilter,
        paging: &Paging<AuditId>,
    ) -> Result<Page<AuditEvent>> {
        let events = if *filter == AuditFilter::default() {
            self.store.lookup(async |lookups| lookups.audit_list(log, filter, paging).await).await?
        } else {
            self.store.connection().await?.audit_list(log, filter, paging).await?
        };
        Ok(Page::cut(events, paging, |event| event.id))
    }

    /// Creates the personal organization of a new user, in the transaction that creates the user. The slug is derived
    /// from `preferred_slug`, with a suffix if that slug is invalid, taken or reserved.
    pub async fn create_personal(&self, tx: &mut Connection, user: UserId, preferred_slug: &str) -> Result<OrgId> {
        let whole = slug_text(preferred_slug);
        let stem = whole.get(..MAX_SLUG_STEM).unwrap_or(&whole).trim_end_matches('-');
        let numbered = (2..=20).map(|n| format!("{stem}-{n}"));
        let random =
            std::iter::repeat_with(|| format!("{stem}-{:08x}", u32::from_be_bytes(self.store.clock_rng().bytes())));
        for candidate in std::iter::once(whole.clone()).chain(numbered).chain(random) {
            let Ok(slug) = candidate.parse::<NewSlug>() else { continue };
            let org = self.new_record(user, slug.into(), preferred_slug.to_owned(), true);
            if self.insert_with_admin(tx, &org, user).await? {
                return Ok(org.id);
            }
        }
        unreachable!("the candidates are endless")
    }

    /// Returns the members, sorted by user id.
    pub async fn members(&self, org: OrgId, paging: &Paging<UserId>) -> Result<Page<Member>> {
        let members = self.store.lookup(async |lookups| lookups.member_list(org, paging).await).await?;
        Ok(Page::cut(members, paging, |member| member.user_id))
    }

    /// Adds a user who has signed in at least once.
    ///
    /// # Errors
    /// Returns [`OrgError::UserNotFound`] or [`OrgError::AlreadyMember`].
    pub async fn member_add(&self, actor: &Actor, org: OrgId, new: NewMember) -> Result<Member> {
        let NewMember { provider, subject, role } = new;
        self.store
            .transaction(actor, async |tx| {
                tx.org_lock(org).await?.ok_or(OrgError::OrgNotFound)?;
                let person = tx.person_find(provider, &subject).await?;
                let person = person.ok_or(OrgError::UserNotFound { provider, subject })?;
                let joined_at = self.store.clock_rng().now();
                if !tx.member_insert(org, person.id, role, joined_at).await? {
                    return Err(OrgError::AlreadyMember);
                }
                let event = Event::in_org("member.add", org, person.id, json!({ "role": role }));
                Ok(Outcome::Changed(Member::new(person, role, joined_at), event))
            })
            .await
    }

    /// Changes a member's role. The same role is a no-op.
    ///
    /// # Errors
    /// Returns [`OrgError::MemberNotFound`] or [`OrgError::LastAdmin`].
    pub async fn member_set_role(&self, actor: &Actor, org: OrgId, user: UserId, change: RoleChange) -> Result<Member> {
        let RoleChange { role } = change;
        self.store
            .transaction(actor, async |tx| {
                let mut member = lock_member(tx, org, user).await?;
                if member.role == role {
                    return Ok(Outcome::Unchanged(member));
                }
                ensure_other_admin(tx, org, &member).await?;
                // Check the caller before the change, because an admin may demote themself.
                let authorized = self.store.authorize(tx, actor).await?;
                tx.member_set_role(org, user, role).await?;
                let revoked = if role < Role::Admin { self.revoke_known_invites(tx, org, user).await? } else { 0 };
                let data = json!({ "from": member.role, "to": role, "invitesRevoked": revoked });
                let event = Event::in_org("member.role", org, user, data);
                member.role = role;
                Ok(Outcome::ChangedAuthority(member, event, authorized))
            })
            .await
    }

    /// Removes a member. Members can remove themselves, and admins can remove any member. `role` is the caller's role.
    ///
    /// # Errors
    /// Returns [`OrgError::AdminOnly`], [`OrgError::MemberNotFound`] or [`OrgError::LastAdmin`].
    pub async fn member_remove(&self, actor: &Actor, role: Role, org: OrgId, user: UserId) -> Result<()> {
        let leaving = actor.user == Some(user);
        if !leaving && role < Role::Admin {
            return Err(OrgError::AdminOnly);
        }
        let actor = &if leaving { actor.clone() } else { actor.clone().requiring(Role::Admin) };
        self.store
            .transaction(actor, async |tx| {
                let member = lock_member(tx, org, user).await?;
                ensure_other_admin(tx, org, &member).await?;
                // Check the caller before the change, because a member may remove themself.
                let authorized = self.store.authorize(tx, actor).await?;
                tx.member_delete(org, user).await?;
                let revoked = self.revoke_known_invites(tx, org, user).await?;
                let name = if leaving { "member.leave" } else { "member.remove" };
                let data = json!({ "role": member.role, "invitesRevoked": revoked });
                Ok(Outcome::ChangedAuthority((), Event::in_org(name, org, user, data), authorized))
            })
            .await
    }

    /// Inserts the organization and its first admin. Returns false if the slug is taken.
    async fn insert_with_admin(&self, tx: &mut Connection, org: &OrgRecord, admin: UserId) -> Result<bool> {
        Ok(tx.org_insert(org).await? && tx.member_insert(org.id, admin, Role::Admin, org.created_at).await?)
    }

    /// Locks the creation of organizations by the user, so that concurrent requests cannot exceed the limit.
    async fn ensure_below_org_limit(&self, tx: &mut Connection, user: UserId) -> Result<()> {
        tx.org_lock_creation(user).await?;
        let (limit, count) = (self.abuse_limits.orgs_per_user, tx.org_count_created(user).await?);
        if count >= i64::from(limit) { Err(OrgError::TooManyOrgs { limit, count }) } else { Ok(()) }
    }

    fn new_record(&self, user: UserId, slug: Slug, name: String, personal: bool) -> OrgRecord {
        let clock_rng = self.store.clock_rng();
        let (id, created_at, created_by) = (clock_rng.id(), clock_rng.now(), Some(user));
        OrgRecord { id, slug, name, plan: Plan::Free, personal, created_at, created_by }
    }

    fn org_view(&self, org: OrgRecord, role: Role) -> Org {
        let OrgRecord { id, slug, name, plan, personal, created_at, created_by: _ } = org;
        Org { id, slug, name, plan, personal, role, project_limit: self.limits.for_plan(plan).projects, created_at }
    }
}

/// Returns the member under the organization's row lock. The lock serializes the changes of two admins who demote each
/// other.
async fn lock_member(tx: &mut Connection, org: OrgId, user: UserId) -> Result<Member> {
    tx.org_lock(org).await?;
    tx.member_find(org, user).await?.ok_or(OrgError::MemberNotFound)
}

/// Returns [`OrgError::LastAdmin`] if `member` is the only admin.
async fn ensure_other_admin(tx: &mut Connection, org: OrgId, member: &Member) -> Result<()> {
    if member.role == Role::Admin && tx.member_count_other_admins(org, member.user_id).await? == 0 {
        return Err(OrgError::LastAdmin);
    }
    Ok(())
}

/// Returns `preferred_slug` with the characters of a slug, and without the prefix `xn--`. The length is not limited.
fn slug_text(preferred_slug: &str) -> String {
    let text: String = preferred_slug
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .collect();
    match text.trim_matches('-') {
        "" => "user".to_owned(),
        text => match text.strip_prefix("xn--") {
            Some(rest) => format!("xn-{}", rest.trim_start_matches('-')),
            None => text.to_owned(),
        },
    }
}

impl Member {
    pub(crate) fn new(person: Person, role: Role, joined_at: kernel::Time) -> Self {
        let Person { id, provider, subject, name, avatar_url } = person;
        Self { user_id: id, provider, subject, name, avatar_url, role, joined_at }
    }
}

impl From<Org> for OrgMembership {
    fn from(org: Org) -> Self {
        let Org { id, slug, name, plan, personal, role, project_limit, .. } = org;
        Self { id, slug, name, role, plan, personal, project_limit }
    }
}

impl Site {
    /// Returns the link of an invitation.
    pub(crate) fn accept_url(&self, token: &str) -> String {
        format!("{}/invites/{token}", self.dashboard_url)
    }
}
