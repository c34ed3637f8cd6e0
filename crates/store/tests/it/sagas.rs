//! Sagas: recorded steps, resumption, leases, compensation and operator commands.

#![expect(clippy::unwrap_used, reason = "tests panic on unexpected results")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use diesel_async::RunQueryDsl as _;
use kernel::audit::{Actor, Event};
use kernel::{OrgId, Time, UserId};
use serde_json::{Value, json};
use store::saga::{self, Attempt, NewSaga, Saga, SagaFilter, SagaHandler, SagaResult, SagaState, StepOutcome};
use store::{Connection, Result, Store};
use testkit::{TestStore, four_at_a_time};
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

/// More than a lease and the longest backoff, in seconds.
const LATER: i64 = 400;

/// The steps `one`, `two` and `three`. A test sets the outcomes of their next calls; then they succeed.
#[derive(Clone, Default)]
struct Provider(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    outcomes: VecDeque<Outcome>,
    calls: Vec<(String, String, i32)>,
    /// The time of the last earlier attempt without a result, for each call.
    unanswered: Vec<Option<Time>>,
    /// The minimum time of step `two`.
    min_time: Duration,
    compensations: Vec<String>,
    /// The call waits for this before its outcome.
    gate: Option<Arc<Notify>>,
}

enum Outcome {
    Retry { new_key: bool },
    Inconclusive,
    Refused,
    Hangs,
}

impl Provider {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn will(&self, outcomes: impl IntoIterator<Item = Outcome>) {
        self.state().outcomes.extend(outcomes);
    }

    /// Returns the steps and attempts of the calls.
    fn calls(&self) -> Vec<(String, i32)> {
        self.state().calls.iter().map(|(step, _, number)| (step.clone(), *number)).collect()
    }

    fn keys(&self, step: &str) -> Vec<String> {
        self.state().calls.iter().filter(|call| call.0 == step).map(|call| call.1.clone()).collect()
    }
}

fn event(name: &'static str, saga: &Saga, step: &str) -> Option<Event> {
    Some(Event::in_org(name, saga.org, step, json!({})))
}

#[async_trait]
impl SagaHandler for Provider {
    fn kind(&self) -> &'static str {
        "test.saga"
    }

    fn steps(&self) -> &'static [&'static str] {
        &["one", "two", "three"]
    }

    fn min_time(&self, step: &str) -> Duration {
        if step == "two" { self.state().min_time } else { Duration::ZERO }
    }

    async fn execute(&self, saga: &Saga, attempt: &Attempt) -> Result<StepOutcome> {
        assert_eq!(saga.input::<String>()?, "input");
        let (outcome, gate) = {
            let mut state = self.state();
            state.calls.push((attempt.step.to_owned(), attempt.key.clone(), attempt.number));
            state.unanswered.push(attempt.unanswered_at);
            (state.outcomes.pop_front(), state.gate.clone())
        };
        if let Some(gate) = gate {
            gate.notified().await;
        }
        Ok(match outcome {
            None => StepOutcome::Done(json!(attempt.step)),
            Some(Outcome::Retry { new_key }) => StepOutcome::Retry { reason: "status 500".to_owned(), new_key },
            Some(Outcome::Inconclusive) => StepOutcome::Inconclusive { reason: "status 409".to_owned() },
            Some(Outcome::Refused) => StepOutcome::Refused { refusal: json!("no"), reason: "status 422".to_owned() },
            Some(Outcome::Hangs) => std::future::pending().await,
        })
    }

    async fn record(&self, tx: &mut Connection, saga: &Saga, step: &str, response: &Value) -> Result<Option<Event>> {
        assert_eq!(*response, json!(step));
        if step == "three" {
            assert_eq!(saga.response::<String>("one")?.as_deref(), Some("one"));
        }
        diesel::sql_query(format!("INSERT INTO recorded VALUES ('{step}')")).execute(tx).await?;
        Ok(event("test.step", saga, step))
    }

    async fn refuse(&self, _: &mut Connection, saga: &Saga, refusal: &Value) -> Result<Option<Event>> {
        assert!(*refusal == json!("no") || saga::is_abandonment(refusal));
        Ok(event("test.refuse", saga, "refused"))
    }

    async fn compensate(&self, _: &Saga, step: &str) -> Result<StepOutcome> {
        let mut state = self.state();
        state.compensations.push(step.to_owned());
        Ok(match state.outcomes.pop_front() {
            None => StepOutcome::Done(Value::Null),
            Some(_) => StepOutcome::Retry { reason: "status 500".to_owned(), new_key: false },
        })
    }

    async fn record_compensation(
        &self,
        tx: &mut Connection,
        saga: &Saga,
        step: &str,
        _: &Value,
    ) -> Result<Option<Event>> {
        diesel::sql_query(format!("DELETE FROM recorded WHERE step = '{step}'")).execute(tx).await?;
        Ok(event("test.undo", saga, step))
    }
}

