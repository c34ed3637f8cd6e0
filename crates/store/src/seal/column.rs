//! The declaration of a column with sealed values.

use kernel::seal::AssociatedData;

/// A column with sealed values. Each context declares its columns next to the code that seals their values, so that
/// sealing, opening and rotation derive the associated data in the same way.
///
/// The ids of the keys are in the column `key_id` of the same table. A row without a value has no key id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedColumn {
    /// Schema and table.
    pub table: &'static str,
    /// The column.
    pub column: &'static str,
    /// The columns that identify a row, with their Postgres types. An index orders the rows by them.
    pub row_key: &'static [(&'static str, &'static str)],
}

impl SealedColumn {
    /// Returns the associated data of the value in a row.
    #[must_use]
    pub fn associated_data<'a>(&self, row: &'a str) -> AssociatedData<'a> {
        AssociatedData { table: self.table, row, field: self.column }
    }

    /// Returns the row in the associated data: the values of [`Self::row_key`] as Postgres prints them, separated by
    /// slashes.
    #[must_use]
    pub fn row(key: &[impl AsRef<str>]) -> String {
        key.iter().map(AsRef::as_ref).collect::<Vec<_>>().join("/")
    }
}

impl std::fmt::Display for SealedColumn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.table, self.column)
    }
}
