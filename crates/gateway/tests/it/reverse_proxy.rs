//! `deploy/nginx.conf` accepts the largest bodies that the server accepts, and waits as long as the server and the nodes,
//! so that clients receive their responses. It serves the names of `deploy/compose.yaml`, and worker code does not control
//! it.

use std::collections::BTreeMap;

use gateway::SignInMethods;
use regex::Regex;

const MIB: u64 = 1024 * 1024;

/// The text of the configuration.
const NGINX: &str = include_str!("../../../../deploy/nginx.conf");
const COMPOSE: &str = include_str!("../../../../deploy/compose.yaml");

/// A `location` of a server, or the server.
#[derive(Debug, Default)]
struct Location {
    /// The modifier, `=`, `~`, `^~` or empty.
    modifier: String,
    path: String,
    directives: Vec<Vec<String>>,
}

impl Location {
    fn directive<'a>(&'a self, server: &'a Self, name: &str) -> Option<&'a str> {
        let inherited = self.directives.iter().chain(&server.directives);
        inherited.filter(|directive| directive[0] == name).map(|directive| directive[1].as_str()).next()
    }

    /// Returns the size of the largest body in bytes. Returns `None` if any size is accepted.
    fn max_body(&self, server: &Self) -> Option<u64> {
        let size = self.directive(server, "client_max_body_size").unwrap();
        let bytes = match size.strip_suffix('m') {
            Some(mebibytes) => mebibytes.parse::<u64>().unwrap() * MIB,
            None => size.parse().unwrap(),
        };
        (bytes > 0).then_some(bytes)
    }
}

/// Splits the configuration into words, `{`, `}` and `;`.
fn tokens(text: &str) -> Vec<String> {
    let token = Regex::new(r#"#.*|'[^']*'|"[^"]*"|[;{}]|[^\s;{}]+"#).unwrap();
    let tokens = token.find_iter(text).map(|found| found.as_str().to_owned());
    tokens.filter(|token| !token.starts_with('#')).collect()
}

/// Returns the server with this name that terminates TLS, and its locations in the order of the file.
fn server(text: &str, name: &str) -> (Location, Vec<Location>) {
    let (mut blocks, mut words) = (Vec::<Vec<String>>::new(), Vec::<String>::new());
    let (mut server, mut locations) = (Location::default(), Vec::<Location>::new());
    for token in tokens(text) {
        match token.as_str() {
            "{" => {
                let head = std::mem::take(&mut words);
                match head.as_slice() {
                    [kind] if kind == "server" => (server, locations) = Default::default(),
                    [kind, place @ ..] if kind == "location" => {
                        let (path, modifier) = place.split_last().unwrap();
                        let modifier = modifier.concat();
                        locations.push(Location { modifier, path: path.clone(), directives: Vec::new() });
                    }
                    _ => {}
                }
                blocks.push(head);
            }
            "}" => {
                let is_server = blocks.pop().is_some_and(|head| head == ["server"]);
                let has = |directive, value| server.directive(&Location::default(), directive) == Some(value);
                if is_server && has("server_name", name) && has("listen", "443") {
                    return (server, locations);
                }
            }
            ";" => {
                let directive = std::mem::take(&mut words);
                match blocks.last().and_then(|head| head.first()).map(String::as_str) {
                    Some("server") => server.directives.push(directive),
                    Some("location") => locations.last_mut().unwrap().directives.push(directive),
                    _ => {}
                }
            }
            _ => words.push(token),
        }
    }
    panic!("no server {name}");
}

/// Returns the location of a path: an exact one, the first matching regular expression, or the longest prefix
/// (<https://nginx.org/en/docs/http/ngx_http_core_module.html#location>).
fn location<'a>(locations: &'a [Location], path: &str) -> &'a Location {
    let find = |modifier: &str, matches: &dyn Fn(&Location) -> bool| {
        locations.iter().find(|location| location.modifier == modifier && matches(location))
    };
    let exact = find("=", &|location| location.path == path);
    let pattern = || find("~", &|location| Regex::new(&location.path).unwrap().is_match(path));
    let prefixes = locations.iter().filter(|location| location.modifier.is_empty() && path.starts_with(&location.path));
    exact.or_else(pattern).or_else(|| prefixes.max_by_key(|location| location.path.len())).unwrap()
}

#[test]
fn nginx_accepts_the_bodies_that_the_server_accepts() {
    let (server, locations) = server(NGINX, "api.example.com");
    assert!(locations.iter().all(|location| ["", "=", "~"].contains(&location.modifier.as_str())), "{locations:?}");
    let public = gateway::v1::routes(SignInMethods { dev: true, code_host: true });
    let powerdns = gateway::pdns_routes();
    let mut limits = BTreeMap::<&str, Vec<Option<usize>>>::new();
    for operation in public.operations().chain(powerdns.operations()) {
        limits.entry(operation.path()).or_default().push(operation.max_body_bytes());
    }
    let parameter = Regex::new(r"\{[^}]*\}").unwrap();
    let (mut streams, mut largest) = (0, 0);
    for (pattern, limits) in limits {
        let path = parameter.replace_all(pattern, "x.example").into_owned();
        let location = location(&locations, &path);
        let accepted = location.max_body(&server);
        if limits.contains(&None) {
            // nginx must neither limit nor store a stream.
            assert_eq!(accepted, None, "{path}");
            assert_eq!(location.directive(&server, "proxy_request_buffering"), Some("off"), "{path}");
            streams += 1;
        } else {
            // nginx stores the body. Its limit must be above the server's, so that the server's 413 reaches the client.
            let limit = limits.into_iter().flatten().max().unwrap() as u64;
            assert!(accepted.is_some_and(|accepted| accepted > limit), "{path}: {accepted:?} for a limit of {limit}");
            largest = largest.max(limit);
        }
    }
    assert_eq!((streams, largest), (1, 8 * MIB));
}

