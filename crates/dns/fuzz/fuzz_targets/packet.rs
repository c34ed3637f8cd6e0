//! Messages as nameservers, and those who pretend to be some, send them.

#![no_main]

use dns::WireName;
use dns::wire::{Header, Malformed, Message, Mistrust, Record, TsigKey};
use libfuzzer_sys::fuzz_target;

/// When requests of the corpus that are signed were signed.
const NOW: u64 = 1_795_255_200;

fuzz_target!(|input: &[u8]| {
    let Ok(message) = Message::read(input) else { return };
    assert_eq!(Header::read(input), Ok(message.header));
    assert_eq!(message.question().is_ok(), message.questions.len() == 1);
    let _ = message.edns();
    for name in message.questions.iter().map(|it| &it.name).chain(message.records.iter().map(|it| &it.name)) {
        assert!(name.as_bytes().len() <= 255 && name.as_bytes().last() == Some(&0));
        if let Some(host) = name.host() {
            assert_eq!(WireName::of_host(&host).as_ref(), Some(name));
        }
    }
    for record in &message.records {
        let _: Result<u32, Malformed> = message.serial(record);
    }
    let key: TsigKey = "xfr:hmac-sha256:MDEyMzQ1Njc4OWFiY2RlZg==".parse().unwrap();
    if let Err(mistrust) = key.check(&message, NOW) {
        let is_unsigned = mistrust == Mistrust::Unsigned;
        let is_signature = |record: &Record<'_>| record.kind == 250;
        assert_eq!(is_unsigned, !message.records.iter().any(is_signature));
        // Whatever was wrong, the answer that says so is a message.
        let answer = [&input[..2], &[0x80, 9, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert!(Message::read(&mistrust.tell(&message, answer, NOW)).is_ok());
    }
});
