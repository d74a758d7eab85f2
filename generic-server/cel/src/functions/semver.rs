//! Semantic versions.

use super::{Function, Ret, no_overload};
use crate::opaque::{
    Opaque, Semver,
    semver::{normalize, parse},
};
use crate::{error::EvalError, value::Val};

fn parsed(args: &[Val<'_>]) -> Option<Result<Semver, String>> {
    Some(match args {
        [Val::String(text)] | [Val::String(text), Val::Bool(false)] => parse(text),
        [Val::String(text), Val::Bool(true)] => normalize(text).and_then(|text| parse(&text)),
        _ => return None,
    })
}

pub(super) fn implementation(name: &str) -> Option<Function> {
    Some(match name {
        "semver" => |args| match parsed(args) {
            Some(version) => version
                .map(|version| Val::opaque(Opaque::Semver(version)))
                .map_err(EvalError::new),
            None => no_overload("semver", args),
        },
        "isSemver" => |args| match parsed(args) {
            Some(version) => Ok(Val::Bool(version.is_ok())),
            None => no_overload("isSemver", args),
        },
        "major" => |args| part("major", args, 0),
        "minor" => |args| part("minor", args, 1),
        "patch" => |args| part("patch", args, 2),
        _ => return None,
    })
}

fn part<'a>(name: &str, args: &[Val<'a>], index: usize) -> Ret<'a> {
    match args {
        [Val::Opaque(value)] if let Opaque::Semver(version) = &**value => {
            Ok(Val::Int(version.core[index] as i64))
        }
        _ => no_overload(name, args),
    }
}
