//! The injected clock and RNG.

use std::cell::RefCell;
use std::sync::Arc;

use ring::rand::SecureRandom as _;
use uuid::{Builder, Uuid};

use crate::Time;

/// A clock.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Time;
}

/// A source of unpredictable bytes.
pub trait Random: Send + Sync {
    /// Fills all of `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// The clock and RNG of a service. Cheap to clone.
#[derive(Clone)]
pub struct ClockRng {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl ClockRng {
    /// Combines a clock and an RNG.
    pub fn new(clock: impl Clock + 'static, random: impl Random + 'static) -> Self {
        Self { clock: Arc::new(clock), random: Arc::new(random) }
    }

    /// Returns the system's clock and its secure RNG.
    #[must_use]
    pub fn system() -> Self {
        Self::new(System, System)
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Returns `N` random bytes.
    #[must_use]
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.fill(&mut bytes);
        bytes
    }

    /// Creates an id of any type: a UUIDv7 (RFC 9562 section 5.7) of the current time, so that ids sort by creation.
    #[must_use]
    pub fn id<T: From<Uuid>>(&self) -> T {
        self.id_at(self.now())
    }

    /// Creates an id for a row that also stores the time `at`.
    #[must_use]
    pub fn id_at<T: From<Uuid>>(&self, at: Time) -> T {
        let millis = u64::try_from(at.unix_millis()).unwrap_or(0);
        Builder::from_unix_timestamp_millis(millis, &self.bytes()).into_uuid().into()
    }
}

impl std::fmt::Debug for ClockRng {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClockRng").finish_non_exhaustive()
    }
}

struct System;

impl Clock for System {
    #[expect(clippy::disallowed_methods, reason = "the injected clock is the only code that reads the system time")]
    fn now(&self) -> Time {
        Time::new(chrono::Utc::now())
    }
}

impl Random for System {
    fn fill(&self, bytes: &mut [u8]) {
        // Short values are parts of ids, nonces and jitter. Secrets are longer and are never buffered.
        if bytes.len() <= MAX_BUFFERED {
            BUFFER.with_borrow_mut(|buffer| buffer.fill(bytes))
        } else {
            fill_from_system(bytes)
        }
    }
}

const MAX_BUFFERED: usize = 16;

thread_local! {
    static BUFFER: RefCell<RandomBuffer> = const { RefCell::new(RandomBuffer { bytes: [0; 512], left: 0 }) };
}

/// Random bytes that are fetched in advance, because a system call for a few bytes costs more than their use.
struct RandomBuffer {
    bytes: [u8; 512],
    left: usize,
}

impl RandomBuffer {
    fn fill(&mut self, output: &mut [u8]) {
        if self.left < output.len() {
            fill_from_system(&mut self.bytes);
            self.left = self.bytes.len();
        }
        let from = self.left - output.len();
        if let Some(taken) = self.bytes.get_mut(from..self.left) {
            output.copy_from_slice(taken);
            taken.fill(0);
        }
        self.left = from;
    }
}

#[expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "this is the injected RNG, and the process must stop without randomness"
)]
fn fill_from_system(bytes: &mut [u8]) {
    ring::rand::SystemRandom::new().fill(bytes).expect("the system's RNG works");
}
