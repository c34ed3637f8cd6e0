//! What a process states about a setting.

use std::fmt::Display;
use std::marker::PhantomData;

use crate::{Error, Value};

/// One setting: its name, and what is read from it, `T`. For constants that [`table!`](crate::table!) declares.
///
/// `T` tells how the setting is asked for: [`Settings::get`](crate::Settings::get) takes what always has a value,
/// [`Settings::opt`](crate::Settings::opt) what is declared as an `Option`.
pub struct Setting<T> {
    row: Row,
    value: PhantomData<fn() -> T>,
}

/// What the table holds of a setting.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The name of the environment variable.
    pub name: &'static str,
    /// What it means, for the reference.
    pub meaning: &'static str,
    /// What holds when it is not given.
    pub need: Need,
    /// Whether it may also be given as `<NAME>_FILE`.
    pub secret: bool,
}

/// What holds when a setting is not given.
#[derive(Debug, Clone, Copy)]
pub enum Need {
    /// The process does not start.
    Required,
    /// What it is for stays off.
    Optional,
    /// This value.
    Default(&'static str),
}

impl<T: Value> Setting<T> {
    /// A setting without which the process does not start.
    #[must_use]
    pub const fn required(name: &'static str) -> Self {
        Self::new(name, Need::Required, T::SECRET)
    }

    /// A setting with a default. A secret has none, which the compiler sees to.
    #[must_use]
    pub const fn with_default(name: &'static str, default: &'static str) -> Self {
        const { assert!(!T::SECRET, "a secret has no default") };
        Self::new(name, Need::Default(default), T::SECRET)
    }
}

impl<T: Value> Setting<Option<T>> {
    /// A setting that may be left out.
    #[must_use]
    pub const fn optional(name: &'static str) -> Self {
        Self::new(name, Need::Optional, T::SECRET)
    }
}

impl<T> Setting<T> {
    const fn new(name: &'static str, need: Need, secret: bool) -> Self {
        Self { row: Row { name, meaning: "", need, secret }, value: PhantomData }
    }

    /// The same setting with its sentence for the reference; [`table!`](crate::table!) takes it from the doc comment.
    #[must_use]
    pub const fn meaning(mut self, meaning: &'static str) -> Self {
        self.row.meaning = meaning;
        self
    }

    /// Its row of the table.
    #[must_use]
    pub const fn row(&self) -> Row {
        self.row
    }

    /// The error of a value that parses and still cannot be used, such as one that contradicts another setting. `why`
    /// must not show a secret.
    pub fn malformed(&self, why: impl Display) -> Error {
        Error::malformed(self.row.name, why)
    }
}

/// Declares the settings of a process, each as a constant, and `TABLE` of them all. The doc comment of a setting is its
/// sentence in the reference.
#[macro_export]
macro_rules! table {
    ($($(#[doc = $doc:literal])+ $vis:vis $name:ident: $type:ty = $setting:expr;)+) => {
        $($(#[doc = $doc])+ $vis const $name: $crate::Setting<$type> = $setting.meaning(concat!($($doc),+));)+

        /// Every setting of this process.
        pub const TABLE: &[$crate::Row] = &[$($name.row()),+];
    };
}