struct Kit {
    base: TestStore,
    provider: Provider,
    user: UserId,
}

impl Kit {
    async fn start() -> Self {
        let base = TestStore::start().await;
        base.db_execute("CREATE TABLE recorded (step text)").await;
        let user = base.store.clock_rng().id();
        Self { base, provider: Provider::default(), user }
    }

    async fn new_saga(&self, key: &str) -> Option<Uuid> {
        self.new_saga_on(&self.base.store, key).await
    }

    async fn new_saga_on(&self, store: &Store, key: &str) -> Option<Uuid> {
        let org: OrgId = store.clock_rng().id();
        let new = NewSaga { kind: "test.saga", key, org, user: Some(self.user), input: json!("input") };
        store.transaction_unaudited(async |tx: &mut Connection| store.saga_start(tx, &new).await).await.unwrap()
    }

    async fn run(&self, saga: Uuid) -> SagaResult {
        self.run_on(&self.base.store, saga).await
    }

    async fn run_on(&self, store: &Store, saga: Uuid) -> SagaResult {
        // A long timeout, because the test machine can be under load.
        store.saga_run(&self.provider, saga, Instant::now() + Duration::from_secs(60)).await.unwrap()
    }

    /// Runs a saga in a process that dies in the call with this number.
    async fn die_in_call(&self, store: &Store, saga: Uuid, number: usize) {
        self.provider.will([Outcome::Hangs]);
        let called = async {
            while self.provider.calls().len() < number {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            result = self.run_on(store, saga) => unreachable!("{result:?}"),
            () = called => {}
        }
    }

    async fn resume(&self) {
        self.base.store.saga_resume(&self.provider).await.unwrap();
    }

    async fn resume_later(&self) {
        self.base.advance(LATER);
        self.resume().await;
    }

    async fn state(&self, saga: Uuid) -> SagaState {
        let all = self.base.store.saga_list(&SagaFilter { finished: true, kind: None }).await.unwrap();
        all.into_iter().find(|status| status.id == saga).unwrap().state
    }

    async fn events(&self) -> Vec<String> {
        let rows = self.base.db_rows("SELECT event || ' ' || target AS event FROM store.audit ORDER BY ctid").await;
        rows.iter().map(|row| row["event"].as_str().unwrap().to_owned()).collect()
    }

    async fn recorded(&self) -> i64 {
        self.base.db_number("SELECT count(*) FROM recorded").await
    }
}

fn incomplete(step: &str) -> SagaResult {
    SagaResult::Incomplete { step: step.to_owned() }
}

#[tokio::test]
async fn steps_are_recorded_in_their_order() {
    let kit = Kit::start().await;
    let saga = kit.new_saga("a").await.unwrap();
    assert_eq!(kit.new_saga("a").await, None, "the object has an unfinished saga");
    assert_eq!(kit.run(saga).await, SagaResult::Done);
    assert_eq!(kit.run(saga).await, SagaResult::Done);
    let calls = ["one", "two", "three"].map(|step| (step.to_owned(), 1));
    assert_eq!((kit.provider.calls(), kit.recorded().await), (calls.to_vec(), 3));
    assert_eq!(kit.events().await, ["test.step one", "test.step two", "test.step three"]);
    let by_user = format!("SELECT count(*) FROM store.audit WHERE actor_id = '{}'", kit.user.as_uuid());
    assert_eq!(kit.base.db_number(&by_user).await, 3);
    assert!(kit.new_saga("a").await.is_some());
}

#[tokio::test]
async fn failed_step_is_repeated_with_its_key_by_the_request_or_the_job() {
    let kit = Kit::start().await;
    let saga = kit.new_saga("a").await.unwrap();
    kit.provider.will([Outcome::Retry { new_key: false }, Outcome::Retry { new_key: false }]);
    assert_eq!(kit.run(saga).await, incomplete("one"));
    assert_eq!(kit.run(saga).await, incomplete("one"), "a request does not wait for the backoff");
    kit.resume().await;
    assert_eq!(kit.provider.calls().len(), 2, "the job does");
    kit.resume_later().await;
    assert_eq!(kit.state(saga).await, SagaState::Done);
    let keys = kit.provider.keys("one");
    assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    assert_ne!(kit.provider.keys("two"), [keys[0].clone()]);
}

#[tokio::test]
async fn refused_key_is_replaced() {
    let kit = Kit::start().await;
    let saga = kit.new_saga("a").await.unwrap();
    kit.provider.will([Outcome::Retry { new_key: true }, Outcome::Retry { new_key: false }]);
    for expected in [incomplete("one"), incomplete("one"), SagaResult::Done] {
        assert_eq!(kit.run(saga).await, expected);
    }
    let keys = kit.provider.keys("one");
    assert!(keys[0] != keys[1] && keys[1] == keys[2], "{keys:?}");
}

#[tokio::test]
async fn attempt_knows_the_last_one_whose_result_is_unknown() {
    let kit = Kit::start().await;
    let saga = kit.new_saga("a").await.unwrap();
    let (refused, unknown) = (Outcome::Retry { new_key: true }, Outcome::Retry { new_key: false });
    kit.provider.will([refused, unknown, Outcome::Inconclusive, Outcome::Inconclusive]);
    let mut starts = Vec::new();
    for _ in 0..4 {
        kit.base.advance(1);
        starts.push(kit.base.now());
        assert_eq!(kit.run(saga).await, incomplete("one"));
    }
    assert_eq!(kit.run(saga).await, SagaResult::Done);
    let second = starts.get(1).copied();
    assert_eq!(kit.provider.state().unanswered, [None, None, second, second, second, None, None]);
    let keys = kit.provider.keys("one");
    assert!(keys[0] != keys[1] && keys[1..].iter().all(|key| *key == keys[1]), "{keys:?}");
}

#[tokio::test]
async fn run_without_enough_time_leaves_the_step_to_the_job() {
    let kit = Kit::start().await;
    let saga = kit.new_saga("a").await.unwrap();
    kit.provider.state().min_time = Duration::from_secs(3600);
    assert_eq!(kit.run(saga).await, incomplete("two"));
    assert_eq!(kit.provider.calls().len(), 1);
    kit.provider.state().min_time = Duration::ZERO;
    kit.resume().await;
    assert_eq!((kit.state(saga).await, kit.provider.calls().len()), (SagaState::Done, 3));
}

/// A process that dies in a call, before or after its effect.
#[tokio::test]
async fn saga_continues_when_the_lease_of_a_dead_runner_expires() {
    let kit = Kit::start().await;
    let saga = kit.new_saga("a").await.unwrap();
    for attempt in 1..=2 {
        kit.die_in_call(&kit.base.store, saga, attempt).await;
        let soon = Instant::now() + Duration::from_millis(150);
        let waited = kit.base.store.saga_run(&kit.provider, saga, soon).await.unwrap();
        assert_eq!((waited, kit.provider.calls().len()), (incomplete("one"), attempt), "the lease is taken");
        kit.base.advance(16);
    }
    kit.resume().await;
    assert_eq!(kit.state(saga).await, SagaState::Done);
    let keys = kit.provider.keys("one");
    assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    assert_eq!(kit.provider.calls()[2], ("one".to_owned(), 3));
}

#[tokio::test]
async fn lease_and_due_time_do_not_depend_on_the_clock_of_their_process() {
    for ahead in [-600, 24 * 3600] {
        let kit = Kit::start().await;
        let other = kit.base.with_clock_ahead(ahead);
        let saga = kit.new_saga_on(&other, "a").await.unwrap();
        kit.resume().await;
        assert_eq!(kit.provider.calls().len(), 0, "{ahead}: its process runs it");
        kit.die_in_call(&other, saga, 1).await;
        kit.resume().await;
        assert_eq!(kit.provider.calls().len(), 1, "{ahead}: the lease is taken");
        kit.base.advance(20);
        kit.provider.will([Outcome::Retry { new_key: false }]);
        kit.resume().await;
        assert_eq!(kit.provider.calls().len(), 2, "{ahead}: the lease is over");
        kit.provider.will([Outcome::Retry { new_key: false }]);
        assert_eq!(kit.run_on(&other, saga).await, incomplete("one"));
        kit.resume_later().await;
        assert_eq!(kit.state(saga).await, SagaState::Done, "{ahead}");
    }
}

/// A runner that lost its lease records nothing.
#[tokio::test(flavor = "multi_thread")]
async fn stale_runner_changes_nothing() {
    let kit = Kit::start().await;
    let saga = kit.new_saga("a").await.unwrap();
    let gate = Arc::new(Notify::new());
    kit.provider.state().gate = Some(gate.clone());
    let stale = kit.run(saga);
    let other = async {
        while kit.provider.calls().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        kit.provider.state().gate = None;
        kit.base.advance(16);
        assert_eq!(kit.run(saga).await, SagaResult::Done);
        gate.notify_one();
    };
    let (stale, ()) = tokio::join!(stale, other);
    assert_eq!(stale, incomplete("one"));
    assert_eq!((kit.state(saga).await, kit.recorded().await), (SagaState::Done, 3));
    assert_eq!(kit.events().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_runners_executes_and_the_others_join() {
    let kit = Kit::start().await;
    let saga = kit.new_saga("a").await.unwrap();
    let results = four_at_a_time((0..20).map(|_| kit.run(saga))).await;
    assert!(results.iter().all(|result| *result == SagaResult::Done), "{results:?}");
    assert_eq!((kit.provider.calls().len(), kit.recorded().await), (3, 3));
}

#[tokio::test]
async fn refusal_undoes_the_finished_steps() {
    let kit = Kit::start().await;
    let saga = kit.new_saga("a").await.unwrap();
    kit.provider.will([Outcome::Retry { new_key: false }]);
    assert_eq!(kit.run(saga).await, incomplete("one"));
    kit.run_refused(saga).await;
    assert_eq!(kit.run(saga).await, SagaResult::Refused(json!("no")));
    assert_eq!(kit.state(saga).await, SagaState::Waiting);
    assert!(kit.provider.state().compensations == ["two"]);
    kit.resume_later().await;
    assert_eq!((kit.state(saga).await, kit.recorded().await), (SagaState::Failed, 0));
    assert_eq!(kit.provider.state().compensations, ["two", "two", "one"]);
    let expected = ["test.step one", "test.step two", "test.refuse refused", "test.undo two", "test.undo one"];
    assert_eq!(kit.events().await, expected);
}

impl Kit {
    /// Runs a saga whose last step is refused, and whose first compensation fails.
    async fn run_refused(&self, saga: Uuid) {
        let gate = Arc::new(Notify::new());
        self.provider.state().gate = Some(gate.clone());
        let open = async {
            for calls in 2..=4 {
                while self.provider.calls().len() < calls {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                if calls == 3 {
                    self.provider.will([Outcome::Refused, Outcome::Hangs]);
                }
                gate.notify_one();
            }
        };
        let (result, ()) = tokio::join!(self.run(saga), open);
        assert_eq!(result, SagaResult::Refused(json!("no")));
        self.provider.state().gate = None;
    }
}

#[tokio::test]
async fn operator_continues_and_abandons_sagas() {
    let kit = Kit::start().await;
    let (store, operator) = (&kit.base.store, Actor::operator("test"));
    let saga = kit.new_saga("a").await.unwrap();
    kit.provider.will([Outcome::Retry { new_key: false }]);
    assert_eq!(kit.run(saga).await, incomplete("one"));
    assert!(store.saga_retry(&operator, saga).await.unwrap());
    kit.resume().await;
    assert_eq!(kit.state(saga).await, SagaState::Done);
    assert!(!store.saga_retry(&operator, saga).await.unwrap() && !store.saga_abandon(&operator, saga).await.unwrap());
    let saga = kit.new_saga("a").await.unwrap();
    kit.provider.will([Outcome::Retry { new_key: false }]);
    assert_eq!(kit.run(saga).await, incomplete("one"));
    let [open] = &store.saga_list(&SagaFilter::default()).await.unwrap()[..] else { panic!("not one") };
    assert_eq!((open.id, open.step.as_deref(), open.attempts), (saga, Some("one"), 1));
    assert_eq!(open.last_error.as_deref(), Some("status 500"));
    assert!(store.saga_abandon(&operator, saga).await.unwrap());
    kit.resume().await;
    assert_eq!(kit.state(saga).await, SagaState::Abandoned);
    assert_eq!(kit.provider.state().compensations, ["one"], "its effect is unknown");
    let SagaResult::Refused(refusal) = kit.run(saga).await else { panic!("not refused") };
    assert!(saga::is_abandonment(&refusal));
    let found = store.saga_find(saga).await.unwrap().unwrap();
    assert_eq!((found.id, found.state), (saga, SagaState::Abandoned));
    assert_eq!(store.saga_find(store.clock_rng().id()).await.unwrap(), None);
}

#[tokio::test]
async fn finished_sagas_are_purged_and_refused_ones_are_kept_longer() {
    const DAY: i64 = 24 * 3600;
    let kit = Kit::start().await;
    let store = &kit.base.store;
    // The list is ordered by time.
    let done = kit.new_saga("a").await.unwrap();
    kit.base.advance(1);
    let abandoned = kit.new_saga("b").await.unwrap();
    assert_eq!(kit.run(done).await, SagaResult::Done);
    kit.provider.will([Outcome::Retry { new_key: false }]);
    assert_eq!(kit.run(abandoned).await, incomplete("one"));
    assert!(store.saga_abandon(&Actor::operator("test"), abandoned).await.unwrap());
    kit.resume().await;
    kit.base.advance(1);
    let open = kit.new_saga("c").await.unwrap();
    let left = async || {
        store.saga_purge().await.unwrap();
        let all = store.saga_list(&SagaFilter { finished: true, kind: None }).await.unwrap();
        all.into_iter().map(|saga| saga.id).collect::<Vec<_>>()
    };
    kit.base.advance(90 * DAY - 2);
    assert_eq!(left().await, [open, abandoned, done]);
    kit.base.advance(1);
    assert_eq!(left().await, [open, abandoned]);
    kit.base.advance(275 * DAY);
    assert_eq!(left().await, [open]);
    assert_eq!(kit.base.db_number("SELECT count(*) FROM store.saga_steps").await, 0);
}
