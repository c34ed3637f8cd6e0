//! The configuration of `workerd`, in Cap'n Proto's text format.
//!
//! No file name is taken from a bundle. Module names appear only as quoted strings.

use std::fmt::Write as _;

use crate::digest::Digest;
use crate::index::Code;

use super::folder::{ASSETS_SOCKET, EGRESS_SOCKET, HTTP_SOCKET, PROBE_SOCKET};

/// The compatibility date of code without one. It must not change: a later date changes how deployed code behaves.
const DEFAULT_DATE: &str = "2026-11-01";

/// The header that identifies the bundle in a request for assets. `workerd` overwrites any value that the code sends.
pub const KEY_HEADER: &str = "svc-worker-key";
/// The header that passes the scheme of the request's URL to `workerd`. Worker code does not see it.
pub const SCHEME_HEADER: &str = "svc-worker-scheme";

/// Limits V8's young generation, which V8 sizes by the memory of the machine instead of the process's limit.
const V8_FLAGS: &str = r#"["--max-semi-space-size=4"]"#;

/// The `workerd` configuration of one version of a project.
pub struct Definition<'a> {
    code: &'a Code,
    key: &'a str,
}

impl<'a> Definition<'a> {
    /// A definition that runs `code`; `key` identifies its bundle in requests for assets.
    pub const fn new(code: &'a Code, key: &'a str) -> Self {
        Self { code, key }
    }

    /// The module files that the configuration embeds: file name and digest.
    pub fn files(&self) -> impl Iterator<Item = (String, Digest)> {
        self.code.modules.values().enumerate().map(|(number, module)| (file(number), module.content))
    }

    pub const fn probe_file(&self) -> &'static str {
        "probe.js"
    }

    /// A worker that responds to the watchdog's probes.
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
    (name = "internet", external = (address = "unix:{EGRESS_SOCKET}", http = (style = proxy))),
    (name = "assets", external = (
      address = "unix:{ASSETS_SOCKET}",
      http = (injectRequestHeaders = [(name = "{KEY_HEADER}", value = {key})])
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
    (name = "http", address = "unix:{HTTP_SOCKET}", http = (forwardedProtoHeader = "{SCHEME_HEADER}"), service = "worker"),
    (name = "probe", address = "unix:{PROBE_SOCKET}", http = (), service = "probe")
  ],
  v8Flags = {V8_FLAGS}
);
"#
        )
    }

    /// The modules; `workerd` uses the first one as the main module.
    fn modules(&self) -> String {
        let named = || self.code.modules.keys().enumerate();
        let (main, others) = (named(), named());
        let main = main.filter(|(_, name)| **name == self.code.main);
        let others = others.filter(|(_, name)| **name != self.code.main);
        main.chain(others).fold(String::new(), |mut text, (number, name)| {
            let (name, kind, file) = (quoted(name), module_type(name), file(number));
            // Writing to a string cannot fail.
            let _ = write!(text, "\n        (name = {name}, {kind} = embed \"{file}\"),");
            text
        })
    }
}

fn file(number: usize) -> String {
    format!("module{number}")
}

/// The module type by file extension.
fn module_type(name: &str) -> &'static str {
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
            // ASCII control characters fit in two hexadecimal digits.
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
    fn main_module_is_first_and_names_are_escaped() {
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
