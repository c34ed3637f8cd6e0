//! Property tests: generated records and zones round-trip through text, wire format and other libraries.

use std::net::{Ipv4Addr, Ipv6Addr};

use dns::{OwnerName, Rdata, RecordSet, RecordType};
use hickory_proto::rr::{RData, RecordType as HickoryType};
use hickory_proto::serialize::binary::{BinDecoder, BinEncodable, BinEncoder, NameEncoding, Restrict};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::records::zone;

/// Returns a common name, or one of random octets.
pub(crate) fn name() -> impl Strategy<Value = String> {
    let label = prop_oneof![
        "[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,20}[a-zA-Z0-9_])?",
        "[a-z]{0,3}[äßéσς例え]{1,3}[a-z]{0,3}",
        "[a-z0-9]{63}",
    ];
    let random = vec(any::<u8>(), 1..12).prop_map(|octets| escaped(&octets));
    let dots = select(vec!["", "."]);
    let written = (vec(label, 1..4), dots).prop_map(|(labels, dot)| labels.join(".") + dot);
    prop_oneof![4 => written, 1 => random, 1 => Just("@".to_owned())]
}

/// Returns a host name, such as that of a mail server.
fn host() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,20}[a-zA-Z0-9_])?(\\.[a-z]{2,4}){0,2}\\.?"
        .prop_filter("not an address", |text| text.parse::<Ipv4Addr>().is_err())
}

fn escaped(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("\\{octet:03}")).collect()
}

/// Any octets, quoted or escaped in different ways.
fn string(most: usize) -> impl Strategy<Value = String> {
    prop_oneof![
        vec(any::<u8>(), 0..most).prop_map(|octets| format!("\"{}\"", escaped(&octets))),
        "[^\"\\\\\\p{Cc}]{0,40}".prop_map(|text| format!("\"{text}\"")),
        "[a-zA-Z0-9=:/+*.-]{1,40}",
    ]
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02X}")).collect()
}

fn parameters() -> impl Strategy<Value = String> {
    let value = |key: &'static str| match key {
        // Knot 3.2 does not read an id of one character before a comma.
        "alpn" => vec("[a-z0-9/]{2,8}", 1..4).prop_map(|ids| format!("alpn={}", ids.join(","))).boxed(),
        "port" => any::<u16>().prop_map(|port| format!("port=\"{port}\"")).boxed(),
        "ipv4hint" => any::<Ipv4Addr>().prop_map(|address| format!("ipv4hint={address},{address}")).boxed(),
        "ipv6hint" => any::<Ipv6Addr>().prop_map(|address| format!("ipv6hint={address}")).boxed(),
        "key667" => vec(any::<u8>(), 0..300).prop_map(|octets| format!("key667=\"{}\"", escaped(&octets))).boxed(),
        key => Just(key.to_owned()).boxed(),
    };
    let keys = vec!["port", "alpn", "key8", "ipv6hint", "ipv4hint", "key667"];
    (subsequence(keys, 0..6).prop_shuffle(), any::<bool>()).prop_flat_map(move |(keys, is_mandatory)| {
        let mandatory = (is_mandatory && !keys.is_empty()).then(|| format!("mandatory={}", keys.join(",")));
        let values: Vec<_> = keys.into_iter().map(value).collect();
        values.prop_map(move |values| values.into_iter().chain(mandatory.clone()).collect::<Vec<_>>().join(" "))
    })
}

fn location() -> impl Strategy<Value = String> {
    let angle = |most: u32| (0..most, 0..60_u32, 0..60_000_u32, 0..3_usize);
    let angle = move |most, letters: [&'static str; 2]| {
        (angle(most), select(letters.to_vec())).prop_map(|((degrees, minutes, thousandths, words), letter)| {
            let seconds = format!(" {}.{:03}", thousandths / 1000, thousandths % 1000);
            let rest = [String::new(), format!(" {minutes}"), format!(" {minutes}{seconds}")];
            format!("{degrees}{} {letter}", rest[words])
        })
    };
    let metres = |centimetres: i64| format!("{}.{:02}m", centimetres / 100, centimetres.abs() % 100);
    let sizes = vec(0..9_000_000_000_i64, 0..4);
    (angle(90, ["N", "s"]), angle(180, ["E", "W"]), -9_999_900..4_284_967_295_i64, sizes).prop_map(
        move |(latitude, longitude, altitude, sizes)| {
            let sizes: Vec<_> = sizes.into_iter().map(metres).collect();
            format!("{latitude} {longitude} {} {}", metres(altitude), sizes.join(" "))
        },
    )
}

