//! Resource quantities (`1.5Gi`) and, because the functions share names, dispatch to semantic versions.

/// An amount in billionths, the finest a quantity can be. Amounts beyond about 1.7e29 are capped.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    pub(crate) nanos: i128,
    /// Value and decimal scale, while upstream keeps the amount in 64 bits; only such amounts can be integers.
    small: Option<(i64, i32)>,
}

const MALFORMED: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Powers of ten and two a suffix stands for.
pub(crate) fn suffix(text: &str) -> Option<(u32, i32)> {
    Some(match text {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        _ => {
            let exponent = text.strip_prefix(['e', 'E'])?;
            let exponent: i32 = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
            (10, exponent)
        }
    })
}

pub(crate) fn pow10(exponent: u32) -> i128 {
    10i128.checked_pow(exponent).unwrap_or(i128::MAX)
}

/// Parses a quantity. The error is upstream's.
pub(crate) fn parse(text: &str) -> Result<Quantity, &'static str> {
    let (negative, body) = match text.as_bytes().first() {
        None => return Err(MALFORMED),
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) => (false, text),
    };
    let end = body.find(|c: char| !c.is_ascii_digit()).unwrap_or(body.len());
    let (whole, rest) = body.split_at(end);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let letters = rest
        .find(|c: char| !"eEinumkKMGTP".contains(c))
        .unwrap_or(rest.len());
    let tail = rest[letters..]
        .strip_prefix(['-', '+'])
        .unwrap_or(&rest[letters..]);
    if !tail.bytes().all(|b| b.is_ascii_digit()) {
        return Err(MALFORMED);
    }
    if whole.is_empty() && fraction.is_empty() && !rest.is_empty() && text.len() == rest.len() {
        // Letters alone: the number is missing.
        return if suffix(rest).is_some() {
            Err("unable to parse numeric part of quantity")
        } else {
            Err("unable to parse quantity's suffix")
        };
    }
    let (base, exponent) = suffix(rest).ok_or("unable to parse quantity's suffix")?;
    let whole = whole.trim_start_matches('0');
    amount(whole, fraction, base, exponent, negative)
}

pub(crate) fn amount(
    whole: &str,
    fraction: &str,
    base: u32,
    exponent: i32,
    negative: bool,
) -> Result<Quantity, &'static str> {
    let digits = format!("{whole}{fraction}");
    let signed = |value: i128| if negative { -value } else { value };
    let small = small(&digits, whole, fraction, base, exponent)
        .map(|(value, scale)| (if negative { -value } else { value }, scale));
    // Digits times 10^(9 - fraction digits), times the suffix.
    let mut power = 9 - fraction.len() as i32;
    let mut value: i128 = digits.bytes().fold(0i128, |value, digit| {
        value.saturating_mul(10).saturating_add(i128::from(digit - b'0'))
    });
    if base == 2 {
        value = value.saturating_mul(1i128 << exponent);
    } else {
        power = power.saturating_add(exponent);
    }
    let nanos = if power >= 0 {
        value.saturating_mul(pow10(power.unsigned_abs()))
    } else {
        let divisor = pow10(power.unsigned_abs());
        // Amounts finer than a billionth round up.
        value / divisor + i128::from(value % divisor != 0)
    };
    Ok(Quantity {
        nanos: signed(nanos),
        small,
    })
}

/// The 64-bit form, under the conditions upstream keeps it.
pub(crate) fn small(
    digits: &str,
    whole: &str,
    fraction: &str,
    base: u32,
    exponent: i32,
) -> Option<(i64, i32)> {
    let length = (whole.len().max(1) + fraction.len()) as i32;
    let (mantissa, precision, scale) = match base {
        10 => (1i64, 18 - length, exponent),
        _ if fraction.is_empty() => (
            1i64.checked_shl(exponent.unsigned_abs())?,
            15 - whole.len().max(1) as i32 - exponent * 3 / 10 - 1,
            0,
        ),
        _ => return None,
    };
    let scale = scale - fraction.len() as i32;
    if precision < 0 || scale < -9 {
        return None;
    }
    let value: i64 = if digits.is_empty() {
        0
    } else {
        digits.parse().ok()?
    };
    Some((value.checked_mul(mantissa)?, scale))
}

impl Quantity {
    pub(crate) fn integer(&self) -> Option<i64> {
        let (value, scale) = self.small?;
        let factor = 10i64.checked_pow(u32::try_from(scale).ok()?)?;
        value.checked_mul(factor)
    }

    pub(crate) fn float(&self) -> f64 {
        match self.small {
            Some((value, scale)) => value as f64 * 10f64.powi(scale),
            None => self.nanos as f64 / 1e9,
        }
    }

    pub(crate) fn plus(&self, other: &Quantity, sign: i64) -> Quantity {
        let small = self
            .small
            .zip(other.small)
            .and_then(|((a, a_scale), (b, b_scale))| {
                let scale = a_scale.min(b_scale);
                let scaled = |value: i64, from: i32| {
                    value.checked_mul(10i64.checked_pow(u32::try_from(from - scale).ok()?)?)
                };
                let sum = scaled(a, a_scale)?.checked_add(scaled(b, b_scale)?.checked_mul(sign)?)?;
                Some((sum, scale))
            });
        let nanos = self.nanos.saturating_add(other.nanos.saturating_mul(sign.into()));
        Quantity { nanos, small }
    }

    pub(crate) fn of(value: i64) -> Quantity {
        Quantity {
            nanos: i128::from(value) * 1_000_000_000,
            small: Some((value, 0)),
        }
    }
}
