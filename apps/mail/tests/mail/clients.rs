//! Real clients.

use std::process::Stdio;

use tokio::process::Command;

use super::control_plane::BLOG;
use super::fixture::Fixture;

/// Sends two mails over one connection with STARTTLS, and reads the reply to an unknown recipient.
const SMTPLIB: &str = r#"
import smtplib, ssl, sys
from email.message import EmailMessage
port, authority, domain = sys.argv[1:]
with smtplib.SMTP("localhost", int(port), local_hostname="client.example") as client:
    client.starttls(context=ssl.create_default_context(cafile=authority))
    client.ehlo()
    assert client.has_extn("size") and client.has_extn("8bitmime") and not client.has_extn("starttls")
    for number in (1, 2):
        mail = EmailMessage()
        mail["From"], mail["To"], mail["Subject"] = "ada@sender.example", f"hello@{domain}", f"Grüße {number}"
        mail.set_content(".\n..\nGrüße\n" + "x" * 2000 + "\n", cte="8bit")
        assert client.send_message(mail) == {}
    try:
        client.sendmail("ada@sender.example", ["a@nobody.mail.example"], "Subject: x\r\n\r\n")
        sys.exit("an unknown recipient was accepted")
    except smtplib.SMTPRecipientsRefused as error:
        [(code, _)] = error.recipients.values()
        assert code == 550, code
"#;

#[tokio::test]
async fn smtplib_sends_over_tls() {
    let fixture = Fixture::start().await;
    let authority = fixture.directory.path().join("authority.pem");
    std::fs::write(&authority, fixture.certificate.authority()).unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", SMTPLIB, &fixture.address.port().to_string()]).arg(&authority).arg(BLOG);
    let output = match python.stdin(Stdio::null()).output().await {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: python3 is not installed");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mails = fixture.drain().await;
    let mut subjects: Vec<_> = mails.iter().map(|it| it.mail.subject.clone().unwrap()).collect();
    subjects.sort();
    assert_eq!(subjects, ["Grüße 1", "Grüße 2"]);
    for received in mails {
        assert!(received.raw.contains(" with ESMTPS id "), "{}", received.raw);
        assert!(received.raw.contains("\r\n\r\n.\r\n..\r\nGrüße\r\nxxx"), "{}", received.raw);
    }
    fixture.has_metric("svc_mx_connections_total{outcome=\"tls\"}", "1").await;
}