/// Returns the text of a valid record.
fn data(kind: RecordType) -> BoxedStrategy<String> {
    let (short, octet) = (any::<u16>(), any::<u8>());
    let digest = |length: usize| vec(any::<u8>(), length).prop_map(|octets| hex(&octets));
    match kind {
        RecordType::A => any::<Ipv4Addr>().prop_map(|address| address.to_string()).boxed(),
        RecordType::Aaaa => any::<[u16; 8]>()
            .prop_map(|pieces| pieces.map(|piece| format!("{:X}", if piece < 40_000 { 0 } else { piece })).join(":"))
            .boxed(),
        RecordType::Caa => {
            let issue =
                ("(issue|issueWild)", "([a-z0-9]{1,9}\\.){1,2}[a-z]{2,9}", option::of("; ?[a-z]{1,5}=[!-:<-~]{0,9}"))
                    .prop_map(|(tag, domain, rest)| format!("{tag} {}", quoted(&(domain + &rest.unwrap_or_default()))));
            let other = ("[a-hA-H0-9]{1,15}", string(300)).prop_map(|(tag, value)| format!("{tag} {value}"));
            (select(vec!["0", "128"]), prop_oneof![issue, other])
                .prop_map(|(flags, rest)| format!("{flags} {rest}"))
                .boxed()
        }
        RecordType::Cname | RecordType::Ptr => name().boxed(),
        RecordType::Https | RecordType::Svcb => {
            let service = (1..=u16::MAX, name(), parameters())
                .prop_map(|(priority, target, parameters)| format!("{priority} {target} {parameters}"));
            prop_oneof![4 => service, 1 => name().prop_map(|target| format!("0 {target}"))].boxed()
        }
        RecordType::Loc => location().boxed(),
        RecordType::Mx => (short, host()).prop_map(|(preference, host)| format!("{preference} {host}")).boxed(),
        RecordType::Naptr => (short, any::<u16>(), "[A-Za-z0-9]{0,3}", string(200), name())
            .prop_map(|(order, preference, flags, services, replacement)| {
                format!("{order} {preference} \"{flags}\" {services} \"!^.*$!sip:x@example.org!\" {replacement}")
            })
            .boxed(),
        RecordType::Ns => host().boxed(),
        RecordType::Soa => (host(), name(), any::<[u32; 5]>())
            .prop_map(|(primary, mailbox, numbers)| {
                format!("{primary} {mailbox} {}", numbers.map(|number| number.to_string()).join(" "))
            })
            .boxed(),
        RecordType::Srv => (any::<[u16; 3]>(), host())
            .prop_map(|(numbers, host)| format!("{} {host}", numbers.map(|number| number.to_string()).join(" ")))
            .boxed(),
        RecordType::Sshfp => (octet, select(vec![(1, 20), (2, 32), (9, 7)]))
            .prop_flat_map(move |(algorithm, (kind, length))| {
                digest(length).prop_map(move |digest| format!("{algorithm} {kind} {digest}"))
            })
            .boxed(),
        RecordType::Tlsa => (any::<[u8; 2]>(), select(vec![(0, 90), (1, 32), (2, 64), (9, 7)]))
            .prop_flat_map(move |([usage, selector], (kind, length))| {
                digest(length).prop_map(move |digest| format!("{usage} {selector} {kind} {digest}"))
            })
            .boxed(),
        RecordType::Txt => vec(string(700), 1..4).prop_map(|strings| strings.join(" ")).boxed(),
        RecordType::Uri => (any::<[u16; 2]>(), string(400))
            .prop_filter("not empty", |(_, target)| target != "\"\"")
            .prop_map(|([priority, weight], target)| format!("{priority} {weight} {target}"))
            .boxed(),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn record() -> impl Strategy<Value = (RecordType, String)> {
    select(RecordType::ALL).prop_flat_map(|kind| (Just(kind), data(kind)))
}

/// Sets that are valid in one zone.
pub(crate) fn sets() -> impl Strategy<Value = Vec<RecordSet>> {
    let kinds: Vec<_> =
        RecordType::ALL.iter().copied().filter(|kind| !matches!(kind, RecordType::Soa | RecordType::Cname)).collect();
    let owner = prop_oneof![8 => name(), 1 => Just("*".to_owned())]
        .prop_filter_map("in the zone", |text| OwnerName::parse(text.trim_end_matches('.'), &zone()).ok());
    let set = (owner, select(kinds), RecordSet::TTL).prop_flat_map(|(owner, kind, ttl)| {
        vec(data(kind), 1..4).prop_map(move |texts| {
            let records = texts.iter().map(|text| parsed(kind, text)).collect();
            RecordSet::new(owner.clone(), kind, ttl, records)
        })
    });
    let set = set.prop_filter("good", |set| set.check().is_ok());
    vec(set, 0..12).prop_map(|mut sets| {
        sets.sort_by_key(|set| (set.owner.clone(), set.kind));
        sets.dedup_by_key(|set| (set.owner.clone(), set.kind));
        sets
    })
}

fn parsed(kind: RecordType, text: &str) -> Rdata {
    Rdata::parse(kind, text, &zone()).unwrap_or_else(|why| panic!("{kind} {text}: the record {why}"))
}

/// Decodes and encodes the octets with hickory, which has its own decoder for most types.
fn through_hickory(kind: RecordType, wire: &[u8]) -> Vec<u8> {
    let mut decoder = BinDecoder::new(wire);
    let length = Restrict::new(u16::try_from(wire.len()).unwrap());
    let data = RData::read(&mut decoder, HickoryType::from(kind.code()), length).unwrap();
    let mut again = Vec::new();
    let mut encoder = BinEncoder::new(&mut again);
    encoder.set_name_encoding(NameEncoding::Uncompressed);
    data.emit(&mut encoder).unwrap();
    again
}

proptest! {
    #[test]
    fn valid_records_round_trip((kind, text) in record()) {
        let record = parsed(kind, &text);
        let canonical = record.text(kind);
        prop_assert!(canonical.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "{}", canonical);
        prop_assert_eq!(&parsed(kind, &canonical), &record);
        prop_assert_eq!(Rdata::from_wire(kind, record.wire().to_vec()), Ok(record.clone()));
        let generic = format!("\\# {} {}", record.wire().len(), hex(record.wire()));
        prop_assert_eq!(&parsed(kind, &generic), &record);
        prop_assert_eq!(through_hickory(kind, record.wire()), record.wire());
    }

    #[test]
    fn parsing_any_text_never_panics(text in prop_oneof!["\\PC{0,60}", any::<String>(), "[ -~\t\n]{0,60}"], at in any::<usize>()) {
        let kind = RecordType::ALL[at % RecordType::ALL.len()];
        if let Ok(record) = Rdata::parse(kind, &text, &zone()) {
            prop_assert_eq!(parsed(kind, &record.text(kind)), record);
        }
    }

    #[test]
    fn parsing_edited_records_never_panics((kind, text) in record(), at in any::<usize>(), with in "[ -~\t\n;\"\\\\()é]{0,2}") {
        let at = text.floor_char_boundary(at % (text.len() + 1));
        let changed = format!("{}{with}{}", &text[..at], &text[text.ceil_char_boundary(at + 1)..]);
        if let Ok(record) = Rdata::parse(kind, &changed, &zone()) {
            prop_assert_eq!(parsed(kind, &record.text(kind)), record);
        }
    }

    #[test]
    fn decoding_any_octets_never_panics(wire in vec(any::<u8>(), 0..80), kind in select(RecordType::ALL)) {
        let _ = Rdata::new_unchecked(wire.clone()).text(kind);
        if let Ok(record) = Rdata::from_wire(kind, wire) {
            prop_assert_eq!(parsed(kind, &record.text(kind)), record);
        }
    }

    #[test]
    fn any_octets_round_trip_as_txt(octets in vec(any::<u8>(), 0..2000)) {
        let record = parsed(RecordType::Txt, &format!("\"{}\"", escaped(&octets)));
        let again = parsed(RecordType::Txt, &record.text(RecordType::Txt));
        let mut joined = Vec::new();
        let mut rest = again.wire();
        while let Some((length, behind)) = rest.split_first() {
            joined.extend_from_slice(&behind[..usize::from(*length)]);
            rest = &behind[usize::from(*length)..];
        }
        prop_assert_eq!(joined, octets);
    }

    #[test]
    fn parsing_any_name_never_panics(text in prop_oneof![any::<String>(), "\\PC{0,40}", name()]) {
        let zone = zone();
        if let Ok(owner) = OwnerName::parse(&text, &zone) {
            prop_assert_eq!(&OwnerName::parse(&owner.absolute(&zone), &zone), &Ok(owner.clone()));
            prop_assert_eq!(OwnerName::from_wire(owner.wire(&zone).as_bytes(), &zone), Ok(owner));
        }
        let _ = dns::ZoneName::parse(&text).map(|zone| assert_eq!(dns::ZoneName::parse(zone.as_str()), Ok(zone)));
    }
}
