//! The pages of the sign-in. They contain no script, and texts in the language of the visitor.

mod color;
mod language;
mod layout;
mod text;

pub use language::Language;
pub use layout::{Action, Page, set_headers};
pub use text::{Message, Texts};
