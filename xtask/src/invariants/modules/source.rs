//! Parses a source file into its declarations, imports and paths.

use std::collections::{BTreeMap, BTreeSet};

use super::token::{Token, tokens};

/// The contents of a module, without code that only tests compile.
#[derive(Debug, Default)]
pub struct Source {
    /// Declared modules in separate files.
    pub files: Vec<String>,
    /// Inline modules.
    pub inline: BTreeMap<String, Source>,
    pub items: BTreeSet<String>,
    /// Macros that are visible in descendant modules.
    pub macros: BTreeSet<String>,
    /// Macros with `#[macro_export]`, whose path starts at the crate root.
    pub exported: BTreeSet<String>,
    pub imports: Vec<Import>,
    /// Paths outside imports. A single word is included only as a macro name.
    pub paths: Vec<Path>,
    /// Words outside imports.
    pub words: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    pub segments: Vec<String>,
    pub line: usize,
}

/// One imported name.
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    pub path: Path,
    /// The name in this module; `*` for a glob import.
    pub name: String,
    /// Whether it is a re-export.
    pub public: bool,
}

const ITEMS: [&str; 8] = ["struct", "enum", "union", "trait", "type", "fn", "const", "static"];
/// Keywords between one of `ITEMS` and the item's name.
const QUALIFIERS: [&str; 5] = ["fn", "mut", "unsafe", "async", "extern"];

impl Source {
    pub fn read(text: &str) -> Self {
        let tokens = tokens(text);
        let mut reader = Reader { tokens: &tokens, at: 0 };
        reader.module()
    }
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
}

