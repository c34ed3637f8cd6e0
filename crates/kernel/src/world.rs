//! The clock and the source of randomness, handed in.

use std::cell::RefCell;
use std::sync::Arc;

use ring::rand::SecureRandom as _;
use uuid::{Builder, Uuid};

use crate::Time;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The present.
    fn now(&self) -> Time;
}

/// Gives bytes that nobody can guess.
pub trait Random: Send + Sync {
    /// Fills all of `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// What a service takes from outside itself: time and randomness. Cheap to clone.
#[derive(Clone)]
pub struct World {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl World {
    /// A world with this clock and this source.
    pub fn new(clock: impl Clock + 'static, random: impl Random + 'static) -> Self {
        Self { clock: Arc::new(clock), random: Arc::new(random) }
    }

    /// The system's clock and its secure random generator.
    #[must_use]
    pub fn system() -> Self {
        Self::new(System, System)
    }

    /// The present.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// `N` random bytes.
    #[must_use]
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.fill(&mut bytes);
        bytes
    }

    /// A fresh id of any type: a UUIDv7 (RFC 9562 section 5.7) of the present, so that ids sort by their creation.
    #[must_use]
    pub fn id<T: From<Uuid>>(&self) -> T {
        self.id_at(self.now())
    }

    /// A fresh id of this moment, for a row that also holds it as a time.
    #[must_use]
    pub fn id_at<T: From<Uuid>>(&self, at: Time) -> T {
        let millis = u64::try_from(at.unix_millis()).unwrap_or(0);
        Builder::from_unix_timestamp_millis(millis, &self.bytes()).into_uuid().into()
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

struct System;

impl Clock for System {
    #[expect(clippy::disallowed_methods, reason = "this is the injected clock")]
    fn now(&self) -> Time {
        Time::new(chrono::Utc::now())
    }
}

impl Random for System {
    fn fill(&self, bytes: &mut [u8]) {
        // What is of this size is part of an id; secrets are longer, and never lie in wait.
        if bytes.len() <= SMALL { AHEAD.with_borrow_mut(|ahead| ahead.fill(bytes)) } else { ask(bytes) }
    }
}

const SMALL: usize = 16;

thread_local! {
    static AHEAD: RefCell<Ahead> = const { RefCell::new(Ahead { bytes: [0; 512], left: 0 }) };
}

/// Random bytes that were asked for ahead of their use: asking the system for each few costs more than what they are for.
struct Ahead {
    bytes: [u8; 512],
    left: usize,
}

impl Ahead {
    fn fill(&mut self, wanted: &mut [u8]) {
        if self.left < wanted.len() {
            ask(&mut self.bytes);
            self.left = self.bytes.len();
        }
        let from = self.left - wanted.len();
        if let Some(taken) = self.bytes.get_mut(from..self.left) {
            wanted.copy_from_slice(taken);
            taken.fill(0);
        }
        self.left = from;
    }
}

#[expect(clippy::disallowed_methods, clippy::expect_used, reason = "the injected source; without it nothing may go on")]
fn ask(bytes: &mut [u8]) {
    ring::rand::SystemRandom::new().fill(bytes).expect("the system's random generator answers");
}
