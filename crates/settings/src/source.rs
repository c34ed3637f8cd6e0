//! Sources of values, and the rules for names.

use std::collections::BTreeMap;
use std::{env, fmt, fs};

use crate::{Error, Requirement, Row, Setting, Value};

/// The path of the file with settings. All processes share it, so no table contains it.
const CONFIG: &str = "SVC_CONFIG";
/// The prefix of all keys in the file.
const KEY_PREFIX: &str = "SVC_";

/// The names that a process claims. The process does not start if it finds an unknown name with these prefixes.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    /// The prefixes of the claimed names.
    pub prefixes: &'static [&'static str],
    /// The longer prefixes among them that another process claims.
    pub except: &'static [&'static str],
}

impl Claim {
    fn covers(&self, name: &str) -> bool {
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        begins(self.prefixes) && !begins(self.except)
    }
}

/// One source of values, by name.
type Layer = BTreeMap<String, String>;

/// The values of a process's settings. They include secrets, so `Debug` shows only names.
pub struct Settings {
    values: BTreeMap<&'static str, Option<String>>,
}

impl Settings {
    /// Reads the environment of the process.
    ///
    /// # Errors
    /// Returns the first invalid setting; see the documentation of the crate.
    pub fn from_env(table: &[Row], claim: &Claim) -> Result<Self, Error> {
        let mut environment = Layer::new();
        for (name, value) in env::vars_os() {
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => drop(environment.insert(name, value)),
                Err(_) if name == CONFIG || claim.covers(&name) || declared(table, &name) => {
                    return Err(Error::malformed(&name, "not UTF-8"));
                }
                Err(_) => {}
            }
        }
        Self::read(table, claim, environment)
    }

    /// Reads `environment` instead of the environment of the process.
    ///
    /// # Errors
    /// Returns the same errors as [`Settings::from_env`].
    pub fn read(
        table: &[Row],
        claim: &Claim,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, Error> {
        let mut environment: Layer = environment.into_iter().collect();
        let file = environment.remove(CONFIG).map_or_else(|| Ok(Layer::new()), |path| parse_file(&path))?;
        let is_unknown = |name: &&String| claim.covers(name) && !declared(table, name);
        let has_other_prefix = |name: &&String| !name.starts_with(KEY_PREFIX);
        if let Some(name) = environment
            .keys()
            .find(is_unknown)
            .or_else(|| file.keys().find(|name| has_other_prefix(name) || is_unknown(name)))
        {
            return Err(Error::new(name, "is unknown: this process has no such setting"));
        }
        let mut values = BTreeMap::new();
        for row in table {
            let value = match value_in(row, &environment)? {
                Some(text) => Some(text),
                None => value_in(row, &file)?,
            };
            let value = match (value, row.requirement) {
                (Some(text), _) => Some(text),
                (None, Requirement::Default(text)) => Some(text.to_owned()),
                (None, Requirement::Optional) => None,
                (None, Requirement::Required) => return Err(Error::new(row.name, "is missing")),
            };
            values.insert(row.name, value);
        }
        Ok(Self { values })
    }

    /// Returns the value of a setting that is required or has a default.
    ///
    /// # Errors
    /// Returns an error if the value does not parse, or the setting is not in the table.
    pub fn get<T: Value>(&self, setting: &Setting<T>) -> Result<T, Error> {
        let name = setting.row().name;
        self.parse(name)?.ok_or_else(|| Error::new(name, "is missing"))
    }

    /// Returns the value of an optional setting.
    ///
    /// # Errors
    /// Returns the same errors as [`Settings::get`].
    pub fn opt<T: Value>(&self, setting: &Setting<Option<T>>) -> Result<Option<T>, Error> {
        self.parse(setting.row().name)
    }

    fn parse<T: Value>(&self, name: &str) -> Result<Option<T>, Error> {
        let text = self.values.get(name).ok_or_else(|| Error::new(name, "is not in this process's table"))?;
        text.as_deref().map(T::parse).transpose().map_err(|why| Error::malformed(name, why))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

fn declared(table: &[Row], name: &str) -> bool {
    let is_file_of = |row: &Row| row.secret && name.strip_suffix("_FILE") == Some(row.name);
    table.iter().any(|row| row.name == name || is_file_of(row))
}

/// Returns the value of `row` in `layer`, from its file if `layer` names one.
fn value_in(row: &Row, layer: &Layer) -> Result<Option<String>, Error> {
    let file_name = format!("{}_FILE", row.name);
    let path = layer.get(&file_name).filter(|_| row.secret);
    let text = match (layer.get(row.name), path) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(Error::new(row.name, format_args!("and {file_name} are both given"))),
        (Some(text), None) => text.clone(),
        (None, Some(path)) => read_secret(&file_name, path)?,
    };
    // A template may leave `NAME=` behind, so an empty value is an error, and never means an empty password.
    if text.is_empty() { Err(Error::new(row.name, "is empty")) } else { Ok(Some(text)) }
}

/// Reads a secret from a file. The error does not contain the path, because users may by mistake set the secret itself
/// instead of the path.
fn read_secret(file_name: &str, path: &str) -> Result<String, Error> {
    let mut text = fs::read_to_string(path).map_err(|error| Error::new(file_name, read_error(&error)))?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

fn parse_file(path: &str) -> Result<Layer, Error> {
    let text = fs::read_to_string(path).map_err(|error| Error::new(CONFIG, read_error(&error)))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // The parser's message quotes the line, which may contain a secret.
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        Error::malformed(CONFIG, format_args!("line {} is not TOML", before.split('\n').count()))
    })?;
    table.into_iter().map(scalar).collect()
}

fn read_error(error: &std::io::Error) -> String {
    format!("cannot be read: {error}")
}

fn scalar((name, value): (String, toml::Value)) -> Result<(String, String), Error> {
    match value {
        toml::Value::String(text) => Ok((name, text)),
        toml::Value::Integer(number) => Ok((name, number.to_string())),
        toml::Value::Boolean(flag) => Ok((name, flag.to_string())),
        _ => Err(Error::malformed(&name, "expected a string, an integer or a boolean")),
    }
}
