//! `resource.Quantity`: amounts such as `500m`, `1.5Gi` or `12e6`, exact in decimal, printed as upstream prints them.
//!
//! A quantity is a mantissa and a power of ten. Upstream computes with unbounded integers; here a mantissa has at most 38
//! digits and further ones are rounded away, which no amount of anything reaches. Text that upstream keeps as written
//! (`1.500`, `+5Mi`) is kept here too.

use std::cmp::Ordering;
use std::fmt;

/// Which family of suffixes a quantity was written with, and is printed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `12e6`.
    DecimalExponent,
    /// `12Mi`.
    BinarySI,
    /// `12M`.
    DecimalSI,
}

/// Why a text is no quantity; Display is upstream's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not of the form at all.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number does not parse.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// An amount: `mantissa * 10^scale`.
#[derive(Debug, Clone)]
pub struct Quantity {
    mantissa: i128,
    scale: i32,
    format: Format,
    /// The value is one that upstream would hold as an unbounded decimal: it never converts to an integer.
    wide: bool,
    /// The text to print, where upstream keeps the one that was read.
    text: Option<Box<str>>,
}

const NANO: i32 = -9;
const MAX_ALLOWED: i128 = i64::MAX as i128;
/// Digits that a mantissa may have; fewer when a binary suffix is multiplied in.
const MAX_DIGITS: usize = 37;

fn pow10(exponent: u32) -> Option<i128> {
    10i128.checked_pow(exponent)
}

/// The mantissa at a smaller scale, if it fits.
fn rescale(mantissa: i128, from: i32, to: i32) -> Option<i128> {
    if mantissa == 0 {
        return Some(0);
    }
    let by = u32::try_from(from.checked_sub(to)?).ok()?;
    mantissa.checked_mul(pow10(by)?)
}

/// Divides by `10^by`, rounding away from zero; returns whether the result is exact.
fn shrink(mantissa: i128, by: u32) -> (i128, bool) {
    match pow10(by) {
        Some(divisor) => {
            let (quotient, rest) = (mantissa / divisor, mantissa % divisor);
            (quotient + rest.signum(), rest == 0)
        }
        None => (mantissa.signum(), mantissa == 0),
    }
}

/// Takes the parts of a number apart: the digits before the dot without leading zeros, those after it, the suffix.
struct Parts<'a> {
    positive: bool,
    num: &'a str,
    denom: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let (positive, rest) = match text.as_bytes() {
        [b'-', ..] => (false, &text[1..]),
        [b'+', ..] => (true, &text[1..]),
        _ => (true, text),
    };
    let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
    let rest = rest.trim_start_matches('0');
    let (mut num, rest) = rest.split_at(digits(rest));
    if num.is_empty() {
        num = "0";
    }
    let (denom, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let letters = suffix.bytes().take_while(|b| b"eEinumkKMGTP".contains(b)).count();
    let tail = &suffix[letters..];
    let tail = tail.strip_prefix(['-', '+']).unwrap_or(tail);
    if digits(tail) != tail.len() {
        return Err(QuantityError::Format);
    }
    Ok(Parts {
        positive,
        num,
        denom,
        suffix,
    })
}

/// The base, exponent and format that a suffix means.
fn interpret(suffix: &str) -> Option<(u8, i32, Format)> {
    let (base, exponent, format) = match suffix {
        "" => (10, 0, Format::DecimalSI),
        "n" => (10, -9, Format::DecimalSI),
        "u" => (10, -6, Format::DecimalSI),
        "m" => (10, -3, Format::DecimalSI),
        "k" => (10, 3, Format::DecimalSI),
        "M" => (10, 6, Format::DecimalSI),
        "G" => (10, 9, Format::DecimalSI),
        "T" => (10, 12, Format::DecimalSI),
        "P" => (10, 15, Format::DecimalSI),
        "E" => (10, 18, Format::DecimalSI),
        "Ki" => (2, 10, Format::BinarySI),
        "Mi" => (2, 20, Format::BinarySI),
        "Gi" => (2, 30, Format::BinarySI),
        "Ti" => (2, 40, Format::BinarySI),
        "Pi" => (2, 50, Format::BinarySI),
        "Ei" => (2, 60, Format::BinarySI),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            (10, exponent.parse().ok()?, Format::DecimalExponent)
        }
    };
    Some((base, exponent, format))
}

fn decimal_suffix(exponent: i32) -> &'static str {
    match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        // Upstream knows no suffix beyond and prints none.
        _ => "",
    }
}

