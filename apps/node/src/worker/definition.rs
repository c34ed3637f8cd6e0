//! The configuration of `workerd`: a message of the type `Config` of its schema, `workerd.capnp`.
//!
//! The node writes the configuration to the standard input of the process, so that the secrets in it are not in a file,
//! an argument or an environment variable.

use std::borrow::Cow;

use crate::digest::Digest;
use crate::environment::Environment;
use crate::index::Code;

use super::bindings::{BINDING_HEADER, Binding, Bindings, KEY_HEADER};
use super::capnp::{BlobContent, Message, Pointer, Struct};
use super::email;
use super::folder::{BINDINGS_SOCKET, EGRESS_SOCKET, EMAIL_SOCKET, HTTP_SOCKET, PROBE_SOCKET};

/// The compatibility date of code that declares none. It must not change: a later date changes how deployed code
/// behaves.
const DEFAULT_DATE: &str = "2026-11-01";

/// The header that passes the scheme of the request's URL to `workerd`. Worker code does not see it.
pub const SCHEME_HEADER: &str = "svc-worker-scheme";

/// The size of V8's young generation in MiB. By default, V8 sizes its heap by the memory of the machine and not by the
/// limit of the process. Then it postpones the collection of garbage until the process exceeds its limit.
const SEMI_SPACE_MIB: u64 = 4;
/// The size of V8's old generation in MiB at which it collects garbage for the first time. V8 does not count the memory
/// that `workerd` allocates for a request, which is larger than the request's objects and is freed with them.
const INITIAL_OLD_SPACE_MIB: u64 = 4;

/// A worker that responds to the watchdog's probes.
const PROBE: &str = "addEventListener('fetch', event => event.respondWith(new Response('ok')));\n";

const INTERNET: &str = "internet";
const WORKER: &str = "worker";

/// Returns the limit of V8's heap in bytes, for a process with this memory limit. The other half is for `workerd` itself,
/// which needs up to 70 MiB, for buffers outside of the heap, and for the code of the worker.
pub const fn heap_limit(memory: u64) -> u64 {
    memory / 2
}

/// The `workerd` configuration of one process.
pub struct Definition<'a> {
    /// The code that it runs.
    pub code: &'a Code,
    /// The environment of the code.
    pub environment: &'a Environment,
    pub bindings: &'a Bindings,
    /// The memory limit of the process in bytes.
    pub memory: u64,
    /// Identifies the process in its requests to bindings.
    pub key: &'a str,
}

impl Definition<'_> {
    /// Returns the contents of the modules.
    pub fn modules(&self) -> impl Iterator<Item = (Digest, u64)> {
        self.code.modules.values().map(|module| (module.content, module.size))
    }

    /// Returns the configuration as a message. It contains the secrets.
    pub fn message(&self) -> anyhow::Result<Message> {
        let granted = || self.bindings.granted(self.environment, Some(self.code));
        let egress = external(EGRESS_SOCKET, http_options(Style::Proxy, Pointer::Null, Vec::new()));
        let mut services = vec![service(INTERNET, egress)];
        services.extend(granted().map(|binding| service(service_name(binding), self.binding_service(binding))));
        services.push(service(WORKER, self.worker()));
        services.push(service(PROBE_SOCKET, probe()));
        let forwarded_scheme = http_options(Style::Host, text(SCHEME_HEADER), Vec::new());
        let plain = || http_options(Style::Host, Pointer::Null, Vec::new());
        let mut sockets = vec![socket(HTTP_SOCKET, forwarded_scheme, designator(WORKER))];
        if self.environment.has_email() {
            sockets.push(socket(EMAIL_SOCKET, plain(), entrypoint(WORKER, email::ENTRYPOINT)));
        }
        // The probe socket is the last one, so when the process responds to a probe, it also listens on the other
        // sockets.
        sockets.push(socket(PROBE_SOCKET, plain(), designator(PROBE_SOCKET)));
        // Only bindings can use an internal module; worker code cannot import it.
        let modules = granted().filter_map(|binding| Some((binding.name(), binding.module()?)));
        let modules = modules.map(|(name, source)| object(1, [text(module_name(name)), text(source)])).collect();
        Message::new(object(
            0,
            [
                Pointer::Structs(services),
                Pointer::Structs(sockets),
                Pointer::Texts(self.v8_flags()),
                Pointer::Structs(vec![object(0, [Pointer::Structs(modules)])]),
            ],
        ))
    }

    fn v8_flags(&self) -> Vec<Cow<'_, str>> {
        vec![
            format!("--max-semi-space-size={SEMI_SPACE_MIB}").into(),
            format!("--initial-old-space-size={INITIAL_OLD_SPACE_MIB}").into(),
            format!("--max-old-space-size={}", heap_limit(self.memory) >> 20).into(),
        ]
    }

    /// Returns the node's service behind a binding, with the headers that identify process and binding.
    fn binding_service(&self, binding: &dyn Binding) -> Kind<'_> {
        let header = |name, value: &str| object(0, [text(name), text(value.to_owned())]);
        let headers = vec![header(KEY_HEADER, self.key), header(BINDING_HEADER, binding.name())];
        external(BINDINGS_SOCKET, http_options(Style::Host, Pointer::Null, headers))
    }

    fn worker(&self) -> Kind<'_> {
        let date = self.code.compatibility_date.as_deref().unwrap_or(DEFAULT_DATE);
        let secrets = self.environment.secrets();
        let secrets = secrets.map(|(name, value)| object(2, [text(name), text(value)]));
        let bindings =
            secrets.chain(self.bindings.granted(self.environment, Some(self.code)).map(in_environment)).collect();
        let worker = object(
            0,
            [
                Pointer::Structs(self.modules_in_order()),
                text(date),
                Pointer::Null,
                Pointer::Structs(bindings),
                Pointer::Struct(designator(INTERNET)),
            ],
        );
        Kind { number: 1, content: worker }
    }

    /// Returns the modules; `workerd` uses the first one as the main module.
    fn modules_in_order(&self) -> Vec<Struct<'_>> {
        let generated = self.environment.has_email().then(|| email::main_module(&self.code.main));
        let generated = generated.map(|source| object(0, [text(email::MAIN_MODULE), text(source)]));
        generated.into_iter().chain(self.code_modules()).collect()
    }

    /// Returns the modules of the code, the main one first.
    fn code_modules(&self) -> impl Iterator<Item = Struct<'_>> {
        let is_main = |name: &str| name == self.code.main;
        let main = self.code.modules.iter().filter(move |(name, _)| is_main(name));
        let others = self.code.modules.iter().filter(move |(name, _)| !is_main(name));
        let module = |(name, module): (&'_ String, &crate::index::Asset)| {
            let (kind, is_text) = module_type(name);
            let content = BlobContent { content: module.content, size: module.size, is_text };
            object(kind, [text(name.clone()), Pointer::Blob(content)])
        };
        main.chain(others).map(module)
    }
}

