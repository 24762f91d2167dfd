//! What a network card agreed on with its other side, and what both could do.
//!
//! Facts: Documentation/networking/ethtool-netlink.rst (`ETHTOOL_MSG_LINKMODES_GET`, Linux 5.6; no rights are needed),
//! include/uapi/linux/{ethtool_netlink,genetlink,ethtool}.h. Link modes come by name, such as `1000baseT/Full`, so that
//! modes of later kernels are understood.

use crate::os::netlink::{attribute, attributes, dump, encoded, get, text, u16_at, u32_at};
use netlink_sys::protocols::NETLINK_GENERIC;
use std::io;

/// `GENL_ID_CTRL`, which tells the number of a family: `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_NAME` and `_ID`.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_NAME: u16 = 2;
const FAMILY_ID: u16 = 1;

/// `ETHTOOL_MSG_LINKMODES_GET` and its attributes.
const LINKMODES_GET: u8 = 4;
const HEADER: u16 = 1;
const AUTONEGOTIATION: u16 = 2;
const OURS: u16 = 3;
const PEER: u16 = 4;
const SPEED: u16 = 5;
const DUPLEX: u16 = 6;

/// Generic netlink puts command, version and two unused bytes before the attributes.
const GENERIC_LEN: usize = 4;

/// A link as the card tells it. What it does not tell is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Agreed {
    /// The number of its interface.
    pub index: i32,
    /// The speed in use, in bits per second.
    pub speed_bits_per_s: Option<f64>,
    /// Whether both sides send at the same time.
    pub is_full_duplex: Option<bool>,
    /// Whether the two sides agree by themselves.
    pub negotiates: Option<bool>,
    /// The highest speed that the card supports.
    pub supported_bits_per_s: Option<f64>,
    /// The highest speed that the other side offers.
    pub partner_bits_per_s: Option<f64>,
}

/// All interfaces of this network namespace whose driver tells.
pub(crate) fn all() -> io::Result<Vec<Agreed>> {
    let name = [vec![GET_FAMILY, 1, 0, 0], encoded(FAMILY_NAME, b"ethtool\0")].concat();
    let answer = get(NETLINK_GENERIC, CONTROL, &name)?;
    let family = attribute(answer.get(GENERIC_LEN..).unwrap_or_default(), FAMILY_ID);
    let family = family.and_then(|id| u16_at(id, 0)).ok_or(io::ErrorKind::Unsupported)?;
    // NLA_F_NESTED: newer kernels insist.
    let request = [vec![LINKMODES_GET, 1, 0, 0], encoded(HEADER | 0x8000, &[])].concat();
    let mut found = vec![];
    dump(NETLINK_GENERIC, family, &request, |body| found.extend(parse(body)))?;
    Ok(found)
}

fn parse(body: &[u8]) -> Option<Agreed> {
    let mut agreed = Agreed::default();
    for (kind, value) in attributes(body.get(GENERIC_LEN..)?) {
        match kind {
            // ETHTOOL_A_HEADER_DEV_INDEX 1.
            HEADER => agreed.index = i32::try_from(u32_at(attribute(value, 1)?, 0)?).ok()?,
            AUTONEGOTIATION => agreed.negotiates = value.first().map(|&byte| byte == 1),
            OURS => agreed.supported_bits_per_s = fastest(value),
            PEER => agreed.partner_bits_per_s = fastest(value),
            SPEED => agreed.speed_bits_per_s = u32_at(value, 0).and_then(bits_per_s),
            // 0 half, 1 full, 255 unknown.
            DUPLEX => agreed.is_full_duplex = value.first().filter(|&&byte| byte < 2).map(|&byte| byte == 1),
            _ => {}
        }
    }
    (agreed.index != 0).then_some(agreed)
}

/// A speed in Mb/s; 0 and `SPEED_UNKNOWN` are none.
fn bits_per_s(megabits: u32) -> Option<f64> {
    (megabits != 0 && megabits != u32::MAX).then(|| f64::from(megabits) * 1e6)
}

/// The fastest mode of a bit set: `ETHTOOL_A_BITSET_BITS` 3 of `_BIT` 1 with `_NAME` 2. In the set of our modes all
/// supported ones are named, advertised or not.
fn fastest(bit_set: &[u8]) -> Option<f64> {
    let bits = attributes(attribute(bit_set, 3)?).filter(|(kind, _)| *kind == 1);
    let names = bits.filter_map(|(_, bit)| attribute(bit, 2)).map(text);
    names.filter_map(|name| mode_speed(&name)).reduce(f64::max)
}

/// The speed in the name of a mode: `1000baseT/Full`. Names of ports and pauses have none.
fn mode_speed(name: &str) -> Option<f64> {
    name.split_once("base").and_then(|(megabits, _)| bits_per_s(megabits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bit_set(names: &[&str]) -> Vec<u8> {
        let bit = |name: &&str| encoded(1, &encoded(2, format!("{name}\0").as_bytes()));
        encoded(3, &names.iter().map(bit).collect::<Vec<_>>().concat())
    }

    fn message(speed: u32, duplex: u8, ours: &[&str], peer: &[&str]) -> Vec<u8> {
        let attributes = [
            encoded(HEADER, &encoded(1, &7u32.to_ne_bytes())),
            encoded(AUTONEGOTIATION, &[1]),
            encoded(OURS, &bit_set(ours)),
            encoded(PEER, &bit_set(peer)),
            encoded(SPEED, &speed.to_ne_bytes()),
            encoded(DUPLEX, &[duplex]),
        ];
        [vec![LINKMODES_GET, 1, 0, 0], attributes.concat()].concat()
    }

    #[test]
    fn a_slow_link_of_a_fast_card_is_told() {
        let ours = ["10baseT/Half", "Autoneg", "TP", "1000baseT/Full", "Pause", "100baseT/Full"];
        let agreed = parse(&message(100, 0, &ours, &["10baseT/Full", "100baseT/Half"])).unwrap();
        let expected = Agreed {
            index: 7,
            speed_bits_per_s: Some(1e8),
            is_full_duplex: Some(false),
            negotiates: Some(true),
            supported_bits_per_s: Some(1e9),
            partner_bits_per_s: Some(1e8),
        };
        assert_eq!(agreed, expected);
        let unknown = parse(&message(u32::MAX, 255, &[], &[])).unwrap();
        assert_eq!(unknown, Agreed { index: 7, negotiates: Some(true), ..Agreed::default() });
    }

    #[test]
    fn names_of_modes_tell_their_speed() {
        for (name, expected) in [
            ("10000baseKR/Full", Some(1e10)),
            ("2500baseX/Full", Some(2.5e9)),
            ("Backplane", None),
            ("baseT", None),
            ("-5baseT", None),
        ] {
            assert_eq!(mode_speed(name), expected, "{name}");
        }
    }

    proptest! {
        // Torn and strange messages give less, never a panic.
        #[test]
        fn any_message_is_survived(cut in 0usize..200, noise in prop::collection::vec(any::<u8>(), 0..120)) {
            let whole = message(100, 1, &["10baseT/Full"], &[]);
            parse(&whole[..cut.min(whole.len())]);
            parse(&noise);
            fastest(&noise);
        }
    }
}
