//! What `workerd` is told to run: a configuration in Cap'n Proto's text form.
//!
//! No name out of a bundle becomes the name of a file; a module's name is a quoted string.

use std::fmt::Write as _;

use crate::digest::Digest;
use crate::index::Code;

use super::folder::{ASSETS, HTTP, PROBE};

/// Of code that states none. It stays what it is: a later one would change how deployed code behaves.
const DEFAULT_DATE: &str = "2026-11-01";

/// The header by which a request for assets says whose. `workerd` sets it, over whatever the code sends.
pub const KEY: &str = "svc-worker-key";
/// The header by which `workerd` is told the scheme of a request's URL; the code does not see it.
pub const SCHEME: &str = "svc-worker-scheme";

/// What the code may connect to. `public` leaves out what is reserved for private networks; the rest are other ways to
/// write such addresses (IPv4 in IPv6, 6to4, Teredo, NAT64) and the network for benchmarks.
const NETWORK: &str = r#"allow = ["public"], deny = ["198.18.0.0/15", "::/96", "2001::/32", "2002::/16", "64:ff9b::/96", "64:ff9b:1::/48"]"#;

/// V8 sets aside room for young objects by the machine's size; a process that may have little is better off with less.
const ENGINE: &str = r#"["--max-semi-space-size=4"]"#;

/// How one version of a project is run.
pub struct Definition<'a> {
    code: &'a Code,
    key: &'a str,
}

impl<'a> Definition<'a> {
    /// The code, which asks for its assets with `key`.
    pub const fn new(code: &'a Code, key: &'a str) -> Self {
        Self { code, key }
    }

    /// What is to lie beside the configuration: names, and the contents they stand for.
    pub fn files(&self) -> impl Iterator<Item = (String, Digest)> {
        self.code.modules.values().enumerate().map(|(number, module)| (file(number), module.content))
    }

    pub const fn probe_file(&self) -> &'static str {
        "probe.js"
    }

    /// A worker that says that the process answers.
    pub const fn probe(&self) -> &'static str {
        "addEventListener('fetch', event => event.respondWith(new Response('ok')));\n"
    }

    /// The configuration.
    pub fn text(&self) -> String {
        let date = quoted(self.code.compatibility_date.as_deref().unwrap_or(DEFAULT_DATE));
        let (modules, key, probe) = (self.modules(), quoted(self.key), self.probe_file());
        format!(
            r#"using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "internet", network = ({NETWORK}, tlsOptions = (trustBrowserCas = true))),
    (name = "assets", external = (
      address = "unix:{ASSETS}",
      http = (injectRequestHeaders = [(name = "{KEY}", value = {key})])
    )),
    (name = "worker", worker = (
      compatibilityDate = {date},
      modules = [{modules}
      ],
      bindings = [(name = "assets", service = "assets")],
      globalOutbound = "internet"
    )),
    (name = "probe", worker = (
      compatibilityDate = "{DEFAULT_DATE}",
      serviceWorkerScript = embed "{probe}"
    ))
  ],
  sockets = [
    (name = "http", address = "unix:{HTTP}", http = (forwardedProtoHeader = "{SCHEME}"), service = "worker"),
    (name = "probe", address = "unix:{PROBE}", http = (), service = "probe")
  ],
  v8Flags = {ENGINE}
);
"#
        )
    }

    /// The first of the list is the main module.
    fn modules(&self) -> String {
        let named = || self.code.modules.keys().enumerate();
        let (main, others) = (named(), named());
        let main = main.filter(|(_, name)| **name == self.code.main);
        let others = others.filter(|(_, name)| **name != self.code.main);
        main.chain(others).fold(String::new(), |mut text, (number, name)| {
            let (name, kind, file) = (quoted(name), kind(name), file(number));
            // Writing to a string cannot fail.
            let _ = write!(text, "\n        (name = {name}, {kind} = embed \"{file}\"),");
            text
        })
    }
}

fn file(number: usize) -> String {
    format!("module{number}")
}

/// What a module is by its name.
fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("js" | "mjs") => "esModule",
        Some("cjs") => "commonJsModule",
        Some("txt" | "html") => "text",
        Some("json") => "json",
        Some("wasm") => "wasm",
        _ => "data",
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            // Two digits each: those above U+009F are none of these.
            control if control.is_ascii_control() => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::digest::Digest;
    use crate::index::Asset;

    #[test]
    fn the_main_module_is_first_and_names_stay_in_their_quotes() {
        let module = Asset::new(Digest::of(b""), 0);
        let names = ["a\"b\\c\n.txt", "d.wasm", "index.mjs", "lib/x.js", "ü.bin"];
        let modules: BTreeMap<_, _> = names.map(|name| (name.to_owned(), module)).into_iter().collect();
        let code = Code { main: "index.mjs".to_owned(), compatibility_date: Some("\")".to_owned()), modules };
        let text = Definition::new(&code, "key").text();
        let modules: Vec<_> = text.lines().map(str::trim).filter(|line| line.contains("embed \"module")).collect();
        assert_eq!(
            modules,
            [
                r#"(name = "index.mjs", esModule = embed "module2"),"#,
                r#"(name = "a\"b\\c\x0a.txt", text = embed "module0"),"#,
                r#"(name = "d.wasm", wasm = embed "module1"),"#,
                r#"(name = "lib/x.js", esModule = embed "module3"),"#,
                r#"(name = "ü.bin", data = embed "module4"),"#,
            ]
        );
        assert!(text.contains(r#"compatibilityDate = "\")","#), "{text}");
    }
}
