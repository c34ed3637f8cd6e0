//! Messages from nameservers and attackers.

#![no_main]

use dns::WireName;
use dns::wire::{Header, MalformedMessage, Message, Record, TsigError, TsigKey};
use libfuzzer_sys::fuzz_target;

/// The time of the signatures in the corpus.
const NOW: u64 = 1_795_255_200;

fuzz_target!(|input: &[u8]| {
    let Ok(message) = Message::read(input) else { return };
    assert_eq!(Header::read(input), Ok(message.header));
    assert_eq!(message.question().is_ok(), message.questions.len() == 1);
    let _ = message.edns();
    for name in message.questions.iter().map(|it| &it.name).chain(message.records.iter().map(|it| &it.name)) {
        assert!(name.as_bytes().len() <= 255 && name.as_bytes().last() == Some(&0));
        if let Some(host) = name.to_host() {
            assert_eq!(WireName::from_host(&host).as_ref(), Some(name));
        }
    }
    for record in &message.records {
        let _: Result<u32, MalformedMessage> = message.serial(record);
    }
    let key: TsigKey = "xfr:hmac-sha256:MDEyMzQ1Njc4OWFiY2RlZg==".parse().unwrap();
    if let Err(error) = key.check(&message, NOW) {
        let is_unsigned = error == TsigError::Unsigned;
        let is_signature = |record: &Record<'_>| record.kind == 250;
        assert_eq!(is_unsigned, !message.records.iter().any(is_signature));
        // The answer with the error code is a valid message.
        let answer = [&input[..2], &[0x80, 9, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert!(Message::read(&error.add_to_answer(&message, answer, NOW)).is_ok());
    }
});
