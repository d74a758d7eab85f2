//! CronJob.

use generic_server::registry::strategy::MetadataRules;
use machinery::{FieldPath, meta};
use serde_json::Value;

use super::job;
use crate::errors::Errors;
use crate::groups::core::pod_spec::drop_disabled_at;
use crate::groups::core::pod_template::{is_changed, name_warning};
use crate::json::Json;
use crate::rules::Rules;

/// The names of the tz database, one a line.
const TIME_ZONES: &str = include_str!("time_zones.txt");

pub(crate) static RULES: Rules = Rules {
    drop_disabled: |features, object, old| {
        drop_disabled_at(features, "spec.jobTemplate.spec.template.spec", object, old)
    },
    metadata: MetadataRules::CREATE,
    status_metadata: Some(MetadataRules::NONE),
    status: true,
    generation: &["spec"],
    default: |object| {
        let spec = object.ensure("spec");
        spec.fill_text("concurrencyPolicy", "Allow");
        spec.fill("suspend", false);
        spec.fill("successfulJobsHistoryLimit", 3);
        spec.fill("failedJobsHistoryLimit", 1);
        let template = spec.ensure("jobTemplate");
        template.ensure("metadata");
        job::default_template_of(template.ensure("spec"));
        object.ensure("status");
    },
    validate: |errors, object| {
        validate(errors, object, &Value::Null);
        let name = meta::name(object);
        if name.len() > 52 {
            errors.invalid(
                &FieldPath::new("metadata.name"),
                name,
                "must be no more than 52 characters",
            );
        }
    },
    validate_update: validate,
    warnings: |object, old| {
        let mut out = Vec::new();
        if old.is_null() {
            out.extend(name_warning(object));
        }
        let path = "spec.jobTemplate.spec";
        if is_changed(object, old) {
            out.extend(job::spec_warnings(path, object.dig(path)));
        }
        if !old.is_null() && object.text("spec.schedule").contains("TZ") {
            out.push("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".into());
        }
        out
    },
    ..Rules::PLAIN
};

fn validate(errors: &mut Errors, object: &Value, old: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    let schedule = spec.text("schedule");
    let at = path.child("schedule");
    if schedule.is_empty() {
        errors.required(&at, "");
    } else {
        if let Err(why) = parse_schedule(schedule) {
            errors.invalid(&at, schedule, why);
        }
        let zoned = schedule.contains("TZ");
        if zoned && spec.has("timeZone") {
            errors.invalid(
                &at,
                schedule,
                "cannot use both timeZone field and TZ or CRON_TZ in schedule",
            );
        } else if zoned && !old.text("spec.schedule").contains("TZ") {
            errors.invalid(
                &at,
                schedule,
                "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
            );
        }
    }
    errors.non_negative(
        &path.child("startingDeadlineSeconds"),
        spec.int("startingDeadlineSeconds"),
    );
    if let Some(zone) = spec.dig("timeZone").as_str() {
        time_zone(errors, &path.child("timeZone"), zone);
    }
    errors.required_one_of(
        &path.child("concurrencyPolicy"),
        spec.text("concurrencyPolicy"),
        &["Allow", "Forbid", "Replace"],
    );
    let template = path.child("jobTemplate");
    let job_spec = template.child("spec");
    let body = spec.dig("jobTemplate.spec");
    if body.flag("manualSelector") {
        errors.unsupported(&job_spec.child("manualSelector"), "true", &["nil", "false"]);
    }
    job::validate_spec(errors, &job_spec, body, false);
    if body.has("selector") {
        errors.invalid_value(
            &job_spec.child("selector"),
            body.dig("selector"),
            "`selector` will be auto-generated",
        );
    }
    for key in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.non_negative(&path.child(key), spec.int(key));
    }
}