impl Reader<'_> {
    /// Parses a module up to the end of the file or its closing brace.
    fn module(&mut self) -> Source {
        let mut source = Source::default();
        let mut depth = 0_usize;
        let (mut public, mut exported) = (false, false);
        while let Some(token) = self.tokens.get(self.at) {
            let (text, line) = (token.text.as_str(), token.line);
            match text {
                "{" | "(" | "[" => depth += 1,
                "}" if depth == 0 => break,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                "#" if depth == 0 && self.is_for_tests() => {
                    self.skip_item();
                    continue;
                }
                "macro_export" => exported = true,
                "pub" => {
                    public = true;
                    self.at += 1;
                    if self.is("(", 0) {
                        self.skip_group();
                    }
                    continue;
                }
                "use" if !self.is("<", 1) => {
                    self.at += 1;
                    self.import(&mut Vec::new(), public, &mut source.imports);
                }
                "mod" if depth == 0 && self.is(";", 2) => source.files.extend(self.text(1)),
                "mod" if depth == 0 && self.is("{", 2) => {
                    let name = self.text(1).unwrap_or_default();
                    self.at += 3;
                    let within = self.module();
                    source.inline.insert(name, within);
                }
                "macro_rules" if self.is("!", 1) => {
                    let name = self.text(2).unwrap_or_default();
                    if std::mem::take(&mut exported) {
                        source.exported.insert(name.clone());
                    }
                    source.macros.insert(name);
                    self.at += 2;
                }
                item if depth == 0 && ITEMS.contains(&item) && self.is_word(1) => {
                    self.at += 1;
                    while QUALIFIERS.iter().any(|it| self.is(it, 0)) {
                        self.at += 1;
                    }
                    source.items.extend(self.text(0));
                }
                _ if token.is_word() && !self.continues() => {
                    self.path(line, &mut source);
                    continue;
                }
                _ => {}
            }
            public = false;
            self.at += 1;
        }
        source
    }

    /// Parses a path or a single word.
    fn path(&mut self, line: usize, source: &mut Source) {
        let mut segments = Vec::from_iter(self.text(0));
        source.words.extend(segments.first().cloned());
        while self.is("::", 1) && self.is_word(2) {
            segments.extend(self.text(2));
            self.at += 2;
        }
        self.at += 1;
        if segments.len() > 1 || self.is("!", 0) {
            source.paths.push(Path { segments, line });
        }
    }

    /// Parses one import tree.
    fn import(&mut self, prefix: &mut Vec<String>, public: bool, into: &mut Vec<Import>) {
        let before = prefix.len();
        while let Some(token) = self.tokens.get(self.at) {
            let line = token.line;
            match token.text.as_str() {
                "{" => {
                    self.at += 1;
                    while !self.is("}", 0) && self.at < self.tokens.len() {
                        self.import(prefix, public, into);
                        self.at += usize::from(self.is(",", 0));
                    }
                    self.at += 1;
                    break;
                }
                "}" | "," | ";" => break,
                "::" => self.at += 1,
                name => {
                    let name = name.to_owned();
                    prefix.push(name.clone());
                    self.at += 1;
                    if !self.is("::", 0) {
                        into.push(self.finish_import(prefix, name, public, line));
                    }
                }
            }
        }
        prefix.truncate(before);
    }

    /// Builds the import of a complete path.
    fn finish_import(&mut self, path: &[String], last: String, public: bool, line: usize) -> Import {
        let mut segments = path.to_vec();
        if last == "*" || last == "self" && segments.len() > 1 {
            segments.pop();
        }
        let mut name = if last == "self" { segments.last().cloned().unwrap_or_default() } else { last };
        if self.is("as", 0) {
            name = self.text(1).unwrap_or_default();
            self.at += 2;
        }
        Import { path: Path { segments, line }, name, public }
    }

    /// Returns whether this word continues a path or an expression, as `b` in `a::b` and `a.b`.
    fn continues(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.tokens.get(at));
        before.is_some_and(|it| it.text == "." || it.text == "::")
    }

    /// Returns whether a `#[cfg(test)]` or `#[cfg(all(test, …))]` attribute follows.
    fn is_for_tests(&self) -> bool {
        let follow = |texts: &[&str]| texts.iter().zip(0..).all(|(text, at)| self.is(text, at));
        follow(&["#", "[", "cfg", "(", "test", ")"]) || follow(&["#", "[", "cfg", "(", "all", "(", "test"])
    }

    /// Skips an item with its attributes, up to its `;` or closing brace.
    fn skip_item(&mut self) {
        while self.is("#", 0) {
            self.at += 1;
            self.skip_group();
        }
        while self.at < self.tokens.len() {
            match self.text(0).as_deref() {
                Some(";") => {
                    self.at += 1;
                    return;
                }
                Some("{") => return self.skip_group(),
                Some("(" | "[") => self.skip_group(),
                _ => self.at += 1,
            }
        }
    }

    /// Skips a bracketed group.
    fn skip_group(&mut self) {
        let mut depth = 0_usize;
        while let Some(token) = self.tokens.get(self.at) {
            self.at += 1;
            match token.text.as_str() {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn token(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead)
    }

    fn text(&self, ahead: usize) -> Option<String> {
        self.token(ahead).map(|it| it.text.clone())
    }

    fn is(&self, text: &str, ahead: usize) -> bool {
        self.token(ahead).is_some_and(|it| it.text == text)
    }

    fn is_word(&self, ahead: usize) -> bool {
        self.token(ahead).is_some_and(Token::is_word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(text: &str) -> Vec<(String, String, bool)> {
        let describe = |it: &Import| (it.path.segments.join("::"), it.name.clone(), it.public);
        Source::read(text).imports.iter().map(describe).collect()
    }

    #[test]
    fn import_trees_are_flattened() {
        let found =
            imports("pub(super) use crate::a::{self, B as C, d::{E, *}}; use std::fmt; fn f() { use super::G as _; }");
        let expected = [
            ("crate::a", "a", true),
            ("crate::a::B", "C", true),
            ("crate::a::d::E", "E", true),
            ("crate::a::d", "*", true),
            ("std::fmt", "fmt", false),
            ("super::G", "_", false),
        ];
        let expected = expected.map(|(path, name, public)| (path.to_owned(), name.to_owned(), public));
        assert_eq!(found, expected);
    }

    #[test]
    fn declarations_are_found_outside_tests() {
        let source = Source::read(
            "mod a; pub mod b { pub struct C; fn d() { struct Local; } } const fn e() -> u8 { 0 } static mut F: u8 = 0;
             #[macro_export] macro_rules! g { () => { $crate::h::i!() } } impl J { fn k(&self) {} }
             #[cfg(test)] #[path = \"x.rs\"] mod tests; #[cfg(test)] mod more { use crate::l; fn m() { crate::n::o() } }
             type P<'a> = crate::q::R<'a>; pub trait S {} fn t() -> impl Sized + use<> { u.v().w::<X>(); y::Z }",
        );
        assert_eq!(source.files, ["a"]);
        assert_eq!(Vec::from_iter(&source.items), ["F", "P", "S", "e", "t"]);
        assert_eq!(Vec::from_iter(&source.exported), ["g"]);
        assert_eq!(source.inline["b"].items.len(), 2);
        assert!(source.imports.is_empty());
        let paths: Vec<String> = source.paths.iter().map(|it| it.segments.join("::")).collect();
        assert_eq!(paths, ["crate::h::i", "crate::q::R", "y::Z"]);
    }
}