impl Quantity {
    /// Zero, printed as `0`.
    pub const ZERO: Quantity = Quantity::from_i64(0, Format::DecimalSI);

    /// A whole number.
    pub const fn from_i64(value: i64, format: Format) -> Self {
        Quantity {
            mantissa: value as i128,
            scale: 0,
            format,
            wide: false,
            text: None,
        }
    }

    /// Thousandths.
    pub const fn from_milli(value: i64, format: Format) -> Self {
        Quantity {
            mantissa: value as i128,
            scale: -3,
            format,
            wide: false,
            text: None,
        }
    }

    /// Reads a quantity. Surrounding white space is not taken: decoders trim it.
    ///
    /// # Errors
    /// One of upstream's three.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let Parts {
            positive,
            num,
            denom,
            suffix,
        } = split(text)?;
        let (base, exponent, format) = interpret(suffix).ok_or(QuantityError::Suffix)?;
        let length = num.len() + denom.len();
        // Upstream's two ways differ in what they keep and cap, so the choice between them is part of the behaviour.
        let fast = match format {
            Format::BinarySI => denom.is_empty() && 15 - num.len() as i64 - i64::from(exponent * 3 / 10) > 0,
            Format::DecimalExponent | Format::DecimalSI => length <= 18,
        };
        let dot = i32::try_from(denom.len()).map_err(|_| QuantityError::Numeric)?;
        let scale = if base == 10 {
            exponent.saturating_sub(dot)
        } else {
            -dot
        };
        if fast && scale >= NANO {
            let digits = [num, denom].concat();
            let value: i64 = digits.parse().map_err(|_| QuantityError::Numeric)?;
            let factor = if base == 2 { 1i128 << exponent } else { 1 };
            let mantissa = i128::from(value) * factor;
            if i64::try_from(mantissa).is_ok() {
                let keep = match format {
                    Format::BinarySI => value & 7 != 0,
                    _ => scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0'),
                };
                return Ok(Quantity {
                    mantissa: if positive { mantissa } else { -mantissa },
                    scale,
                    format,
                    wide: false,
                    text: keep.then(|| text.into()),
                });
            }
        }
        Ok(Self::parse_wide(positive, num, denom, base, exponent, format))
    }

    fn parse_wide(
        positive: bool,
        num: &str,
        denom: &str,
        base: u8,
        exponent: i32,
        mut format: Format,
    ) -> Self {
        let suffix_digits = if base == 2 { exponent * 3 / 10 } else { 0 };
        let max = MAX_DIGITS - usize::try_from(suffix_digits).unwrap_or(0);
        let (mut mantissa, mut dropped, mut lost) = (0i128, 0i32, false);
        let mut used = 0;
        for digit in num.bytes().chain(denom.bytes()) {
            let digit = i128::from(digit - b'0');
            if used < max {
                mantissa = mantissa * 10 + digit;
                used += usize::from(mantissa != 0);
            } else {
                dropped = dropped.saturating_add(1);
                lost |= digit != 0;
            }
        }
        mantissa += i128::from(lost);
        let dot = i32::try_from(denom.len()).unwrap_or(i32::MAX);
        let mut scale = dropped.saturating_sub(dot);
        if base == 10 {
            scale = scale.saturating_add(exponent);
        } else {
            mantissa <<= exponent;
        }
        if scale < NANO {
            (mantissa, _) = shrink(mantissa, NANO.abs_diff(scale));
            scale = NANO;
        }
        if format == Format::BinarySI {
            let over = |limit: i128| compare(mantissa, scale, limit, 0);
            if over(MAX_ALLOWED).is_gt() {
                (mantissa, scale) = (MAX_ALLOWED, 0);
            } else if mantissa > 0 && over(1).is_lt() {
                format = Format::DecimalSI;
            }
        }
        Quantity {
            mantissa: if positive { mantissa } else { -mantissa },
            scale,
            format,
            wide: true,
            text: None,
        }
    }

    /// How it is printed.
    pub fn format(&self) -> Format {
        self.format
    }

    /// -1, 0 or 1.
    pub fn signum(&self) -> i32 {
        match self.mantissa.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// The integer, where upstream's quick conversion gives one (`1`, `1k`, `1Gi`; not `1000m`).
    pub fn as_i64(&self) -> Option<i64> {
        if self.wide || self.scale < 0 {
            return None;
        }
        i64::try_from(rescale(self.mantissa, self.scale, 0)?).ok()
    }

    /// The value at `10^scale`, rounded away from zero, at most what an `i64` holds.
    pub fn scaled_value(&self, scale: i32) -> i64 {
        let value = if self.scale < scale {
            Some(shrink(self.mantissa, scale.abs_diff(self.scale)).0)
        } else {
            rescale(self.mantissa, self.scale, scale)
        };
        let bound = if self.mantissa < 0 { i64::MIN } else { i64::MAX };
        value.and_then(|v| i64::try_from(v).ok()).unwrap_or(bound)
    }

    /// The value rounded to a whole number, away from zero.
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// The value in thousandths, rounded away from zero.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(-3)
    }

    /// The nearest float.
    pub fn as_f64(&self) -> f64 {
        // Going through text rounds once, correctly.
        format!("{}e{}", self.mantissa, self.scale)
            .parse()
            .unwrap_or(f64::NAN)
    }

    /// Whether it is a multiple of `10^scale` (`-3`: no more than three decimals).
    pub fn fits_scale(&self, scale: i32) -> bool {
        self.scale >= scale || shrink(self.mantissa, scale.abs_diff(self.scale)).1
    }

    /// The sum. Zero takes the other's format.
    #[must_use]
    pub fn add(&self, other: &Quantity) -> Quantity {
        self.combine(other, 1)
    }

    /// The difference. Zero takes the other's format.
    #[must_use]
    pub fn sub(&self, other: &Quantity) -> Quantity {
        self.combine(other, -1)
    }

    /// The product with a whole number.
    #[must_use]
    pub fn mul(&self, by: i64) -> Quantity {
        let bound = i128::MAX * i128::from(self.mantissa.signum() as i64 * by.signum());
        Quantity {
            mantissa: self.mantissa.checked_mul(by.into()).unwrap_or(bound),
            text: None,
            ..self.clone()
        }
    }

    /// The same amount below zero, or above it.
    #[must_use]
    pub fn neg(&self) -> Quantity {
        Quantity {
            mantissa: -self.mantissa,
            text: None,
            ..self.clone()
        }
    }

    fn combine(&self, other: &Quantity, sign: i128) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        let scale = match (self.is_zero(), other.is_zero()) {
            (true, false) => other.scale,
            (false, true) => self.scale,
            _ => self.scale.min(other.scale),
        };
        let sum = rescale(self.mantissa, self.scale, scale).and_then(|a| {
            let b = rescale(other.mantissa, other.scale, scale)?;
            a.checked_add(sign * b)
        });
        // Where the two do not fit one mantissa, the smaller is beyond the larger's precision.
        let (mantissa, scale) = match sum {
            Some(mantissa) => (mantissa, scale),
            None if self.scale >= other.scale => (self.mantissa, self.scale),
            None => (sign * other.mantissa, other.scale),
        };
        let wide = self.wide || other.wide || i64::try_from(mantissa).is_err();
        Quantity {
            mantissa,
            scale,
            format,
            wide,
            text: None,
        }
    }

    fn write_decimal(&self, f: &mut fmt::Formatter<'_>, format: Format) -> fmt::Result {
        let (mut amount, mut exponent) = (self.mantissa, self.scale);
        while amount % 10 == 0 {
            amount /= 10;
            exponent = exponent.saturating_add(1);
        }
        let over = exponent.rem_euclid(3);
        for _ in 0..over {
            amount = amount.saturating_mul(10);
        }
        exponent -= over;
        match format {
            Format::DecimalExponent if exponent == 0 => write!(f, "{amount}"),
            Format::DecimalExponent => write!(f, "{amount}e{exponent}"),
            _ => write!(f, "{amount}{}", decimal_suffix(exponent)),
        }
    }
}

