//! Timestamps and durations: Go's formats, and the parts of a date.

use time::{OffsetDateTime, UtcOffset};

use super::{Function, Ret, no_overload};
use crate::{error::EvalError, value::Val};

/// `timestamp + nanoseconds`, within the years 1 to 9999.
pub(crate) fn shift<'a>(at: OffsetDateTime, nanos: i64) -> Ret<'a> {
    let overflow = || EvalError::fixed("timestamp overflow");
    let shifted = at
        .checked_add(time::Duration::nanoseconds(nanos))
        .ok_or_else(overflow)?;
    if (1..=9999).contains(&shifted.to_offset(UtcOffset::UTC).year()) {
        Ok(Val::Timestamp(shifted))
    } else {
        Err(overflow())
    }
}

/// The timestamp of seconds since the epoch.
pub(crate) fn from_unix<'a>(seconds: i64) -> Ret<'a> {
    match OffsetDateTime::from_unix_timestamp(seconds) {
        Ok(at) if (1..=9999).contains(&at.year()) => Ok(Val::Timestamp(at)),
        _ => Err(EvalError::fixed("timestamp overflow")),
    }
}

pub(super) fn implementation(name: &str) -> Option<Function> {
    Some(match name {
        "getFullYear" => |args| part("getFullYear", args, |at| at.year().into(), None),
        "getMonth" => |args| part("getMonth", args, |at| i64::from(u8::from(at.month())) - 1, None),
        "getDayOfYear" => |args| part("getDayOfYear", args, |at| i64::from(at.ordinal()) - 1, None),
        "getDayOfMonth" => |args| part("getDayOfMonth", args, |at| i64::from(at.day()) - 1, None),
        "getDate" => |args| part("getDate", args, |at| at.day().into(), None),
        "getDayOfWeek" => |args| {
            part(
                "getDayOfWeek",
                args,
                |at| at.weekday().number_days_from_sunday().into(),
                None,
            )
        },
        "getHours" => |args| part("getHours", args, |at| at.hour().into(), Some(3_600_000_000_000)),
        "getMinutes" => |args| part("getMinutes", args, |at| at.minute().into(), Some(60_000_000_000)),
        "getSeconds" => |args| part("getSeconds", args, |at| at.second().into(), Some(1_000_000_000)),
        "getMilliseconds" => |args| {
            part(
                "getMilliseconds",
                args,
                |at| at.millisecond().into(),
                Some(1_000_000),
            )
        },
        _ => return None,
    })
}

/// A part of a timestamp, in UTC or a given zone, or a duration in whole units.
fn part<'a>(name: &str, args: &[Val<'a>], of: fn(OffsetDateTime) -> i64, unit: Option<i64>) -> Ret<'a> {
    match (args, unit) {
        ([Val::Duration(nanos)], Some(unit)) => Ok(Val::Int(nanos / unit)),
        ([Val::Timestamp(at)], _) => Ok(Val::Int(of(at.to_offset(UtcOffset::UTC)))),
        ([Val::Timestamp(at), Val::String(zone)], _) => Ok(Val::Int(of(in_zone(*at, zone)?))),
        _ => no_overload(name, args),
    }
}

fn in_zone(at: OffsetDateTime, zone: &str) -> Result<OffsetDateTime, EvalError> {
    let unknown = || EvalError::new(format!("unknown time zone {zone}"));
    let Some((hours, minutes)) = zone.split_once(':') else {
        if matches!(zone, "" | "UTC" | "Etc/UTC" | "GMT") {
            return Ok(at.to_offset(UtcOffset::UTC));
        }
        return Err(unknown());
    };
    let number = |text: &str| {
        text.parse::<i32>()
            .map_err(|_| EvalError::new(format!("strconv.Atoi: parsing \"{text}\": invalid syntax")))
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let minutes = if zone.starts_with('-') {
        hours * 60 - minutes
    } else {
        hours * 60 + minutes
    };
    let offset = UtcOffset::from_whole_seconds(minutes.saturating_mul(60)).map_err(|_| unknown())?;
    at.checked_to_offset(offset).ok_or_else(unknown)
}
