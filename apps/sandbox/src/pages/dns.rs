//! The page of the name server's records.

use crate::html::{Html, page};
use crate::http::{Request, Response};
use crate::systems::Systems;

const TYPES: [&str; 8] = ["TXT", "CNAME", "A", "AAAA", "MX", "NS", "SOA", "CAA"];

pub(super) fn list(systems: &Systems, fault: Option<&str>) -> Response {
    let mut html = Html::default();
    if let Some(fault) = fault {
        html.fault(fault);
    }
    html.raw("<table><tr><th>Name<th>Type<th>Data<th>");
    for [name, kind, data] in systems.dns.records() {
        html.raw("<tr><td>").text(&name).raw("<td>").text(&kind).raw("<td>").text(&data);
        html.raw("<td><form method=post action=\"/dns\"><input type=hidden name=name value=\"").text(&name);
        html.raw("\"><input type=hidden name=type value=\"").text(&kind);
        html.raw("\"><button>Remove all of this name and type</button></form>");
    }
    html.raw(
        "</table><h2>Add a record</h2><form method=post action=\"/dns\"><label>Name <input name=name required></label>",
    );
    html.raw("<label>Type <select name=type>");
    for kind in TYPES {
        html.raw("<option>").text(kind);
    }
    html.raw("</select></label><label>Data <input name=data></label><button>Add</button></form>");
    page("DNS records", &html)
}

/// Adds the record of the form. A form without the field `data` removes all records of the name and type. An empty field
/// is the data of a CAA record that forbids every certificate authority.
pub(super) fn change(systems: &Systems, request: &Request) -> Response {
    let (name, kind, data) = (request.parameter("name"), request.parameter("type"), request.parameter("data"));
    let adds = request.parameter_names().any(|name| name == "data");
    let changed = if adds { systems.dns.add(name, kind, data) } else { systems.dns.remove(name, kind) };
    match changed {
        Ok(()) => Response::redirect("/dns"),
        Err(fault) => list(systems, Some(&fault.to_string())),
    }
}
