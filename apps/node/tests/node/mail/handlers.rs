//! The forms of `email()` in the code of a project.

use protocol::DeliveryResult;

use super::{HOST, Rig, mail};
use crate::control_plane::State;
use crate::running::until;

const ENTRYPOINT: &str = r#"import { WorkerEntrypoint } from "cloudflare:workers";"#;

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_handler_is_called() {
    let Some(rig) = Rig::start().await else { return };
    for (name, code, result) in [
        ("one parameter", "export default { fetch, email(message) { message.setReject('1') } };", "1"),
        (
            "two parameters",
            "export default { fetch, async email(message, env) { message.setReject(typeof env.email.send) } };",
            "function",
        ),
        (
            "three parameters",
            "export default { fetch, async email(message, env, ctx) {
               ctx.waitUntil(Promise.resolve());
               message.setReject(env.assets === undefined ? 'no env' : 'env');
             } };",
            "env",
        ),
        ("four parameters", "export default { fetch, email: (a, b, c, d) => a.setReject(typeof d) };", "undefined"),
        (
            "this",
            "export default { fetch, name: 'object', email(message) { message.setReject(this.name) } };",
            "object",
        ),
        (
            "instance",
            "class Bot { #name = 'private'; fetch() { return fetch() } email(m) { m.setReject(this.#name) } }
             export default new Bot();",
            "private",
        ),
        (
            "entrypoint",
            "export default class extends WorkerEntrypoint {
               fetch() { return fetch() }
               async email(message) { message.setReject(typeof this.env.email.send + typeof this.ctx.waitUntil) }
             }",
            "functionfunction",
        ),
        (
            "entrypoint with parameters",
            "export default class extends WorkerEntrypoint {
               fetch() { return fetch() }
               email(message, env, ctx) { message.setReject(typeof env.email + typeof ctx.waitUntil) }
             }",
            "objectfunction",
        ),
        (
            "other exports",
            "export class Other extends WorkerEntrypoint { name() { return 'other' } }
             export { Other as \"svc:email\" };
             export default { fetch, async email(message, env, ctx) {
               message.setReject(await ctx.exports.Other.name());
             } };",
            "other",
        ),
    ] {
        let code = format!("{ENTRYPOINT}\nconst fetch = () => new Response({name:?});\n{code}");
        // The main module is not at the root.
        rig.core.deploy_with(r#"{"main":"worker/src/a b.js"}"#, "app", &[("worker/src/a b.js", code.as_bytes())]);
        rig.visitor().sees(HOST, "/", 200, name).await;
        assert_eq!(rig.result_of(mail("")).await, DeliveryResult::Rejected(result.to_owned()), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn state_of_the_module_is_shared_with_fetch() {
    const CODE: &str = "let count = 0;
      export default { fetch: () => new Response(`count ${count}`), email() { count += 1 } };";
    let Some(rig) = Rig::start().await else { return };
    rig.core.deploy("app", &[("worker/index.js", CODE.as_bytes())]);
    rig.visitor().sees(HOST, "/", 200, "count 0").await;
    assert_eq!(rig.result_of(mail("")).await, DeliveryResult::Handled);
    assert_eq!(rig.visitor().get(HOST, "/").await.body, "count 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_without_a_handler_keeps_the_mail() {
    let Some(rig) = Rig::start().await else { return };
    for (name, code) in [
        ("no email", "export default { fetch: () => new Response('no email') };"),
        ("no function", "export default { fetch: () => new Response('no function'), email: true };"),
        ("class", "export default class extends WorkerEntrypoint { fetch() { return new Response('class') } }"),
    ] {
        rig.core.deploy("app", &[("worker/index.js", format!("{ENTRYPOINT}\n{code}").as_bytes())]);
        rig.visitor().sees(HOST, "/", 200, name).await;
        assert_eq!(rig.result_of(mail("")).await, DeliveryResult::NoHandler, "{name}");
    }
    rig.core.deploy("app", &[("assets/index.html", b"a page")]);
    rig.visitor().sees(HOST, "/", 200, "a page").await;
    assert_eq!(rig.result_of(mail("")).await, DeliveryResult::NoHandler);
    rig.has_metrics(&[r#"svc_node_mail_deliveries_total{result="no_handler"} 4"#]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn code_without_a_default_export_does_not_start() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.deploy("app", &[("worker/index.js", b"export class Other {}")]);
    until("the failure", || rig.core.last_report("app") == Some((2, State::Failed))).await;
    let reports = rig.core.reports_of("app", "deployment");
    let message = reports.last().unwrap()["message"].as_str().unwrap();
    assert!(message.contains("has no default export") && !message.contains("Socket"), "{message}");
    // The previous version handles mail.
    assert_eq!(rig.result_of(mail("ignore")).await, DeliveryResult::Handled);
}
