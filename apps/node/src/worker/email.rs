//! The main module of a project with a mail address.
//!
//! `workerd` has no event for mail, and a call of a plain object's function over its RPC requires exactly three
//! parameters. Therefore the node generates a main module that imports the code's main module, exports the same values,
//! and adds an entrypoint that calls `email()` of the default export. Only the node can connect to the socket of the
//! entrypoint.

use serde_json::json;

/// The name of the generated module. It begins like a URL, which the name of a file in a bundle cannot do.
pub const MAIN_MODULE: &str = "svc:main";
/// The name of the entrypoint among the exports.
pub const ENTRYPOINT: &str = "svc:email";

/// Returns the source of the generated module. `main` is the path of the code's main module.
pub fn main_module(main: &str) -> String {
    // A JSON string is also a string in JavaScript.
    let main = json!(format!("./{main}"));
    let code = format!("import * as code from {main};\nexport * from {main};\nexport default code.default;\n");
    code + include_str!("email.js")
}
