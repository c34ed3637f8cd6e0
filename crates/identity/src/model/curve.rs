//! The check that the point of an ECDSA key is on its curve (SEC 1 section 3.2.2.1, with the constants of SEC 2).
//!
//! `ssh-key` parses a point without the check, and `ring` has no P-521. The cofactor of these curves is 1, so every
//! point on the curve except infinity, which has another encoding, is a valid public key.

use num_bigint::BigUint;
use ssh_key::EcdsaCurve;

/// A curve y² = x³ − 3x + b over the integers modulo the prime p. The words of p and b are in big-endian order.
struct Curve {
    p: &'static [u32],
    b: &'static [u32],
}

const MAX: u32 = u32::MAX;

const P256: Curve = Curve {
    p: &[MAX, 1, 0, 0, 0, MAX, MAX, MAX],
    b: &[0x5ac6_35d8, 0xaa3a_93e7, 0xb3eb_bd55, 0x7698_86bc, 0x651d_06b0, 0xcc53_b0f6, 0x3bce_3c3e, 0x27d2_604b],
};

const P384: Curve = Curve {
    p: &[MAX, MAX, MAX, MAX, MAX, MAX, MAX, MAX - 1, MAX, 0, 0, MAX],
    b: &[
        0xb331_2fa7,
        0xe23e_e7e4,
        0x988e_056b,
        0xe3f8_2d19,
        0x181d_9c6e,
        0xfe81_4112,
        0x0314_088f,
        0x5013_875a,
        0xc656_398d,
        0x8a2e_d19d,
        0x2a85_c8ed,
        0xd3ec_2aef,
    ],
};

const P521: Curve = Curve {
    p: &[0x1ff, MAX, MAX, MAX, MAX, MAX, MAX, MAX, MAX, MAX, MAX, MAX, MAX, MAX, MAX, MAX, MAX],
    b: &[
        0x0051,
        0x953e_b961,
        0x8e1c_9a1f,
        0x929a_21a0,
        0xb685_40ee,
        0xa2da_725b,
        0x99b3_15f3,
        0xb8b4_8991,
        0x8ef1_09e1,
        0x5619_3951,
        0xec7e_937b,
        0x1652_c0bd,
        0x3bb1_bf07,
        0x3573_df88,
        0x3d2c_34f1,
        0xef45_1fd4,
        0x6b50_3f00,
    ],
};

/// Returns whether the coordinates, in big-endian order, are those of a point on the curve.
pub(super) fn is_on_curve(curve: EcdsaCurve, x: &[u8], y: &[u8]) -> bool {
    let Curve { p, b } = match curve {
        EcdsaCurve::NistP256 => P256,
        EcdsaCurve::NistP384 => P384,
        EcdsaCurve::NistP521 => P521,
    };
    let (p, b) = (from_words(p), from_words(b));
    let (x, y) = (BigUint::from_bytes_be(x), BigUint::from_bytes_be(y));
    // A coordinate of p or more would be a second encoding of the same point.
    x < p && y < p && (&y * &y + 3u32 * &x) % &p == (&x * &x * &x + b) % &p
}

fn from_words(words: &[u32]) -> BigUint {
    BigUint::new(words.iter().rev().copied().collect())
}
