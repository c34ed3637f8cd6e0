//! The text of arrays: `{1,NULL,"a b"}`, nested for further dimensions, after the bounds if they do not begin at 1.

use std::borrow::Cow;

/// A part of the text of an array.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    Open,
    Close,
    Null,
    Element(Cow<'a, [u8]>),
}

/// Reads the parts of an array. Ends early if the text is malformed.
pub struct Parts<'a> {
    rest: &'a [u8],
    delimiter: u8,
}

impl<'a> Parts<'a> {
    /// Creates a reader of a text whose elements have this delimiter.
    pub fn new(text: &'a [u8], delimiter: u8) -> Self {
        // The bounds end with `=`.
        let is_bounded = text.first() == Some(&b'[');
        let bounds = text.iter().position(|byte| *byte == b'=').filter(|_| is_bounded);
        let rest = bounds.and_then(|end| text.get(end + 1..)).unwrap_or(text);
        Self { rest, delimiter }
    }

    fn quoted(&mut self) -> Option<Part<'a>> {
        let mut element = Vec::new();
        loop {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            match byte {
                b'"' => return Some(Part::Element(element.into())),
                b'\\' => {
                    let (escaped, rest) = rest.split_first()?;
                    self.rest = rest;
                    element.push(*escaped);
                }
                byte => element.push(*byte),
            }
        }
    }

    fn unquoted(&mut self) -> Option<Part<'a>> {
        let is_end = |byte: &u8| *byte == self.delimiter || *byte == b'}';
        let (element, rest) = self.rest.split_at_checked(self.rest.iter().position(is_end)?)?;
        self.rest = rest;
        Some(if element == b"NULL" { Part::Null } else { Part::Element(element.into()) })
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        loop {
            let (first, rest) = self.rest.split_first()?;
            match first {
                b'{' | b'}' | b'"' => self.rest = rest,
                first if *first == self.delimiter => {
                    self.rest = rest;
                    continue;
                }
                _ => return self.unquoted(),
            }
            return match first {
                b'{' => Some(Part::Open),
                b'}' => Some(Part::Close),
                _ => self.quoted(),
            };
        }
    }
}

/// Appends an element in quotes.
pub fn push_element(text: &mut String, element: &str) {
    text.push('"');
    for character in element.chars() {
        if matches!(character, '"' | '\\') {
            text.push('\\');
        }
        text.push(character);
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str, delimiter: u8) -> String {
        let part = |part: Part<'_>| match part {
            Part::Open => "{".to_owned(),
            Part::Close => "}".to_owned(),
            Part::Null => "0".to_owned(),
            Part::Element(element) => format!("<{}>", String::from_utf8_lossy(&element)),
        };
        Parts::new(text.as_bytes(), delimiter).map(part).collect()
    }

    #[test]
    fn texts_are_read() {
        for (text, expected) in [
            ("{}", "{}"),
            ("{1,2}", "{<1><2>}"),
            ("{NULL,\"NULL\",null}", "{0<NULL><null>}"),
            (r#"{"a b","c\"d\\",""}"#, r#"{<a b><c"d\><>}"#),
            ("{{1,2},{3,4}}", "{{<1><2>}{<3><4>}}"),
            ("[0:1][-2:-2]={{1},{2}}", "{{<1>}{<2>}}"),
            (r#"{"{}","a=b"}"#, "{<{}><a=b>}"),
            ("{ä,\"ö\"}", "{<ä><ö>}"),
            // Malformed
            ("{1", "{"),
            ("{\"a", "{"),
            ("{\"a\\", "{"),
            ("", ""),
        ] {
            assert_eq!(parts(text, b','), expected, "{text}");
        }
        assert_eq!(parts("{(1,1),(0,0);(2,2),(1,1)}", b';'), "{<(1,1),(0,0)><(2,2),(1,1)>}");
    }

    #[test]
    fn elements_are_quoted() {
        let mut text = String::new();
        push_element(&mut text, r#"a"\,{}é"#);
        assert_eq!(text, r#""a\"\\,{}é""#);
    }
}