fn compare(a: i128, a_scale: i32, b: i128, b_scale: i32) -> Ordering {
    let sign = a.signum().cmp(&b.signum());
    if sign.is_ne() || a == 0 {
        return sign;
    }
    let scale = a_scale.min(b_scale);
    match (rescale(a, a_scale, scale), rescale(b, b_scale, scale)) {
        (Some(a), Some(b)) => a.cmp(&b),
        // The one that does not fit is the larger in magnitude.
        (None, _) => 0.cmp(&a).reverse(),
        (_, None) => 0.cmp(&b),
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self.mantissa, self.scale, other.mantissa, other.scale)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.mantissa == 0 {
            return f.write_str("0");
        }
        if self.format != Format::BinarySI {
            return self.write_decimal(f, self.format);
        }
        let small = compare(self.mantissa.abs(), self.scale, 1024, 0).is_lt();
        let whole = if self.scale >= 0 {
            rescale(self.mantissa, self.scale, 0)
        } else {
            let (value, exact) = shrink(self.mantissa, self.scale.unsigned_abs());
            exact.then_some(value)
        };
        let Some(mut amount) = whole.filter(|_| !small) else {
            return self.write_decimal(f, Format::DecimalSI);
        };
        let mut power = 0;
        while amount % 1024 == 0 {
            amount /= 1024;
            power += 1;
        }
        let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(power).unwrap_or(&"");
        write!(f, "{amount}{suffix}")
    }
}

