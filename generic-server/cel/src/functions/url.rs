//! Absolute URLs, as Go's `url.ParseRequestURI` accepts them.

use super::{Function, Ret, no_overload};
use crate::opaque::{
    Opaque,
    url::{Url, escaped_path, parse},
};
use crate::{
    error::EvalError,
    value::{Entries, Key, Map, Val},
};

pub(super) fn implementation(name: &str) -> Option<Function> {
    Some(match name {
        "url" => |args| match args {
            [Val::String(text)] => parse(text)
                .map(|url| Val::opaque(Opaque::Url(url)))
                .map_err(|why| {
                    EvalError::new(format!("URL parse error during conversion from string: {why}"))
                }),
            _ => no_overload("url", args),
        },
        "isURL" => |args| match args {
            [Val::String(text)] => Ok(Val::Bool(parse(text).is_ok())),
            _ => no_overload("isURL", args),
        },
        "getScheme" => |args| get("getScheme", args, |url| Val::string(&*url.scheme)),
        "getHost" => |args| get("getHost", args, |url| Val::string(&*url.host)),
        "getHostname" => |args| get("getHostname", args, |url| Val::string(url.split_host().0)),
        "getPort" => |args| get("getPort", args, |url| Val::string(url.split_host().1)),
        "getEscapedPath" => |args| get("getEscapedPath", args, |url| Val::string(escaped_path(&url.path))),
        "getQuery" => |args| get("getQuery", args, query),
        _ => return None,
    })
}

fn get<'a>(name: &str, args: &[Val<'a>], part: fn(&Url) -> Val<'static>) -> Ret<'a> {
    match args {
        [Val::Opaque(value)] if let Opaque::Url(url) = &**value => Ok(part(url)),
        _ => no_overload(name, args),
    }
}

fn query(url: &Url) -> Val<'static> {
    let mut entries = Entries::new();
    for (key, values) in url.query() {
        let values = values.into_iter().map(Val::string).collect();
        entries.insert(
            Key::String(key.as_str().into()),
            (Val::string(key), Val::list(values)),
        );
    }
    Val::Map(Map::Vals(std::sync::Arc::new(entries)))
}
