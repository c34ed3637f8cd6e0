//! The faults, and their random order.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use chaos::NetworkFault;
use sandbox::{AiFault, PaymentsFault, RegistrarFault, SmtpFault};
use tokio::time::sleep;
use xtask::postgres::Stop;
use xtask::services::{SHUTDOWN_TIMEOUT, Services};

use super::random::Random;
use super::rig::{Link, Nodes, Program, Rig};
use crate::chaos::rig::restart_postgres;

/// A fault of a program, of a network connection or of a provider.
#[derive(Debug)]
pub enum SoakFault {
    /// SIGKILL, and a restart.
    Kill(Program),
    /// SIGTERM, and a restart.
    Terminate(Program),
    /// A stop of the control plane's Postgres, and a restart.
    StopPostgres(Stop),
    /// The same for the Postgres with the databases of projects.
    StopProjectsPostgres(Stop),
    Network(Link, NetworkFault),
    Relay(SmtpFault),
    Models(AiFault),
    Registrar(RegistrarFault),
    Payments(PaymentsFault),
}

impl SoakFault {
    /// Returns whether the fault can repeat a call of `email()` or a delivery to the relay.
    pub const fn repeats_mail(&self) -> bool {
        match self {
            Self::Kill(program) | Self::Terminate(program) => matches!(program, Program::Server | Program::Node),
            Self::Network(link, _) => !matches!(link, Link::Models),
            Self::StopPostgres(_) | Self::Relay(_) => true,
            Self::StopProjectsPostgres(_) | Self::Models(_) | Self::Registrar(_) | Self::Payments(_) => false,
        }
    }
}

static FAULTS: [SoakFault; 30] = [
    SoakFault::Kill(Program::Server),
    SoakFault::Kill(Program::Node),
    SoakFault::Kill(Program::GitNode),
    SoakFault::Kill(Program::MailNode),
    SoakFault::Terminate(Program::Server),
    SoakFault::Terminate(Program::Node),
    SoakFault::Terminate(Program::GitNode),
    SoakFault::Terminate(Program::MailNode),
    SoakFault::StopPostgres(Stop::Immediate),
    SoakFault::StopPostgres(Stop::Fast),
    SoakFault::StopProjectsPostgres(Stop::Immediate),
    SoakFault::StopProjectsPostgres(Stop::Fast),
    SoakFault::Network(Link::Postgres, NetworkFault::Disconnect),
    SoakFault::Network(Link::Postgres, NetworkFault::Blackhole),
    SoakFault::Network(Link::Postgres, NetworkFault::Delay(Duration::from_millis(100))),
    SoakFault::Network(Link::Relay, NetworkFault::Disconnect),
    SoakFault::Network(Link::Relay, NetworkFault::Blackhole),
    SoakFault::Network(Link::Models, NetworkFault::Disconnect),
    SoakFault::Network(Link::Models, NetworkFault::Blackhole),
    SoakFault::Network(Link::Models, NetworkFault::Delay(Duration::from_millis(100))),
    SoakFault::Relay(SmtpFault::Hang),
    SoakFault::Relay(SmtpFault::DropAfterMessage),
    SoakFault::Models(AiFault::Status(503)),
    SoakFault::Models(AiFault::Cut(3)),
    SoakFault::Registrar(RegistrarFault::LostResponse),
    SoakFault::Registrar(RegistrarFault::HangAfter),
    SoakFault::Registrar(RegistrarFault::Close),
    SoakFault::Payments(PaymentsFault::LostResponse),
    SoakFault::Payments(PaymentsFault::HangAfter),
    SoakFault::Payments(PaymentsFault::Unavailable),
];

/// The shortest and the longest duration of a fault of a network connection or a provider, in milliseconds.
const MIN_DURATION: u64 = 1_000;
const MAX_DURATION: u64 = 8_000;

/// All faults in a random order, again and again.
pub struct Deck {
    random: Random,
    rest: Vec<&'static SoakFault>,
}

impl Deck {
    pub const fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), rest: Vec::new() }
    }

    /// Returns the next fault and its duration, which a fault of a program ignores.
    pub fn draw(&mut self) -> Result<(&'static SoakFault, Duration)> {
        if self.rest.is_empty() {
            self.rest = FAULTS.iter().collect();
            self.random.shuffle(&mut self.rest);
        }
        let fault = self.rest.pop().context("no faults")?;
        let duration = MIN_DURATION + self.random.below(MAX_DURATION - MIN_DURATION);
        Ok((fault, Duration::from_millis(duration)))
    }
}

/// Injects a fault, and removes it.
pub async fn inject(
    fault: &SoakFault,
    duration: Duration,
    rig: &Rig,
    nodes: &mut Nodes,
    services: &mut Services,
) -> Result<()> {
    match fault {
        SoakFault::Kill(program) => {
            rig.program(nodes, *program).kill(services).await?;
            nodes.keep_log_errors(*program)?;
            rig.program(nodes, *program).restart(services).await?;
        }
        SoakFault::Terminate(program) => {
            let start = Instant::now();
            rig.program(nodes, *program).stop(services).await;
            if start.elapsed() >= SHUTDOWN_TIMEOUT {
                nodes.log_errors.push(format!("{program:?} did not stop within {SHUTDOWN_TIMEOUT:?}"));
            }
            nodes.keep_log_errors(*program)?;
            rig.program(nodes, *program).restart(services).await?;
        }
        SoakFault::StopPostgres(mode) => restart_postgres(services.postgres.as_mut(), *mode).await?,
        SoakFault::StopProjectsPostgres(mode) => restart_postgres(services.projects_postgres.as_mut(), *mode).await?,
        SoakFault::Network(link, fault) => {
            let proxy = rig.proxy(*link);
            hold(duration, *fault, |fault| proxy.set_fault(fault.unwrap_or(NetworkFault::None))).await;
        }
        SoakFault::Relay(fault) => hold(duration, *fault, |fault| rig.relay.inject(fault)).await,
        SoakFault::Models(fault) => hold(duration, *fault, |fault| rig.models.inject(fault)).await,
        SoakFault::Registrar(fault) => hold(duration, fault.clone(), |fault| rig.registrar.inject(fault)).await,
        SoakFault::Payments(fault) => hold(duration, *fault, |fault| rig.payments.inject(fault)).await,
    }
    Ok(())
}

/// Sets a fault for this duration.
async fn hold<F>(duration: Duration, fault: F, set: impl Fn(Option<F>)) {
    set(Some(fault));
    sleep(duration).await;
    set(None);
}
