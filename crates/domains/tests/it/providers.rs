//! Deterministic providers, which fail or stop before or after their effects.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use domains::{
    Charge, DsRecord, DsWanted, NewOrder, Notice, Offer, Organizations, Payments, PaymentsError, Prices, Refund,
    RegisteredDomain, Registrar, RegistrarError, Registration, RenewalOrder,
};
use kernel::{OrgId, Secret, Time, ZoneId};
use store::Connection;
use testkit::TestClock;
use tokio::sync::watch;

pub const FIRST_YEAR: i64 = 1299;
pub const RENEWAL: i64 = 1499;
pub const YEAR: i64 = 365 * 24 * 3600;

/// The calls to other ports than the registrar.
const OTHER_CALLS: [&str; 5] = ["card", "order", "charge", "refund", "zone"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Before,
    After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call never returns: its process is killed.
    Kill,
    /// The call fails as unavailable.
    Fail,
    /// The call waits until the test ends the pause.
    Pause,
}

/// The state of the simulated providers. Each fault happens once. It is selected by the call and its subject: an
/// organization for payments, a name for the registrar.
#[derive(Clone, Default)]
pub struct World {
    pub state: Arc<Mutex<State>>,
    /// The subjects of the calls that never returned.
    pub killed: watch::Sender<Vec<String>>,
    /// Whether a call waits.
    pub paused: watch::Sender<bool>,
    pub clock: TestClock,
}

type Reply = Result<RegisteredDomain, RegistrarError>;

/// A registration or a renewal that the registrar executes after the caller has stopped waiting.
struct InProgress {
    key: String,
    /// The response to the same key.
    refusal: RegistrarError,
    effect: Box<dyn FnOnce(&mut State) -> Reply + Send>,
}

#[derive(Default)]
pub struct State {
    pub faults: Vec<(String, &'static str, When, Fault)>,
    /// The domains of the platform's account.
    pub account: HashMap<String, RegisteredDomain>,
    /// The expiries that the registrar still shows after a renewal, by name.
    pub stale_expiries: HashMap<String, Time>,
    /// The registered names, one for each effect.
    pub registrations: Vec<String>,
    /// The renewals, one for each effect.
    pub renewals: Vec<String>,
    /// The refusals of registrations, renewals and changes of the lock, by name.
    pub refusals: HashMap<String, RegistrarError>,
    /// The responses that the registrar replays, by idempotency key.
    replies: HashMap<String, Reply>,
    /// The names whose next registration or renewal takes longer than any caller waits, and the response to a repeated
    /// registration.
    pub slow: HashMap<String, RegistrarError>,
    in_progress: Vec<InProgress>,
    pub prices: HashMap<String, (Prices, bool)>,
    pub orders: Vec<Order>,
    /// The organizations without a card.
    pub no_card: Vec<OrgId>,
    pub declined: Vec<OrgId>,
    /// The organizations whose orders can never be paid.
    pub not_payable: Vec<OrgId>,
    pub notices: Vec<(OrgId, Notice)>,
    pub ds: HashMap<String, Vec<DsRecord>>,
    pub ds_wanted: HashMap<ZoneId, DsWanted>,
    pub calls: Vec<String>,
    /// Every call of the registrar fails without an effect.
    pub is_registrar_down: bool,
}

pub struct Order {
    pub org: OrgId,
    pub cents: i64,
    pub paid: bool,
    pub refunded: bool,
}

pub struct Unavailable;

impl From<Unavailable> for RegistrarError {
    fn from(_: Unavailable) -> Self {
        Self::Unavailable("status 500".to_owned())
    }
}

impl From<Unavailable> for PaymentsError {
    fn from(_: Unavailable) -> Self {
        Self::Unavailable("status 500".to_owned())
    }
}

impl World {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn fault(&self, subject: impl ToString, call: &'static str, when: When, fault: Fault) {
        self.state().faults.push((subject.to_string(), call, when, fault));
    }

    /// Returns the number of the organization's paid orders that are not refunded, and the number of refunded ones.
    pub fn charges(&self, org: OrgId) -> (usize, usize) {
        let state = self.state();
        let of_org = || state.orders.iter().filter(|order| order.org == org && order.paid);
        (of_org().filter(|order| !order.refunded).count(), of_org().filter(|order| order.refunded).count())
    }

    pub fn calls(&self, call: &str) -> usize {
        self.state().calls.iter().filter(|made| *made == call).count()
    }

    /// Runs `work` while a call waits because of [`Fault::Pause`], and then ends the pause.
    pub async fn during_pause<T>(&self, work: impl Future<Output = T>) -> T {
        self.paused.subscribe().wait_for(|paused| *paused).await.unwrap();
        let output = work.await;
        self.paused.send_replace(false);
        output
    }

    /// Runs a process until it ends, or until the fixture kills it because a call never returns. If `subjects` is set,
    /// only calls about these subjects kill it.
    pub async fn run<T>(&self, subjects: Option<[String; 2]>, process: impl Future<Output = T>) -> Option<T> {
        let concerns = |subject: &&String| subjects.as_ref().is_none_or(|subjects| subjects.contains(subject));
        let mut killed = self.killed.subscribe();
        let before = killed.borrow().iter().filter(concerns).count();
        tokio::select! {
            output = process => Some(output),
            _ = killed.wait_for(|killed| killed.iter().filter(concerns).count() > before) => None,
        }
    }

