//! Functions of IP addresses and CIDR prefixes.

use std::net::IpAddr;

use super::{Function, Ret, no_overload};
use crate::opaque::{
    Cidr, Opaque,
    net::{parse_cidr, parse_ip},
};
use crate::{error::EvalError, value::Val};

pub(super) fn implementation(name: &str) -> Option<Function> {
    Some(match name {
        "ip" => ip,
        "cidr" => cidr,
        "isIP" => |args| text("isIP", args, |text| Ok(Val::Bool(parse_ip(text).is_ok()))),
        "isCIDR" => |args| text("isCIDR", args, |text| Ok(Val::Bool(parse_cidr(text).is_ok()))),
        "ip.isCanonical" => |args| {
            text("ip.isCanonical", args, |text| {
                Ok(Val::Bool(
                    parse_ip(text).map_err(EvalError::new)?.to_string() == text,
                ))
            })
        },
        "family" => |args| addr("family", args, |ip| Val::Int(if ip.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => |args| addr("isUnspecified", args, |ip| Val::Bool(ip.is_unspecified())),
        "isLoopback" => |args| addr("isLoopback", args, |ip| Val::Bool(ip.is_loopback())),
        "isLinkLocalMulticast" => |args| {
            addr("isLinkLocalMulticast", args, |ip| {
                Val::Bool(link_local_multicast(ip))
            })
        },
        "isLinkLocalUnicast" => {
            |args| addr("isLinkLocalUnicast", args, |ip| Val::Bool(link_local_unicast(ip)))
        }
        "isGlobalUnicast" => |args| addr("isGlobalUnicast", args, |ip| Val::Bool(global_unicast(ip))),
        "containsIP" => contains_ip,
        "containsCIDR" => contains_cidr,
        "prefixLength" => |args| prefix("prefixLength", args, |cidr| Val::Int(cidr.bits.into())),
        "masked" => |args| prefix("masked", args, |cidr| Val::opaque(Opaque::Cidr(cidr.masked()))),
        _ => return None,
    })
}

fn text<'a>(name: &str, args: &[Val<'a>], run: fn(&str) -> Ret<'static>) -> Ret<'a> {
    match args {
        [Val::String(text)] => run(text),
        _ => no_overload(name, args),
    }
}

fn as_ip(val: &Val<'_>) -> Option<IpAddr> {
    match val {
        Val::Opaque(value) => match **value {
            Opaque::Ip(ip) => Some(ip),
            _ => None,
        },
        _ => None,
    }
}

fn as_cidr(val: &Val<'_>) -> Option<Cidr> {
    match val {
        Val::Opaque(value) => match **value {
            Opaque::Cidr(cidr) => Some(cidr),
            _ => None,
        },
        _ => None,
    }
}

fn addr<'a>(name: &str, args: &[Val<'a>], run: fn(&IpAddr) -> Val<'static>) -> Ret<'a> {
    match args.first().and_then(as_ip) {
        Some(ip) => Ok(run(&ip)),
        None => no_overload(name, args),
    }
}

fn prefix<'a>(name: &str, args: &[Val<'a>], run: fn(&Cidr) -> Val<'static>) -> Ret<'a> {
    match args.first().and_then(as_cidr) {
        Some(cidr) => Ok(run(&cidr)),
        None => no_overload(name, args),
    }
}

fn ip<'a>(args: &[Val<'a>]) -> Ret<'a> {
    if let Some(cidr) = args.first().and_then(as_cidr) {
        return Ok(Val::opaque(Opaque::Ip(cidr.addr)));
    }
    text("ip", args, |text| {
        parse_ip(text)
            .map(|ip| Val::opaque(Opaque::Ip(ip)))
            .map_err(EvalError::new)
    })
}

fn cidr<'a>(args: &[Val<'a>]) -> Ret<'a> {
    text("cidr", args, |text| {
        let failed = |why| {
            EvalError::new(format!(
                "network address parse error during conversion from string: {why}"
            ))
        };
        parse_cidr(text)
            .map(|cidr| Val::opaque(Opaque::Cidr(cidr)))
            .map_err(failed)
    })
}

fn contains_ip<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let Some(outer) = args.first().and_then(as_cidr) else {
        return no_overload("containsIP", args);
    };
    let ip = match args.get(1) {
        Some(Val::String(text)) => parse_ip(text).map_err(EvalError::new)?,
        Some(val) => match as_ip(val) {
            Some(ip) => ip,
            None => return no_overload("containsIP", args),
        },
        None => return no_overload("containsIP", args),
    };
    Ok(Val::Bool(outer.contains(ip)))
}

fn contains_cidr<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let Some(outer) = args.first().and_then(as_cidr) else {
        return no_overload("containsCIDR", args);
    };
    let inner = match args.get(1) {
        Some(Val::String(_)) => as_cidr(&cidr(&args[1..])?),
        Some(val) => as_cidr(val),
        None => None,
    };
    match inner {
        Some(inner) => Ok(Val::Bool(outer.bits <= inner.bits && outer.contains(inner.addr))),
        None => no_overload("containsCIDR", args),
    }
}

fn link_local_multicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn link_local_unicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn global_unicast(ip: &IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !ip.is_unspecified() && !broadcast && !ip.is_loopback() && !ip.is_multicast() && !link_local_unicast(ip)
}
