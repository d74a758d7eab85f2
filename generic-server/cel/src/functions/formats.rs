//! Functions of the named formats.

use super::{Function, Ret, no_overload};
use crate::opaque::{NamedFormat, Opaque};
use crate::value::Val;

pub(super) fn implementation(name: &str) -> Option<Function> {
    Some(match name {
        "validate" => validate,
        "format.named" => |args| match args {
            [Val::String(name)] => {
                let found = NamedFormat::named(name).map(|format| Val::opaque(Opaque::Format(format)));
                Ok(found.map_or(Val::none(), Val::some))
            }
            _ => no_overload("format.named", args),
        },
        "format.dns1123Label" => |_| constant("dns1123Label"),
        "format.dns1123Subdomain" => |_| constant("dns1123Subdomain"),
        "format.dns1035Label" => |_| constant("dns1035Label"),
        "format.qualifiedName" => |_| constant("qualifiedName"),
        "format.dns1123LabelPrefix" => |_| constant("dns1123LabelPrefix"),
        "format.dns1123SubdomainPrefix" => |_| constant("dns1123SubdomainPrefix"),
        "format.dns1035LabelPrefix" => |_| constant("dns1035LabelPrefix"),
        "format.labelValue" => |_| constant("labelValue"),
        "format.uri" => |_| constant("uri"),
        "format.uuid" => |_| constant("uuid"),
        "format.byte" => |_| constant("byte"),
        "format.date" => |_| constant("date"),
        "format.datetime" => |_| constant("datetime"),
        _ => return None,
    })
}

fn constant<'a>(name: &str) -> Ret<'a> {
    match NamedFormat::named(name) {
        Some(format) => Ok(Val::opaque(Opaque::Format(format))),
        None => no_overload(name, &[]),
    }
}

fn validate<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let [Val::Opaque(value), Val::String(text)] = args else {
        return no_overload("validate", args);
    };
    let Opaque::Format(format) = &**value else {
        return no_overload("validate", args);
    };
    let faults = format.faults(text);
    if faults.is_empty() {
        return Ok(Val::none());
    }
    Ok(Val::some(Val::list(
        faults.into_iter().map(Val::string).collect(),
    )))
}