impl std::str::FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[test]
    fn canonical_text() {
        for (text, expected) in [
            ("0", "0"),
            ("00", "0"),
            ("0Ki", "0"),
            ("-0", "0"),
            ("1.5", "1500m"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1.500", "1.500"),
            ("0.500", "500m"),
            ("1000", "1k"),
            ("1000m", "1"),
            ("1024Ki", "1Mi"),
            ("1025Ki", "1025Ki"),
            ("1024", "1024"),
            ("8Ki", "8Ki"),
            ("0.5Ki", "512"),
            ("0.1Ki", "102400m"),
            ("1Ei", "1Ei"),
            ("9Ei", "9223372036854775807"),
            ("-9Ei", "-9223372036854775807"),
            ("1e3", "1e3"),
            ("1E3", "1E3"),
            ("1e2", "100"),
            ("12e6", "12e6"),
            ("5e-1", "500e-3"),
            ("0.1n", "1n"),
            ("0.0000000001", "1n"),
            ("1.1n", "2n"),
            ("100000", "100k"),
            ("+5Mi", "+5Mi"),
            ("05", "05"),
            ("-1.5", "-1500m"),
            ("1.G", "1.G"),
            (".5", "500m"),
            ("3.14159", "3141590u"),
            ("10000000000000000000000", "10"),
            ("1e-1000000000", "1e-9"),
            ("12345678901234567890", "12345678901234567890"),
        ] {
            assert_eq!(q(text).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn errors() {
        for (text, expected) in [
            ("", QuantityError::Format),
            ("a", QuantityError::Format),
            ("1.2.3", QuantityError::Format),
            ("1 ", QuantityError::Format),
            ("1mi", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("1KiB", QuantityError::Format),
            ("1e99999999999999999999", QuantityError::Suffix),
            ("1K", QuantityError::Suffix),
            ("ä", QuantityError::Format),
        ] {
            assert_eq!(Quantity::parse(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn arithmetic() {
        for (a, b, sum, difference) in [
            ("1", "500m", "1500m", "500m"),
            ("1Gi", "1Mi", "1025Mi", "1023Mi"),
            ("0", "1Gi", "1Gi", "-1Gi"),
            ("1Gi", "1Gi", "2Gi", "0"),
            ("100m", "1Ki", "1024100m", "-1023900m"),
        ] {
            assert_eq!(q(a).add(&q(b)).to_string(), sum, "{a}+{b}");
            assert_eq!(q(a).sub(&q(b)).to_string(), difference, "{a}-{b}");
        }
        assert_eq!(q("3Gi").mul(2).to_string(), "6Gi");
    }

    #[test]
    fn order() {
        for (a, b, expected) in [
            ("1", "1000m", Ordering::Equal),
            ("1Gi", "1G", Ordering::Greater),
            ("-1", "1n", Ordering::Less),
            ("1e900", "1e899", Ordering::Greater),
            ("-1e900", "-1", Ordering::Less),
            ("1", "1e900", Ordering::Less),
            ("0", "0Ki", Ordering::Equal),
        ] {
            assert_eq!(q(a).cmp(&q(b)), expected, "{a} {b}");
            assert_eq!(q(b).cmp(&q(a)), expected.reverse(), "{b} {a}");
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(q("1500m").value(), 2);
        assert_eq!(q("-1500m").value(), -2);
        assert_eq!(q("1.5Gi").value(), 1_610_612_736);
        assert_eq!(q("2").milli_value(), 2000);
        assert_eq!(q("1k").as_i64(), Some(1000));
        assert_eq!(q("1000m").as_i64(), None);
        assert_eq!(q("1500m").as_f64(), 1.5);
        assert!(!q("1.0005").fits_scale(-3));
        assert_eq!(q("1e30").value(), i64::MAX);
    }
}
