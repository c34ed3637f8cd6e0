//! The kinds of dumps.

use protocol::GenerationKind;

/// The days for which generations of operations are kept.
const OPERATION_DAYS: i32 = 30;
/// The days for which exports are kept.
const EXPORT_DAYS: i32 = 7;

/// The kind of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Generation(GenerationKind),
    Export,
}

impl Kind {
    pub const ALL: [Self; 4] = [
        Self::Generation(GenerationKind::Scheduled),
        Self::Generation(GenerationKind::PreRestore),
        Self::Generation(GenerationKind::Final),
        Self::Export,
    ];

    /// Returns the kind's name in the tables and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Generation(GenerationKind::Scheduled) => "scheduled",
            Self::Generation(GenerationKind::PreRestore) => "pre_restore",
            Self::Generation(GenerationKind::Final) => "final",
            Self::Export => "export",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Returns the days for which a dump is kept. `backup_days` is the plan's limit for scheduled generations.
    pub fn days(self, backup_days: u32) -> i32 {
        match self {
            Self::Generation(GenerationKind::Scheduled) => i32::try_from(backup_days).unwrap_or(i32::MAX),
            Self::Generation(_) => OPERATION_DAYS,
            Self::Export => EXPORT_DAYS,
        }
    }
}
