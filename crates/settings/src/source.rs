//! Where values come from, and the rules of the start.

use std::collections::BTreeMap;
use std::{env, fmt, fs};

use crate::{Error, Need, Row, Setting, Value};

/// Names the file under the environment. It belongs to every process, so no table holds it.
const CONFIG: &str = "SVC_CONFIG";
/// What the name of everything in that file begins with.
const PRODUCT: &str = "SVC_";

/// The names that a process answers for: one it does not know among them stops its start.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    /// Its names begin with one of these …
    pub prefixes: &'static [&'static str],
    /// … and with none of these, which are another process's.
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

/// The settings of a process as they were given. Holds secrets: `Debug` shows names alone.
pub struct Settings {
    values: BTreeMap<&'static str, Option<String>>,
}

impl Settings {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// The first thing wrong, as this crate's documentation lists them.
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

    /// Reads `environment` as if it were the process's.
    ///
    /// # Errors
    /// As [`Settings::from_env`].
    pub fn read(
        table: &[Row],
        claim: &Claim,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, Error> {
        let mut environment: Layer = environment.into_iter().collect();
        let file = environment.remove(CONFIG).map_or_else(|| Ok(Layer::new()), |path| parse_file(&path))?;
        let is_unknown = |name: &&String| claim.covers(name) && !declared(table, name);
        let is_stray = |name: &&String| !name.starts_with(PRODUCT);
        if let Some(name) =
            environment.keys().find(is_unknown).or_else(|| file.keys().find(|name| is_stray(name) || is_unknown(name)))
        {
            return Err(Error::new(name, "is unknown: this process has no such setting"));
        }
        let mut values = BTreeMap::new();
        for row in table {
            let given = match given(row, &environment)? {
                Some(text) => Some(text),
                None => given(row, &file)?,
            };
            let value = match (given, row.need) {
                (Some(text), _) => Some(text),
                (None, Need::Default(text)) => Some(text.to_owned()),
                (None, Need::Optional) => None,
                (None, Need::Required) => return Err(Error::new(row.name, "is missing")),
            };
            values.insert(row.name, value);
        }
        Ok(Self { values })
    }

    /// The value of a setting that always has one.
    ///
    /// # Errors
    /// It does not parse; or it is not of the table that was read.
    pub fn get<T: Value>(&self, setting: &Setting<T>) -> Result<T, Error> {
        let name = setting.row().name;
        self.parse(name)?.ok_or_else(|| Error::new(name, "is missing"))
    }

    /// The value of a setting that may be left out.
    ///
    /// # Errors
    /// As [`Settings::get`].
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

/// What `layer` gives for `row`, from the file that holds it where one is named.
fn given(row: &Row, layer: &Layer) -> Result<Option<String>, Error> {
    let file_name = format!("{}_FILE", row.name);
    let path = layer.get(&file_name).filter(|_| row.secret);
    let text = match (layer.get(row.name), path) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(Error::new(row.name, format_args!("and {file_name} are both given"))),
        (Some(text), None) => text.clone(),
        (None, Some(path)) => read_secret(&file_name, path)?,
    };
    // `NAME=` is what a template leaves behind, and "no password" is never what it means.
    if text.is_empty() { Err(Error::new(row.name, "is empty")) } else { Ok(Some(text)) }
}

/// The error does not show the path: what is there by mistake may be the secret itself.
fn read_secret(file_name: &str, path: &str) -> Result<String, Error> {
    let mut text = fs::read_to_string(path).map_err(|error| Error::new(file_name, cannot_be_read(&error)))?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

fn parse_file(path: &str) -> Result<Layer, Error> {
    let text = fs::read_to_string(path).map_err(|error| Error::new(CONFIG, cannot_be_read(&error)))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // Its own message quotes the line, which may hold a secret.
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        Error::malformed(CONFIG, format_args!("line {} is not TOML", before.split('\n').count()))
    })?;
    table.into_iter().map(scalar).collect()
}

fn cannot_be_read(error: &std::io::Error) -> String {
    format!("cannot be read: {error}")
}

fn scalar((name, value): (String, toml::Value)) -> Result<(String, String), Error> {
    match value {
        toml::Value::String(text) => Ok((name, text)),
        toml::Value::Integer(number) => Ok((name, number.to_string())),
        toml::Value::Boolean(flag) => Ok((name, flag.to_string())),
        _ => Err(Error::malformed(&name, "neither a string, an integer nor a boolean")),
    }
}