#[test]
fn nginx_waits_for_operations_that_wait_for_a_node() {
    let (server, locations) = server(NGINX, "api.example.com");
    let document = gateway::document(&gateway::v1::routes(SignInMethods { dev: true, code_host: true }));
    let parameter = Regex::new(r"\{[^}]*\}").unwrap();
    let mut waiting = 0;
    for (pattern, operations) in document["paths"].as_object().unwrap() {
        let timeouts = operations.as_object().unwrap().values().filter_map(|it| it["x-timeout-seconds"].as_u64());
        let Some(timeout) = timeouts.max() else { continue };
        let path = parameter.replace_all(pattern, "x.example");
        let read_timeout = location(&locations, &path).directive(&server, "proxy_read_timeout").unwrap();
        let seconds: u64 = read_timeout.strip_suffix('s').unwrap().parse().unwrap();
        assert!(seconds > timeout, "{path}: {seconds} s, but the server has {timeout} s");
        waiting += 1;
    }
    assert_eq!(waiting, 2);
}

#[test]
fn nginx_keeps_silent_websockets_of_projects_open() {
    let (server, locations) = server(NGINX, "*.apps.example.net");
    let read_timeout = location(&locations, "/socket").directive(&server, "proxy_read_timeout").unwrap();
    let hours: u64 = read_timeout.strip_suffix('h').unwrap().parse().unwrap();
    assert!(hours >= 1, "{read_timeout}");
    // Visitors that disappeared must not hold their connections for so long.
    for address in ["443", "[::]:443"] {
        let listen = format!("listen {address} ");
        let sockets = NGINX.lines().filter(|line| line.trim_start().starts_with(&listen));
        // nginx rejects the file if two servers set the parameter for one socket.
        assert_eq!(sockets.filter(|line| line.contains(" so_keepalive=")).count(), 1, "{address}");
    }
}

#[test]
fn nginx_does_not_obey_the_headers_of_worker_code() {
    let (server, locations) = server(NGINX, "*.apps.example.net");
    let ignored = server.directives.iter().find(|directive| directive[0] == "proxy_ignore_headers").unwrap();
    for header in ["Redirect", "Expires", "Limit-Rate", "Buffering", "Charset"] {
        assert!(ignored.contains(&format!("X-Accel-{header}")), "{header}");
    }
    // A directive of a location would replace that of the server.
    let mut directives = locations.iter().flat_map(|location| &location.directives);
    assert!(directives.all(|directive| directive[0] != "proxy_ignore_headers"));
}

#[test]
fn nginx_streams_git_with_longer_timeouts_than_the_git_node() {
    const EXCHANGE: &str = include_str!("../../../../apps/git/src/exchange.rs");
    const PROGRESS: &str = include_str!("../../../../apps/git/src/progress.rs");
    let (server, locations) = server(NGINX, "git.example.com");
    let location = location(&locations, "/acme/site/app.git/git-receive-pack");
    assert_eq!(location.max_body(&server), None);
    let streaming = [("proxy_http_version", "1.1"), ("proxy_request_buffering", "off"), ("proxy_buffering", "off")];
    for (directive, value) in streaming {
        assert_eq!(location.directive(&server, directive), Some(value), "{directive}");
    }
    let constant = |source: &str, name: &str| {
        let line = Regex::new(&format!(r"(?m)^const {name}: Duration = Duration::from_secs\((\d+)\);$")).unwrap();
        line.captures(source).unwrap()[1].parse::<u64>().unwrap()
    };
    let (exchange, patience) = (constant(EXCHANGE, "TIMEOUT"), constant(PROGRESS, "MAX_PATIENCE"));
    let timeouts = [("proxy_read_timeout", exchange), ("client_body_timeout", patience), ("send_timeout", patience)];
    for (directive, timeout) in timeouts {
        let value = location.directive(&server, directive).unwrap();
        let seconds = match value.strip_suffix('m') {
            Some(minutes) => minutes.parse::<u64>().unwrap() * 60,
            None => value.strip_suffix('s').unwrap().parse().unwrap(),
        };
        assert!(seconds > timeout, "{directive} {value}");
    }
}

/// nginx rejects the TLS handshake of an unknown name.
#[test]
fn nginx_serves_the_names_of_the_containers() {
    let name = |setting: &str| {
        let line = Regex::new(&format!(r"(?m)^  #?{setting}: (?:https://)?(\S+)$")).unwrap();
        line.captures(COMPOSE).unwrap()[1].to_owned()
    };
    let projects = format!("*.{}", name("SVC_PLATFORM_DOMAIN"));
    for (name, port) in [(name("SVC_PUBLIC_URL"), 8080), (name("SVC_GIT_URL"), 8093), (projects, 8088)] {
        assert!(COMPOSE.contains(&format!("\"127.0.0.1:{port}:{port}\"")), "{name}");
        let (server, locations) = server(NGINX, &name);
        let target = location(&locations, "/").directive(&server, "proxy_pass").unwrap();
        let (address, upstream) = (format!("127.0.0.1:{port}"), target.strip_prefix("http://").unwrap());
        let block = Regex::new(&format!(r"(?m)^upstream {upstream} \{{\s+server {address};")).unwrap();
        assert!(upstream == address || block.is_match(NGINX), "{name}: {target}");
        let mut targets = locations.iter().filter_map(|location| location.directive(&server, "proxy_pass"));
        assert!(targets.all(|it| it == target), "{name}");
    }
}
