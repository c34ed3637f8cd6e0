//! The start of a program.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, stdout};
use std::process::ExitCode;

use settings::Row;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// A program that its environment configures.
pub struct Program {
    /// The name of the executable.
    pub name: &'static str,
    /// The purpose of the program, for `--help`: the rest of a sentence after its name.
    pub about: &'static str,
    /// The heading of its settings in the reference.
    pub title: &'static str,
    /// Its settings.
    pub table: &'static [Row],
}

impl Program {
    /// Handles the arguments after the program's name. Calls `run` if there is no argument.
    pub fn main(&self, arguments: &[OsString], run: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
        match arguments.iter().map(|argument| argument.to_str()).collect::<Vec<_>>().as_slice() {
            [] => return self.exit_code(run()),
            [Some("--settings")] => print!("{}", settings::markdown(self.title, self.table)),
            [Some("--help")] => print!("{}", self.help()),
            _ => {
                eprint!("{}", self.help());
                return ExitCode::FAILURE;
            }
        }
        ExitCode::SUCCESS
    }

    /// Prints the error of a failed program.
    pub fn exit_code(&self, outcome: anyhow::Result<()>) -> ExitCode {
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{}: {error:#}", self.name);
                ExitCode::FAILURE
            }
        }
    }

    fn help(&self) -> String {
        let Self { name, about, .. } = self;
        let width = name.len() + " --settings".len();
        format!(
            "{name} {about} It is configured by its environment.\n\n  \
             {name:width$}   runs until SIGTERM or Ctrl-C\n  \
             {name} --settings   prints the settings as Markdown\n  \
             {:width$}   prints this help\n",
            format!("{name} --help"),
        )
    }
}

/// Makes ring the provider of cryptography.
pub fn install_crypto_provider() {
    // Fails only if a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Starts the log on standard output: readable text for a terminal, otherwise JSON.
pub fn init_log(filter: EnvFilter) {
    let format = tracing_subscriber::fmt().with_env_filter(filter);
    if stdout().is_terminal() {
        format.pretty().init();
    } else {
        format.json().init();
    }
}

/// The signals that stop the program: SIGTERM and Ctrl-C.
pub struct Stop {
    terminated: Signal,
    interrupted: Signal,
}

impl Stop {
    /// Handles the signals, which no longer end the process. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the signals cannot be handled.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminated: signal(SignalKind::terminate())?, interrupted: signal(SignalKind::interrupt())? })
    }

    /// Waits for a signal.
    pub async fn requested(mut self) {
        tokio::select! {
            _ = self.terminated.recv() => {}
            _ = self.interrupted.recv() => {}
        }
        tracing::info!("stopping");
    }
}