    /// Makes a call, with the faults that are set for it.
    pub async fn call<T>(
        &self,
        subject: impl ToString,
        call: &'static str,
        effect: impl FnOnce(&mut State) -> T,
    ) -> Result<T, Unavailable> {
        let subject = subject.to_string();
        self.state().calls.push(call.to_owned());
        self.interrupt(&subject, call, When::Before).await?;
        let result = effect(&mut self.state());
        self.interrupt(&subject, call, When::After).await?;
        Ok(result)
    }

    pub async fn interrupt(&self, subject: &str, call: &'static str, when: When) -> Result<(), Unavailable> {
        let fault = {
            let mut state = self.state();
            if state.is_registrar_down && !OTHER_CALLS.contains(&call) {
                return Err(Unavailable);
            }
            let at = state.faults.iter().position(|it| it.0 == subject && it.1 == call && it.2 == when);
            at.map(|at| state.faults.remove(at).3)
        };
        match fault {
            None => Ok(()),
            Some(Fault::Fail) => Err(Unavailable),
            Some(Fault::Pause) => {
                self.paused.send_replace(true);
                self.paused.subscribe().wait_for(|paused| !paused).await.unwrap();
                Ok(())
            }
            Some(Fault::Kill) => {
                self.killed.send_modify(|killed| killed.push(subject.to_owned()));
                std::future::pending().await
            }
        }
    }

    pub fn registered(&self, years: i64, locked: bool) -> RegisteredDomain {
        let now = kernel::Clock::now(&self.clock);
        RegisteredDomain {
            registered_at: now,
            expires_at: now.plus_seconds(years * YEAR),
            locked,
            nameservers: vec!["ns.registrar.example".to_owned()],
            renewal_cents: Some(RENEWAL),
            transfer_lock_expires_at: None,
        }
    }
}

impl State {
    pub fn domain(&mut self, name: &str) -> &mut RegisteredDomain {
        self.account.get_mut(name).unwrap()
    }

    /// Returns a domain of the account as the registrar shows it.
    fn read(&self, name: &str) -> Option<RegisteredDomain> {
        let domain = self.account.get(name)?.clone();
        let expires_at = self.stale_expiries.get(name).copied().unwrap_or(domain.expires_at);
        Some(RegisteredDomain { expires_at, ..domain })
    }

    /// Completes the slow registrations and renewals.
    pub fn complete_slow_calls(&mut self) {
        for InProgress { key, effect, .. } in std::mem::take(&mut self.in_progress) {
            let reply = effect(self);
            self.replies.insert(key, reply);
        }
    }

    /// Executes a registration once per idempotency key. Each call for a renewal has a separate key, so it is always
    /// executed.
    fn execute_once(
        &mut self,
        name: &str,
        key: &str,
        effect: impl FnOnce(&mut Self) -> Reply + Send + 'static,
    ) -> Reply {
        if let Some(reply) = self.replies.get(key) {
            return reply.clone();
        }
        if let Some(running) = self.in_progress.iter().find(|running| running.key == key) {
            return Err(running.refusal.clone());
        }
        if let Some(refusal) = self.slow.remove(name) {
            self.in_progress.push(InProgress { key: key.to_owned(), refusal, effect: Box::new(effect) });
            return Err(RegistrarError::Unavailable("no response in time".to_owned()));
        }
        let reply = effect(self);
        self.replies.insert(key.to_owned(), reply.clone());
        reply
    }
}

#[async_trait]
impl Registrar for World {
    async fn check(&self, names: &[String]) -> Result<Vec<Offer>, RegistrarError> {
        let offers = self.call(&names[0], "check", |state| {
            let offer = |name: &String| {
                let standard = (Prices { first_year_cents: FIRST_YEAR, renewal_cents: RENEWAL }, false);
                let (prices, premium) = state.prices.get(name).copied().unwrap_or(standard);
                let prices = (!state.account.contains_key(name)).then_some(prices);
                Offer { name: name.clone(), prices, premium }
            };
            // The offers come in another order, and names that the registrar does not sell are missing.
            names.iter().rev().filter(|name| !name.ends_with(".unsold")).map(offer).collect()
        });
        Ok(offers.await?)
    }

    async fn register(&self, registration: &Registration) -> Result<RegisteredDomain, RegistrarError> {
        let Registration { name, years, key, .. } = registration;
        let (new, domain) = (name.clone(), self.registered(i64::from(*years), true));
        let effect = move |state: &mut State| {
            if let Some(refusal) = state.refusals.get(&new) {
                return Err(refusal.clone());
            }
            if state.account.contains_key(&new) {
                return Err(RegistrarError::NameUnavailable("status 409".to_owned()));
            }
            state.account.insert(new.clone(), domain.clone());
            state.registrations.push(new);
            Ok(domain)
        };
        self.call(name, "register", |state| state.execute_once(name, key, effect)).await?
    }

