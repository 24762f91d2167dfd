//! What kind of key a certificate has: signing with it is what a TLS handshake costs most of.
//!
//! RFC 5280, 4.1 (the fields in front of SubjectPublicKeyInfo) and RFC 3279, 5480, 8410 (the identifiers of algorithms);
//! PEM is RFC 7468.

use crate::visibility::process_view::Root;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io;

/// Most certificates of a service that are read.
pub const CERTIFICATES_MAX: usize = 16;

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const CURVES: [(&[u8], &str); 3] = [
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07], "ECDSA P-256"),
    (&[0x2b, 0x81, 0x04, 0x00, 0x22], "ECDSA P-384"),
    (&[0x2b, 0x81, 0x04, 0x00, 0x23], "ECDSA P-521"),
];

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OBJECT: u8 = 0x06;
/// `[0] EXPLICIT`, the version.
const VERSION: u8 = 0xa0;

/// The kind of key of the first certificate in a PEM file: `RSA 2048`, `ECDSA P-256`, `Ed25519`; `None` where none is in it, or
/// one of another kind.
pub fn key_kind(root: &Root, path: &str) -> io::Result<Option<String>> {
    Ok(kind_in_pem(&root.read_text(path)?))
}

fn kind_in_pem(pem: &str) -> Option<String> {
    let (_, after) = pem.split_once("-----BEGIN CERTIFICATE-----")?;
    let (body, _) = after.split_once("-----END CERTIFICATE-----")?;
    let base64: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    kind(&STANDARD.decode(base64).ok()?)
}

fn kind(der: &[u8]) -> Option<String> {
    let (certificate, _) = expect(der, SEQUENCE)?;
    let (mut fields, _) = expect(certificate, SEQUENCE)?;
    if let Some((_, rest)) = expect(fields, VERSION) {
        fields = rest;
    }
    let (_, mut fields) = expect(fields, INTEGER)?;
    // Signature, issuer, validity, subject.
    for _ in 0..4 {
        fields = expect(fields, SEQUENCE)?.1;
    }
    let (key, _) = expect(fields, SEQUENCE)?;
    let (algorithm, key) = expect(key, SEQUENCE)?;
    let (identifier, parameters) = expect(algorithm, OBJECT)?;
    match identifier {
        RSA => {
            let (bits, _) = expect(key, BIT_STRING)?;
            let (numbers, _) = expect(bits.get(1..)?, SEQUENCE)?;
            let (modulus, _) = expect(numbers, INTEGER)?;
            let modulus = modulus.iter().position(|byte| *byte != 0).and_then(|at| modulus.get(at..))?;
            Some(format!("RSA {}", modulus.len() * 8 - modulus.first()?.leading_zeros() as usize))
        }
        EC => {
            let (curve, _) = expect(parameters, OBJECT)?;
            let known = CURVES.iter().find(|(known, _)| *known == curve);
            Some(known.map_or("ECDSA", |(_, name)| name).to_owned())
        }
        ED25519 => Some("Ed25519".into()),
        _ => None,
    }
}

/// The content of an element of a kind, and what follows it.
fn expect(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=127 => (usize::from(*length), rest),
        129..=131 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(length)?;
    (*first == tag).then_some((content, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Made with: openssl req -x509 -newkey rsa:2048 (and ec:P-256, ed25519) -nodes -subj /CN=example.org -days 36500
    const PEMS: [(&str, &str); 3] = [
        ("RSA 2048", include_str!("fixtures/rsa-2048.pem")),
        ("ECDSA P-256", include_str!("fixtures/ecdsa-p256.pem")),
        ("Ed25519", include_str!("fixtures/ed25519.pem")),
    ];

    #[test]
    fn kinds_of_keys_are_told() {
        let [(_, rsa), (_, ecdsa), _] = PEMS;
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let texts = [
            // The server's own comes first, those that signed it behind.
            (Some("RSA 2048"), format!("{rsa}{ecdsa}")),
            (Some("ECDSA P-256"), format!("{key}{ecdsa}{rsa}")),
            (Some("RSA 2048"), rsa.replace('\n', "\r\n")),
            (None, key.to_owned()),
            (None, ecdsa.replace("MII", "M!!")),
            (None, ecdsa.replace("-----END", "")),
            (None, "no certificate".to_owned()),
        ];
        let plain = PEMS.map(|(expected, pem)| (Some(expected), pem.to_owned()));
        for (expected, pem) in plain.into_iter().chain(texts) {
            assert_eq!(kind_in_pem(&pem).as_deref(), expected, "{pem}");
        }
    }

    proptest! {
        // Whatever the bytes are, none of them is a panic.
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..800, which in 0_usize..3) {
            let _ = kind(&bytes);
            let body = PEMS[which].1.lines().filter(|line| !line.starts_with('-')).collect::<String>();
            let mut der = STANDARD.decode(body).unwrap();
            der.truncate(cut);
            der.extend(bytes);
            let _ = kind(&der);
        }
    }
}
