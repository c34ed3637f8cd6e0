//! Declarations of settings.

use std::fmt::Display;
use std::marker::PhantomData;

use crate::{Error, Value};

/// A setting: its name and the type of its value. Declare it with [`table!`](crate::table!).
///
/// `T` determines how to read the setting: with [`Settings::get`](crate::Settings::get) if it always has a value, or
/// with [`Settings::opt`](crate::Settings::opt) if `T` is an `Option`.
pub struct Setting<T> {
    row: Row,
    value: PhantomData<fn() -> T>,
}

/// A row of the settings table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The name of the environment variable.
    pub name: &'static str,
    /// The description in the reference.
    pub meaning: &'static str,
    /// The behavior without a value.
    pub requirement: Requirement,
    /// Whether the value may also come from the file that `<NAME>_FILE` names.
    pub secret: bool,
}

/// The behavior of a setting without a value.
#[derive(Debug, Clone, Copy)]
pub enum Requirement {
    /// The process does not start.
    Required,
    /// The feature of the setting stays off.
    Optional,
    /// The setting has this value.
    Default(&'static str),
}

impl<T: Value> Setting<T> {
    /// Declares a required setting.
    #[must_use]
    pub const fn required(name: &'static str) -> Self {
        Self::new(name, Requirement::Required, T::SECRET)
    }

    /// Declares a setting with a default. The compiler rejects a default for a secret.
    #[must_use]
    pub const fn with_default(name: &'static str, default: &'static str) -> Self {
        const { assert!(!T::SECRET, "a secret cannot have a default") };
        Self::new(name, Requirement::Default(default), T::SECRET)
    }
}

impl<T: Value> Setting<Option<T>> {
    /// Declares an optional setting.
    #[must_use]
    pub const fn optional(name: &'static str) -> Self {
        Self::new(name, Requirement::Optional, T::SECRET)
    }
}

impl<T> Setting<T> {
    const fn new(name: &'static str, requirement: Requirement, secret: bool) -> Self {
        Self { row: Row { name, meaning: "", requirement, secret }, value: PhantomData }
    }

    /// Adds the description for the reference; [`table!`](crate::table!) takes it from the doc comment.
    #[must_use]
    pub const fn meaning(mut self, meaning: &'static str) -> Self {
        self.row.meaning = meaning;
        self
    }

    /// Returns the setting's row of the table.
    #[must_use]
    pub const fn row(&self) -> Row {
        self.row
    }

    /// Returns an error for a value that parses but cannot be used, for example because it contradicts another setting.
    /// `why` must not contain a secret.
    pub fn malformed(&self, why: impl Display) -> Error {
        Error::malformed(self.row.name, why)
    }
}

/// Declares the settings of a process as constants, and `TABLE` with all of them. The doc comment of a setting is its
/// description in the reference.
#[macro_export]
macro_rules! table {
    ($($(#[doc = $doc:literal])+ $vis:vis $name:ident: $type:ty = $setting:expr;)+) => {
        $($(#[doc = $doc])+ $vis const $name: $crate::Setting<$type> = $setting.meaning(concat!($($doc),+));)+

        /// Every setting of this process.
        pub const TABLE: &[$crate::Row] = &[$($name.row()),+];
    };
}
