//! The pages of mail and DNS records.

use hickory_resolver::proto::op::{Message, Query};
use hickory_resolver::proto::rr::{Name, RecordType};
use tokio::net::UdpSocket;

use super::{TestSandbox, header};

const MAIL: &str = "From: Svc <svc@svc.example>
To: grace@navy.example
Subject: ada invites you to <acme> & more
Date: Sun, 22 Nov 2026 10:00:00 +0000
Content-Type: multipart/alternative; boundary=b

--b
Content-Type: text/plain; charset=utf-8

Join acme:
http://localhost:3000/invites/svc_inv_abc

--b
Content-Type: text/html; charset=utf-8

<p><a href=\"http://localhost:3000/invites/svc_inv_abc\">Accept</a></p>
--b--
";

#[tokio::test]
async fn received_mail_can_be_listed_and_read() {
    let sandbox = TestSandbox::start().await;
    assert!(sandbox.text("/mail").await.contains("No mail yet."));
    sandbox.send("ada@code.example", "Subject: first\n\n..one line").await;
    sandbox.send("grace@navy.example", MAIL).await;
    let list = sandbox.text("/mail").await;
    let (newest, oldest) = (list.find("/mail/2").unwrap(), list.find("/mail/1").unwrap());
    assert!(newest < oldest && list.contains("ada invites you to &lt;acme&gt; &amp; more"), "{list}");

    let mail = sandbox.text("/mail/2").await;
    assert!(mail.contains("<a href=\"http://localhost:3000/invites/svc_inv_abc\">"), "{mail}");
    assert!(mail.contains("svc orgs join svc_inv_abc<") && mail.contains("src=\"/mail/2/html\""), "{mail}");
    let html = sandbox.get("/mail/2/html").await;
    let policy = header(&html, "content-security-policy");
    assert!(policy.starts_with("sandbox ") && policy.contains("default-src 'none'"), "{policy}");
    assert!(html.text().await.unwrap().contains("<base target=_blank><p><a href=\"http://localhost:3000/invites"));
    assert_eq!(sandbox.text("/mail/1/raw").await, "Subject: first\r\n\r\n.one line\r\n");
    assert!(!sandbox.text("/mail/1").await.contains("svc orgs join"));
    for missing in ["/mail/0", "/mail/3", "/mail/x", "/mail/1/other", "/elsewhere"] {
        assert_eq!(sandbox.get(missing).await.status(), 404, "{missing}");
    }
    assert!(sandbox.text("/").await.contains("2 received"));
}

#[tokio::test]
async fn newest_mails_are_kept() {
    let sandbox = TestSandbox::start().await;
    for number in 1..=101 {
        sandbox.send("ada@code.example", &format!("Subject: mail {number}\n\nx")).await;
    }
    let list = sandbox.text("/mail").await;
    assert_eq!(list.matches("href=\"/mail/").count(), 100, "{list}");
    assert_eq!(sandbox.get("/mail/1").await.status(), 404);
    assert!(sandbox.text("/mail/101").await.contains("mail 101"));
    // The outcome of each mail is reported.
    sandbox.wait_for("/sns", "<td>Notification", 101).await;

    let line = format!("{}\n", "x".repeat(1022));
    // The end of a long line is not the end of the mail.
    for large in [line.repeat(25 << 10), format!("{}.\n", "x".repeat((25 << 20) + 1))] {
        let refused = sandbox.send_to(&["ada@code.example"], &large).await;
        assert!(refused.contains("552 5.3.4 ") && !refused.contains("503 "), "{refused}");
    }
    sandbox.send("ada@code.example", &line.repeat(24 << 10)).await;
    assert!(sandbox.text("/").await.contains("102 received"));
}

/// Returns the number of TXT records of a name.
async fn txt_records(sandbox: &TestSandbox, name: &str) -> usize {
    let mut query = Message::query();
    query.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::TXT));
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(&query.to_vec().unwrap(), sandbox.dns).await.unwrap();
    let mut response = [0; 512];
    let length = socket.recv(&mut response).await.unwrap();
    Message::from_vec(&response[..length]).unwrap().answers.len()
}

#[tokio::test]
async fn records_can_be_added_looked_up_and_removed() {
    let sandbox = TestSandbox::start().await;
    let lookup = async || txt_records(&sandbox, "_svc.shop.example.").await;

    assert_eq!(lookup().await, 0);
    let record = [("name", "_svc.shop.example"), ("type", "TXT"), ("data", "svc-proof=<1>")];
    let added = sandbox.submit("/dns", &record).await;
    assert_eq!((added.status().as_u16(), header(&added, "location").as_str()), (302, "/dns"));
    assert!(sandbox.text("/dns").await.contains("<td>_svc.shop.example.<td>TXT<td>svc-proof=&lt;1&gt;"));
    assert_eq!(lookup().await, 1);
    for wrong in [("type", "A"), ("type", "MX"), ("name", "a..b"), ("name", "")] {
        let fields = record.map(|field| if field.0 == wrong.0 { wrong } else { field });
        let page = sandbox.submit("/dns", &fields).await.text().await.unwrap();
        assert!(page.contains("of the record is invalid"), "{wrong:?}: {page}");
    }
    sandbox.submit("/dns", &record[..2]).await;
    assert_eq!(lookup().await, 0);
    assert!(sandbox.text("/").await.contains("0 records"));

    assert!(sandbox.text("/dns").await.contains("<option>CAA"));
    let caa = |data| [("name", "shop.example"), ("type", "CAA"), ("data", data)];
    for data in ["ca.example", ""] {
        assert_eq!(sandbox.submit("/dns", &caa(data)).await.status(), 302, "{data}");
    }
    assert_eq!(sandbox.text("/dns").await.matches("<td>CAA<td>").count(), 2);
    sandbox.submit("/dns", &caa("")[..2]).await;
    assert_eq!(sandbox.text("/dns").await.matches("<td>CAA<td>").count(), 0);
}
