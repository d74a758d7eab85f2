//! Lists of the indexes of a job's pods.

/// How many indexes `0-3,5` names.
pub(super) fn indexes_in(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let mut total = 0;
    let mut last: Option<i64> = None;
    for interval in text.split(',') {
        let limits: Vec<&str> = interval.split('-').collect();
        if limits.len() > 2 {
            return Err(format!(
                "the fragment \"{interval}\" violates the requirement that an index interval can have at most two parts separated by '-'"
            ));
        }
        let parse = |s: &str| -> Result<i64, String> {
            s.parse::<i64>()
                .map_err(|_| format!("cannot convert string to integer for index: \"{s}\""))
        };
        let first = parse(limits[0])?;
        let end = match limits.get(1) {
            Some(end) => parse(end)?,
            None => first,
        };
        for index in [first, end] {
            if index >= completions {
                return Err(format!("too large index: \"{index}\""));
            }
        }
        if last.is_some_and(|last| last >= first) {
            return Err(format!(
                "non-increasing order, previous: {}, current: {first}",
                last.unwrap_or_default()
            ));
        }
        if limits.len() == 2 && first >= end {
            return Err(format!("non-increasing order, previous: {first}, current: {end}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_indexes() {
        #[track_caller]
        fn check(text: &str, expected: Result<i64, &str>) {
            assert_eq!(indexes_in(text, 10), expected.map_err(str::to_string), "{text}");
        }
        check("", Ok(0));
        check("0-3,5", Ok(5));
        check("9", Ok(1));
        check("10", Err("too large index: \"10\""));
        check("3,2", Err("non-increasing order, previous: 3, current: 2"));
        check("3-3", Err("non-increasing order, previous: 3, current: 3"));
        check("a", Err("cannot convert string to integer for index: \"a\""));
        check(
            "1-2-3",
            Err(
                "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts separated by '-'",
            ),
        );
    }
}