fn time_zone(errors: &mut Errors, path: &FieldPath<'_>, zone: &str) {
    if zone.is_empty() {
        return errors.invalid(path, zone, "timeZone must be nil or non-empty string");
    }
    if zone.eq_ignore_ascii_case("local") {
        return errors.invalid(
            path,
            zone,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        );
    }
    if !TIME_ZONES.lines().any(|known| known == zone) {
        errors.invalid(path, zone, format!("unknown time zone {zone}"));
    }
}

/// A field of a schedule: its bounds and the names its values go by.
struct Bounds {
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds {
        low: 0,
        high: 59,
        names: &[],
    },
    Bounds {
        low: 0,
        high: 23,
        names: &[],
    },
    Bounds {
        low: 1,
        high: 31,
        names: &[],
    },
    Bounds {
        low: 1,
        high: 12,
        names: &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    },
    Bounds {
        low: 0,
        high: 6,
        names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    },
];

/// Whether a text is a standard cron schedule; the error is the text of the library that upstream uses.
fn parse_schedule(text: &str) -> Result<(), String> {
    let mut text = text;
    if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
        text = text
            .split_once(' ')
            .map(|(_, rest)| rest.trim())
            .unwrap_or_default();
    }
    if let Some(every) = text.strip_prefix("@every ") {
        return machinery::time::GoDuration::parse(every)
            .map(|_| ())
            .map_err(|why| format!("failed to parse duration {text}: {why}"));
    }
    if text.starts_with('@') {
        return match text {
            "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
            _ => Err(format!("unrecognized descriptor: {text}")),
        };
    }
    let parts: Vec<&str> = text.split_whitespace().collect();
    if parts.len() != 5 {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            parts.len(),
            parts.join(" ")
        ));
    }
    for (part, bounds) in parts.iter().zip(&FIELDS) {
        for range in part.split(',').filter(|r| !r.is_empty()) {
            parse_range(range, bounds)?;
        }
    }
    Ok(())
}

fn parse_range(range: &str, bounds: &Bounds) -> Result<(), String> {
    let steps: Vec<&str> = range.split('/').collect();
    let ends: Vec<&str> = steps[0].split('-').collect();
    let number = |text: &str| -> Result<u32, String> {
        let lower = text.to_lowercase();
        if let Some(at) = bounds.names.iter().position(|name| *name == lower) {
            return Ok(bounds.low + u32::try_from(at).unwrap_or_default());
        }
        if text.starts_with('-') {
            return Err(format!("negative number ({text}) not allowed: {text}"));
        }
        text.parse().map_err(|_| {
            format!("failed to parse int from {text}: strconv.Atoi: parsing \"{text}\": invalid syntax")
        })
    };
    let (start, mut end) = if matches!(ends[0], "*" | "?") {
        (bounds.low, bounds.high)
    } else {
        let start = number(ends[0])?;
        match ends.len() {
            1 => (start, start),
            2 => (start, number(ends[1])?),
            _ => return Err(format!("too many hyphens: {range}")),
        }
    };
    let step = match steps.len() {
        1 => 1,
        2 => {
            let step = number(steps[1])?;
            if ends.len() == 1 {
                end = bounds.high;
            }
            step
        }
        _ => return Err(format!("too many slashes: {range}")),
    };
    if start < bounds.low {
        return Err(format!(
            "beginning of range ({start}) below minimum ({}): {range}",
            bounds.low
        ));
    }
    if end > bounds.high {
        return Err(format!(
            "end of range ({end}) above maximum ({}): {range}",
            bounds.high
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {range}"
        ));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for good in ["* * * * *", "*/5 0 1-3 jan,feb MON", "@hourly", "@every 1h30m"] {
            assert_eq!(parse_schedule(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            (
                "x * * * *",
                "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax",
            ),
            ("@never", "unrecognized descriptor: @never"),
            (
                "5-1 * * * *",
                "beginning of range (5) beyond end of range (1): 5-1",
            ),
        ] {
            assert_eq!(parse_schedule(bad), Err(why.into()), "{bad}");
        }
    }
}