    async fn read(&self, name: &str) -> Result<Option<RegisteredDomain>, RegistrarError> {
        Ok(self.call(name, "read", |state| state.read(name)).await?)
    }

    async fn set_nameservers(&self, name: &str, nameservers: &[String]) -> Result<(), RegistrarError> {
        Ok(self.call(name, "nameservers", |state| state.domain(name).nameservers = nameservers.to_vec()).await?)
    }

    async fn renew(&self, renewal: &RenewalOrder) -> Result<RegisteredDomain, RegistrarError> {
        let RenewalOrder { name, years, key, .. } = renewal;
        let (renewed, seconds) = (name.clone(), i64::from(*years) * YEAR);
        let effect = move |state: &mut State| {
            if let Some(refusal) = state.refusals.get(&renewed) {
                return Err(refusal.clone());
            }
            let domain = state.domain(&renewed);
            domain.expires_at = domain.expires_at.plus_seconds(seconds);
            let shown = state.read(&renewed).unwrap();
            state.renewals.push(renewed);
            Ok(shown)
        };
        let execute = |state: &mut State| {
            // The registrar ignores the key of a renewal.
            let key = format!("{key} {}", state.calls.len());
            state.execute_once(name, &key, effect)
        };
        self.call(name, "renew", execute).await?
    }

    async fn set_lock(&self, name: &str, locked: bool) -> Result<RegisteredDomain, RegistrarError> {
        let result = self.call(name, "lock", |state| {
            if let Some(refusal) = state.refusals.get(name) {
                return Err(refusal.clone());
            }
            let domain = state.domain(name);
            if domain.locked == locked {
                return Err(RegistrarError::NameUnavailable("status 409".to_owned()));
            }
            domain.locked = locked;
            Ok(domain.clone())
        });
        result.await?
    }

    async fn auth_code(&self, name: &str) -> Result<Secret, RegistrarError> {
        Ok(self.call(name, "auth-code", |_| Secret::new(format!("code-of-{name}"))).await?)
    }

    async fn ds(&self, name: &str) -> Result<Vec<DsRecord>, RegistrarError> {
        Ok(self.call(name, "ds", |state| state.ds.get(name).cloned().unwrap_or_default()).await?)
    }

    async fn add_ds(&self, name: &str, ds: &DsRecord) -> Result<(), RegistrarError> {
        Ok(self.call(name, "add-ds", |state| state.ds.entry(name.to_owned()).or_default().push(ds.clone())).await?)
    }

    async fn remove_ds(&self, name: &str, digest: &str) -> Result<(), RegistrarError> {
        let remove = |state: &mut State| state.ds.entry(name.to_owned()).or_default().retain(|ds| ds.digest != digest);
        Ok(self.call(name, "remove-ds", remove).await?)
    }
}

#[async_trait]
impl Payments for World {
    async fn has_payment_method(&self, org: OrgId) -> Result<bool, PaymentsError> {
        Ok(self.call(org, "card", |state| !state.no_card.contains(&org)).await?)
    }

    async fn create_order(&self, order: &NewOrder) -> Result<Option<String>, PaymentsError> {
        let created = self.call(order.org, "order", |state| {
            if state.no_card.contains(&order.org) {
                return None;
            }
            let NewOrder { org, cents, .. } = order.clone();
            state.orders.push(Order { org, cents, paid: false, refunded: false });
            Some(format!("order_{}", state.orders.len() - 1))
        });
        Ok(created.await?)
    }

    async fn finalize_order(&self, order: &str) -> Result<Charge, PaymentsError> {
        let (at, org) = self.order(order);
        let charged = self.call(org, "charge", |state| {
            if state.not_payable.contains(&org) {
                return Err(PaymentsError::NotPayable("status 412".to_owned()));
            }
            if state.declined.contains(&org) {
                return Ok(Charge::Declined);
            }
            state.orders[at].paid = true;
            Ok(Charge::Paid)
        });
        charged.await?
    }

    async fn refund_order(&self, order: &str, cents: i64) -> Result<Refund, PaymentsError> {
        let (at, org) = self.order(order);
        let refunded = self.call(org, "refund", |state| {
            let order = &mut state.orders[at];
            assert_eq!(order.cents, cents);
            order.refunded |= order.paid;
            if order.paid { Refund::Refunded } else { Refund::NotPaid }
        });
        Ok(refunded.await?)
    }
}

impl World {
    fn order(&self, order: &str) -> (usize, OrgId) {
        let at: usize = order.strip_prefix("order_").unwrap().parse().unwrap();
        (at, self.state().orders[at].org)
    }
}

#[async_trait]
impl Organizations for World {
    async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<()> {
        crate::kit::lock_org(tx, org).await
    }

    async fn raise(&self, _: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()> {
        self.state().notices.push((org, notice));
        Ok(())
    }
}

/// Returns an expiry in this many days.
pub fn in_days(now: Time, days: i64) -> Time {
    now.plus_seconds(days * 24 * 3600)
}
