//! The reference of error codes.

use gateway::SignInMethods;

/// Returns the statuses of a code, in the order of the reference.
fn statuses(code: &str) -> Vec<String> {
    let reference = gateway::errors_markdown(&gateway::v1::routes(SignInMethods { dev: true, code_host: true }));
    let rows = reference.lines().map(|line| line.split(" | ").map(str::to_owned).collect::<Vec<_>>());
    rows.filter(|cells| cells[0] == format!("| `{code}`")).map(|cells| cells[1].clone()).collect()
}

#[test]
fn reference_has_a_row_for_each_status_of_a_code() {
    assert_eq!(statuses("invalid_client"), ["400", "401"]);
    assert_eq!(statuses("not_found"), ["404"]);
}

#[test]
fn reference_contains_the_codes_of_oauth_bodies() {
    assert_eq!(statuses("invalid_request"), ["400", "404", "405", "408", "413", "414", "415", "431"]);
    assert_eq!(statuses("server_error"), ["500"]);
    assert_eq!(statuses("temporarily_unavailable"), ["429", "503"]);
}

#[test]
fn reference_contains_no_codes_of_hooks() {
    for code in ["mail_hook_off", "notification_not_authentic", "webhook_not_authentic"] {
        assert!(statuses(code).is_empty(), "{code}");
    }
}

#[test]
fn reference_contains_the_codes_of_a_failed_sign_in() {
    assert_eq!(statuses("access_denied"), ["302", "400"]);
    assert_eq!(statuses("codehost_unavailable"), ["302"]);
}

#[test]
fn reference_contains_the_error_of_a_node() {
    assert_eq!(statuses("unknown_hostname"), ["404"]);
}
