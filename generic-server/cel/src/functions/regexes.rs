//! Regular expressions: RE2 syntax, linear time, bounded size. `go` brings patterns into the form the `regex` crate reads with
//! the meaning Go gives them.

mod go;

use regex::{Regex, RegexBuilder};

use super::{Ret, convert::str_of, no_overload};
use crate::{error::EvalError, value::Val};

/// Bounds the memory of one compiled pattern.
const SIZE_LIMIT: usize = 1 << 20;

/// Compiles a pattern. The error is Go's, as far as it can be reproduced.
pub(crate) fn compile(pattern: &str) -> Result<Regex, EvalError> {
    let refused = |why: String| EvalError::new(format!("error parsing regexp: {why}"));
    let translated = go::translate(pattern).map_err(refused)?;
    RegexBuilder::new(&translated)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(SIZE_LIMIT)
        .build()
        .map_err(|error| refused(go::reason(pattern, &error)))
}

/// `matches`, `find` and `findAll` with a compiled pattern.
pub(crate) fn apply<'a>(name: &str, regex: &Regex, args: &[Val<'a>]) -> Ret<'a> {
    let Some(text) = args.first().and_then(str_of) else {
        return no_overload(name, args);
    };
    match name {
        "matches" => Ok(Val::Bool(regex.is_match(text))),
        "find" => Ok(Val::string(regex.find(text).map_or("", |found| found.as_str()))),
        _ => {
            let limit = match args.get(2) {
                None => usize::MAX,
                Some(Val::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
                Some(_) => return no_overload(name, args),
            };
            let found = regex
                .find_iter(text)
                .take(limit)
                .map(|found| Val::string(found.as_str()));
            Ok(Val::list(found.collect()))
        }
    }
}