/// A variant of the union in `Service`.
struct Kind<'a> {
    number: u64,
    content: Struct<'a>,
}

/// `HttpOptions.Style`.
#[derive(Clone, Copy)]
enum Style {
    Host = 0,
    Proxy = 1,
}

fn object<'a, const N: usize>(data: u64, pointers: [Pointer<'a>; N]) -> Struct<'a> {
    Struct { data, pointers: pointers.into() }
}

fn text<'a>(text: impl Into<Cow<'a, str>>) -> Pointer<'a> {
    Pointer::Text(text.into())
}

fn service<'a>(name: impl Into<Cow<'a, str>>, Kind { number, content }: Kind<'a>) -> Struct<'a> {
    object(number, [text(name), Pointer::Struct(content)])
}

fn external<'a>(socket: &str, http: Struct<'a>) -> Kind<'a> {
    Kind { number: 3, content: object(0, [text(format!("unix:{socket}")), Pointer::Struct(http)]) }
}

fn probe<'a>() -> Kind<'a> {
    Kind { number: 1, content: object(1, [text(PROBE), text(DEFAULT_DATE)]) }
}

fn http_options<'a>(style: Style, scheme_header: Pointer<'a>, injected_headers: Vec<Struct<'a>>) -> Struct<'a> {
    object(style as u64, [scheme_header, Pointer::Null, Pointer::Structs(injected_headers)])
}

fn socket<'a>(name: &'a str, http: Struct<'a>, service: Struct<'a>) -> Struct<'a> {
    let address = text(format!("unix:{name}"));
    object(0, [text(name), address, Pointer::Struct(http), Pointer::Null, Pointer::Struct(service)])
}

/// Creates a `ServiceDesignator`.
fn designator<'a>(service: impl Into<Cow<'a, str>>) -> Struct<'a> {
    object(0, [text(service)])
}

/// Creates the `ServiceDesignator` of a named entrypoint.
fn entrypoint<'a>(service: &'a str, name: &'a str) -> Struct<'a> {
    object(0, [text(service), text(name)])
}

/// Returns the binding in `env`: the service itself, or the object that the binding's module builds from it.
fn in_environment<'a>(binding: &dyn Binding) -> Struct<'a> {
    let service = |name| object(7, [text(name), Pointer::Struct(designator(service_name(binding)))]);
    match binding.module() {
        None => service(binding.name()),
        Some(_) => {
            let inner = Pointer::Structs(vec![service("service")]);
            let wrapped = object(0, [text(module_name(binding.name())), Pointer::Null, inner]);
            object(12, [text(binding.name()), Pointer::Struct(wrapped)])
        }
    }
}

fn service_name(binding: &dyn Binding) -> String {
    format!("binding-{}", binding.name())
}

fn module_name(binding: &str) -> String {
    format!("svc:{binding}")
}

/// Returns the variant of the union in `Worker.Module` for a file extension, and whether it is a text.
fn module_type(name: &str) -> (u64, bool) {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("js" | "mjs") => (0, true),
        Some("cjs") => (1, true),
        Some("txt" | "html") => (2, true),
        Some("json") => (5, true),
        Some("wasm") => (4, false),
        _ => (3, false),
    }
}
