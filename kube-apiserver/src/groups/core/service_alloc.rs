//! What services are given: cluster addresses, node ports, health check ports. The services in the store say what is taken; what
//! is being written right now is held apart. An address also has an IPAddress object, made before the service is and
//! deleted after it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use generic_server::ApiError;
use generic_server::registry::Entry;
use generic_server::registry::strategy::{Finisher, WriteContext, WriteHooks};
use generic_server::registry::write::DeleteOptions;
use imbl::ordmap::DiffItem;
use machinery::{FieldError, FieldPath, GroupKind, meta};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::service::{
    cluster_ips, drop_by_type, headless, keeps_addresses, needs_cluster_ip, needs_health_check,
    needs_node_port,
};
use crate::client::Client;
use crate::deps::Deps;
use crate::faults::Faults;
use crate::json::{Json, same};
use crate::net::Cidr;

const ADDRESSES: (&str, &str) = ("networking.k8s.io", "ipaddresses");

/// Something that one service has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Thing {
    Ip(IpAddr),
    Port(u16),
}

/// What the stored services have, as of some snapshot.
#[derive(Debug, Default)]
struct Ledger {
    objects: imbl::OrdMap<Arc<str>, Arc<Entry>>,
    taken: HashMap<Thing, usize>,
    /// Where the next search begins, per range.
    next: HashMap<String, u128>,
}

impl Ledger {
    /// Brings the ledger to a newer snapshot; costs what changed.
    fn follow(&mut self, objects: &imbl::OrdMap<Arc<str>, Arc<Entry>>) {
        let old = std::mem::replace(&mut self.objects, objects.clone());
        let mut steps: Vec<(Thing, bool)> = Vec::new();
        for change in old.diff(objects) {
            let (gone, came) = match change {
                DiffItem::Add(_, new) => (None, Some(new)),
                DiffItem::Update { old, new } => (Some(old.1), Some(new.1)),
                DiffItem::Remove(_, old) => (Some(old), None),
            };
            for (entry, add) in [(gone, false), (came, true)] {
                if let Some(entry) = entry {
                    steps.extend(things(&entry.value()).into_iter().map(|thing| (thing, add)));
                }
            }
        }
        for (thing, add) in steps {
            let count = self.taken.entry(thing).or_default();
            *count = if add { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                self.taken.remove(&thing);
            }
        }
    }
}

/// What a service has.
fn things(service: &Value) -> Vec<Thing> {
    let ips = service
        .strings("spec.clusterIPs")
        .filter_map(|ip| ip.parse().ok());
    let ports = service.list("spec.ports").iter().map(|port| port.int("nodePort"));
    let ports = ports.chain([service.int("spec.healthCheckNodePort")]);
    let ports = ports
        .flatten()
        .filter_map(|port| u16::try_from(port).ok())
        .filter(|port| *port != 0);
    let mut things: Vec<Thing> = ips.map(Thing::Ip).collect();
    for port in ports.map(Thing::Port) {
        if !things.contains(&port) {
            things.push(port);
        }
    }
    things
}

/// Things of writes under way.
type Pending = Arc<Mutex<HashMap<Thing, usize>>>;

/// The hooks of services.
#[derive(Debug)]
pub(super) struct Allocator {
    client: Client,
    cidrs: Vec<Cidr>,
    ports: RangeInclusive<u16>,
    ledger: tokio::sync::Mutex<Ledger>,
    pending: Pending,
}

/// Gives back what a write took unless it is stored, and deletes the objects of addresses that are no longer needed.
#[derive(Debug)]
struct Hold {
    client: Client,
    pending: Pending,
    things: Vec<Thing>,
    /// IPAddress objects made for this write.
    made: Vec<IpAddr>,
    /// Those that the write gives up.
    given_up: Vec<IpAddr>,
}

impl Finisher for Hold {
    fn commit(mut self: Box<Self>) {
        self.made = std::mem::take(&mut self.given_up);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut pending = self.pending.lock();
        for thing in &self.things {
            if let Some(count) = pending.get_mut(thing) {
                *count -= 1;
                if *count == 0 {
                    pending.remove(thing);
                }
            }
        }
        drop(pending);
        let gone = std::mem::take(&mut self.made);
        if gone.is_empty() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let client = self.client.clone();
            runtime.spawn(async move { release(&client, gone).await });
        }
    }
}

async fn release(client: &Client, ips: Vec<IpAddr>) {
    for ip in ips {
        if let Err(error) = client
            .delete(ADDRESSES, "", &ip.to_string(), &DeleteOptions::default())
            .await
        {
            tracing::warn!(%ip, %error, "an address of a deleted service keeps its object");
        }
    }
}

/// The search for one write.
struct Search<'a> {
    ledger: &'a mut Ledger,
    busy: HashMap<Thing, usize>,
    hold: &'a mut Hold,
    dry_run: bool,
}

impl Search<'_> {
    fn free(&self, thing: Thing) -> bool {
        !self.ledger.taken.contains_key(&thing) && !self.busy.contains_key(&thing)
    }

    fn take(&mut self, thing: Thing) -> bool {
        let free = self.free(thing);
        if free {
            *self.busy.entry(thing).or_default() += 1;
            if !self.dry_run {
                *self.hold.pending.lock().entry(thing).or_default() += 1;
                self.hold.things.push(thing);
            }
        }
        free
    }

    /// The next free thing of a numbered range, from where the last search ended; the first `band` numbers, which clients choose
    /// from, come last.
    fn next(&mut self, range: &str, size: u128, band: u128, at: impl Fn(u128) -> Thing) -> Option<Thing> {
        let band = band.min(size);
        let upper = size - band;
        let start = self.ledger.next.get(range).copied().unwrap_or_default();
        // No more numbers can be taken than there are services and ports, so this ends early in a large range.
        let upper_numbers = (0..upper).map(|step| band + (start + step) % upper.max(1));
        let found = upper_numbers
            .chain(0..band)
            .find(|number| self.free(at(*number)))?;
        if found >= band {
            self.ledger.next.insert(range.to_owned(), found - band + 1);
        }
        let thing = at(found);
        self.take(thing).then_some(thing)
    }
}

fn family(ip: IpAddr) -> &'static str {
    if ip.is_ipv6() { "IPv6" } else { "IPv4" }
}

fn refused(service: &Value, errors: &[FieldError]) -> Result<(), ApiError> {
    match errors {
        [] => Ok(()),
        errors => Err(ApiError::invalid(
            &GroupKind::new("", "Service"),
            meta::name(service),
            errors,
        )),
    }
}

impl Allocator {
    pub(super) fn new(deps: &Deps) -> Self {
        Allocator {
            client: Client::new(deps.directory.clone()),
            cidrs: deps.service_cidrs.clone(),
            ports: deps.node_ports.clone(),
            ledger: tokio::sync::Mutex::default(),
            pending: Pending::default(),
        }
    }

    fn families(&self) -> Vec<&'static str> {
        self.cidrs.iter().map(|cidr| family(cidr.first())).collect()
    }

    /// Policy and families, from what was asked and what there is.
    fn init_families(&self, service: &mut Value, old: &Value) -> Result<(), ApiError> {
        if service.text("spec.type") == "ExternalName" {
            return Ok(());
        }
        let known = self.families();
        let selectorless = headless(service)
            && service
                .object_at("spec.selector")
                .is_none_or(|selector| selector.is_empty());
        if !service.has("spec.ipFamilyPolicy") {
            let before = old
                .list("spec.ipFamilies")
                .len()
                .max(old.list("spec.clusterIPs").len());
            let policy = if old.is_null() || before == 0 {
                let many =
                    service.list("spec.clusterIPs").len() == 2 || service.list("spec.ipFamilies").len() == 2;
                if many || selectorless {
                    "RequireDualStack"
                } else {
                    "SingleStack"
                }
            } else {
                match old.text("spec.ipFamilyPolicy") {
                    "" => "SingleStack",
                    policy => policy,
                }
            };
            let policy = policy.to_owned();
            service.ensure("spec").put("ipFamilyPolicy", policy);
        }
        refused(
            service,
            &Faults::collect(|faults| cluster_ips(faults, service, old)),
        )?;
        let path = FieldPath::new("spec");
        let policy_at = path.child("ipFamilyPolicy");
        let single = service.text("spec.ipFamilyPolicy") == "SingleStack";
        if !old.is_null() && single {
            for key in ["clusterIPs", "ipFamilies"] {
                let path = format!("spec.{key}");
                if same(service.dig(&path), old.dig(&path)) && service.list(&path).len() > 1 {
                    let first = service.list(&path)[0].clone();
                    service.ensure("spec").put(key, vec![first]);
                }
            }
        }
        let errors = Faults::collect(|faults| {
            for (key, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
                let (new, before) = (service.dig("spec").list(key), old.dig("spec").list(key));
                if !single && !new.is_empty() && new.len() < before.len() && new[0] == before[0] {
                    let text = format!("must be 'SingleStack' to release the secondary {what}");
                    faults.invalid_value(&policy_at, service.dig("spec.ipFamilyPolicy"), text);
                }
            }
            for (key, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
                if single && service.dig("spec").list(key).len() == 2 {
                    let text = format!(
                        "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                    );
                    faults.invalid(&policy_at, "SingleStack", text);
                }
            }
        });
        refused(service, &errors)?;
        let mut families: Vec<String> = service.strings("spec.ipFamilies").map(str::to_owned).collect();
        let ips = service.strings("spec.clusterIPs");
        let ips: Vec<IpAddr> = ips.map_while(|ip| ip.parse().ok()).collect();
        let errors = Faults::collect(|faults| {
            for (index, ip) in ips.iter().enumerate().skip(families.len()) {
                let family = family(*ip);
                if known.contains(&family) {
                    families.push(family.to_owned());
                } else {
                    faults.invalid_value(
                        &path.child("clusterIPs").index(index),
                        service.dig("spec.clusterIPs"),
                        format!("{family} is not configured on this cluster"),
                    );
                }
            }
        });
        refused(service, &errors)?;
        let default = known.first().copied().unwrap_or("IPv4");
        if !selectorless {
            let errors = Faults::collect(|faults| {
                if service.text("spec.ipFamilyPolicy") == "RequireDualStack" && known.len() < 2 {
                    faults.invalid(
                        &policy_at,
                        "RequireDualStack",
                        "this cluster is not configured for dual-stack services",
                    );
                }
                for (index, family) in families.iter().enumerate() {
                    if !known.contains(&&**family) {
                        faults.invalid(
                            &path.child("ipFamilies").index(index),
                            family.as_str(),
                            "not configured on this cluster",
                        );
                    }
                }
            });
            refused(service, &errors)?;
        }
        if families.is_empty() {
            families.push(default.to_owned());
        }
        if !single && families.len() == 1 && (selectorless || known.len() == 2) {
            let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
            families.push(other.to_owned());
        }
        service.ensure("spec").put("ipFamilies", families);
        Ok(())
    }

    /// Finds what a service still needs; `old` is null on create.
    async fn allocate(
        &self,
        ctx: &WriteContext<'_>,
        service: &mut Value,
        old: &Value,
    ) -> Result<Option<Box<dyn Finisher>>, ApiError> {
        self.init_families(service, old)?;
        let kept = things(old);
        let mut hold = Hold {
            client: self.client.clone(),
            pending: self.pending.clone(),
            things: Vec::new(),
            made: Vec::new(),
            given_up: Vec::new(),
        };
        let mut ledger = self.ledger.lock().await;
        // In this order: what is no longer pending after this line is in the snapshot.
        let busy = self.pending.lock().clone();
        let snapshot = self.client.resource(("", "services"))?.store.fresh().await?;
        ledger.follow(&snapshot.objects);
        let mut search = Search {
            ledger: &mut ledger,
            busy,
            hold: &mut hold,
            dry_run: ctx.dry_run,
        };
        let ips = self.addresses(&mut search, service, &kept)?;
        self.node_ports(&mut search, service, &kept)?;
        drop(ledger);
        if !ctx.dry_run {
            for ip in ips {
                let family = family(ip);
                let object = json!({
                    "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
                    "metadata": {"name": ip.to_string(), "labels": {
                        "ipaddress.kubernetes.io/ip-family": family, "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
                    }},
                    "spec": {"parentRef": {
                        "resource": "services", "namespace": ctx.namespace, "name": meta::name(service),
                    }},
                });
                if self.client.create(ADDRESSES, "", object).await? {
                    hold.made.push(ip);
                }
            }
        }
        let now = things(service);
        hold.given_up = kept
            .into_iter()
            .filter(|thing| !now.contains(thing))
            .filter_map(|thing| match thing {
                Thing::Ip(ip) => Some(ip),
                Thing::Port(_) => None,
            })
            .collect();
        if ctx.dry_run {
            hold.given_up.clear();
        }
        Ok(Some(Box::new(hold)))
    }

    fn addresses(
        &self,
        search: &mut Search<'_>,
        service: &mut Value,
        kept: &[Thing],
    ) -> Result<Vec<IpAddr>, ApiError> {
        if service.text("spec.type") == "ExternalName" || headless(service) {
            return Ok(Vec::new());
        }
        let families: Vec<String> = service.strings("spec.ipFamilies").map(str::to_owned).collect();
        let mut ips: Vec<String> = service.strings("spec.clusterIPs").map(str::to_owned).collect();
        let mut new = Vec::new();
        for (index, family_name) in families.iter().enumerate() {
            let cidr = self.cidrs.iter().find(|cidr| family(cidr.first()) == family_name);
            let Some(cidr) = cidr else { continue };
            if let Some(text) = ips.get(index) {
                let Ok(ip) = text.parse::<IpAddr>() else { continue };
                if kept.contains(&Thing::Ip(ip)) {
                    continue;
                }
                let last = cidr.size() - 1;
                let inside = cidr
                    .offset(ip)
                    .is_some_and(|offset| offset != 0 && (cidr.is_v6() || offset != last));
                let why = match inside {
                    false => "the provided network does not match the current range",
                    true if !search.take(Thing::Ip(ip)) => "provided IP is already allocated",
                    true => {
                        new.push(ip);
                        continue;
                    }
                };
                return Err(bad_ip(service, text, why));
            }
            let size = cidr.size() - if cidr.is_v6() { 1 } else { 2 }.min(cidr.size());
            let band = if size < 16 { 0 } else { (size / 16).clamp(16, 256) };
            let found = search.next(&cidr.to_string(), size, band, |n| Thing::Ip(cidr.nth(n + 1)));
            let Some(Thing::Ip(ip)) = found else {
                return Err(ApiError::internal(format!(
                    "failed to allocate a serviceIP for Service {:?}: range is full",
                    meta::name(service)
                )));
            };
            new.push(ip);
            ips.push(ip.to_string());
        }
        let spec = service.ensure("spec");
        if let Some(first) = ips.first() {
            spec.put("clusterIP", first.as_str());
        }
        spec.put("clusterIPs", ips);
        Ok(new)
    }

    fn next_port(&self, search: &mut Search<'_>) -> Result<i64, ApiError> {
        let first = u128::from(*self.ports.start());
        let size = u128::from(*self.ports.end()) + 1 - first;
        let band = if size < 32 { 0 } else { (size / 32).clamp(16, 128) };
        let found = search.next("ports", size, band, |n| {
            Thing::Port(u16::try_from(first + n).unwrap_or(u16::MAX))
        });
        match found {
            Some(Thing::Port(port)) => Ok(port.into()),
            _ => Err(ApiError::internal("failed to allocate a nodePort: range is full")),
        }
    }

    /// A port that was asked for.
    fn this_port(&self, search: &mut Search<'_>, port: i64, kept: &[Thing]) -> Result<(), String> {
        let number = u16::try_from(port).ok().filter(|port| self.ports.contains(port));
        let Some(number) = number else {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                self.ports.start(),
                self.ports.end()
            ));
        };
        if kept.contains(&Thing::Port(number)) || search.take(Thing::Port(number)) {
            return Ok(());
        }
        Err("provided port is already allocated".into())
    }

    fn node_ports(
        &self,
        search: &mut Search<'_>,
        service: &mut Value,
        kept: &[Thing],
    ) -> Result<(), ApiError> {
        let asked = |port: &Value| port.int("nodePort").filter(|port| *port != 0);
        if matches!(service.text("spec.type"), "NodePort" | "LoadBalancer") {
            let mut ports = service.list("spec.ports").to_vec();
            let all = needs_node_port(service);
            // One port number has one node port, whatever the protocols.
            let mut given: HashMap<i64, i64> = HashMap::new();
            for index in 0..ports.len() {
                let number = ports[index].int("port").unwrap_or_default();
                let own = asked(&ports[index]);
                if own.is_none() && !all {
                    continue;
                }
                let wanted = match given.get(&number) {
                    Some(port) if own.is_none_or(|own| own == *port) => {
                        ports[index].put("nodePort", *port);
                        continue;
                    }
                    Some(_) => own,
                    None => own.or_else(|| {
                        ports[index..]
                            .iter()
                            .filter(|port| port.int("port") == Some(number))
                            .find_map(asked)
                    }),
                };
                let port = match wanted {
                    Some(port) => {
                        if let Err(why) = self.this_port(search, port, kept) {
                            let errors = Faults::collect(|faults| {
                                let path = FieldPath::new("spec");
                                let path = path.child("ports");
                                faults.invalid(&path.index(index).child("nodePort"), port, why);
                            });
                            refused(service, &errors)?;
                        }
                        port
                    }
                    None => self.next_port(search)?,
                };
                ports[index].put("nodePort", port);
                given.entry(number).or_insert(port);
            }
            if !ports.is_empty() {
                service.ensure("spec").put("ports", ports);
            }
        }
        if needs_health_check(service) {
            match service.int("spec.healthCheckNodePort").filter(|port| *port != 0) {
                Some(port) => self.this_port(search, port, kept).map_err(|why| {
                    ApiError::internal(format!(
                        "failed to allocate requested HealthCheck NodePort {port}: {why}"
                    ))
                })?,
                None => {
                    let port = self.next_port(search)?;
                    service.ensure("spec").put("healthCheckNodePort", port);
                }
            }
        }
        Ok(())
    }
}

fn bad_ip(service: &Value, ip: &str, why: &str) -> ApiError {
    let errors = Faults::collect(|faults| {
        let path = FieldPath::new("spec");
        let text = format!("failed to allocate IP {ip}: {why}");
        faults.invalid_value(&path.child("clusterIPs"), service.dig("spec.clusterIPs"), text);
    });
    ApiError::invalid(&GroupKind::new("", "Service"), meta::name(service), &errors)
}

/// What the client left out and the server gave before.
fn patch_allocated(service: &mut Value, old: &Value) {
    if needs_cluster_ip(old) && needs_cluster_ip(service) {
        let spec = service.ensure("spec");
        spec.fill_text("clusterIP", old.text("spec.clusterIP"));
        if spec.list("clusterIPs").is_empty() && spec.text("clusterIP") == old.text("spec.clusterIP") {
            spec.copy_key("clusterIPs", old.dig("spec"));
        }
    }
    let port_of = |port: &Value| port.int("nodePort").unwrap_or_default();
    if needs_node_port(old) && needs_node_port(service) {
        let new: Vec<i64> = service.list("spec.ports").iter().map(port_of).collect();
        let mut used: Vec<i64> = old.list("spec.ports").iter().map(port_of).collect();
        used.retain(|port| new.contains(port));
        for port in service.list_mut("spec.ports") {
            if port_of(port) != 0 {
                continue;
            }
            let before = old
                .list("spec.ports")
                .iter()
                .find(|before| before.text("name") == port.text("name"))
                .map(port_of)
                .unwrap_or_default();
            if before != 0 && !used.contains(&before) {
                port.put("nodePort", before);
                used.push(before);
            }
        }
    }
    if needs_health_check(old)
        && needs_health_check(service)
        && let Some(port) = old.int("spec.healthCheckNodePort")
    {
        service.ensure("spec").fill_int("healthCheckNodePort", port);
    }
}

/// Keeps `clusterIP` and the first of `clusterIPs` the same for clients that know only one.
fn normalize(service: &mut Value, old: &Value) {
    let ip = service.text("spec.clusterIP").to_owned();
    if old.is_null() {
        if !ip.is_empty() && service.list("spec.clusterIPs").is_empty() {
            service.ensure("spec").put("clusterIPs", vec![ip]);
        }
        return;
    }
    let same_list = same(service.dig("spec.clusterIPs"), old.dig("spec.clusterIPs"));
    if ip == old.text("spec.clusterIP") || !same_list {
        return;
    }
    if ip.is_empty() {
        service.ensure("spec").take_key("clusterIPs");
    } else {
        service.ensure("spec").put("clusterIPs", vec![ip]);
    }
}

#[async_trait::async_trait]
impl WriteHooks for Allocator {
    async fn begin_create(
        &self,
        ctx: &WriteContext<'_>,
        service: &mut Value,
    ) -> Result<Option<Box<dyn Finisher>>, ApiError> {
        normalize(service, &Value::Null);
        self.allocate(ctx, service, &Value::Null).await
    }

    async fn begin_update(
        &self,
        ctx: &WriteContext<'_>,
        service: &mut Value,
        old: &Value,
    ) -> Result<Option<Box<dyn Finisher>>, ApiError> {
        patch_allocated(service, old);
        normalize(service, old);
        drop_by_type(service, old);
        // Addresses that change are refused as what they are, not for where they are.
        refused(
            service,
            &Faults::collect(|faults| keeps_addresses(faults, service, old)),
        )?;
        let mut seen: Vec<(&str, i64)> = Vec::new();
        for port in service.list("spec.ports") {
            let own = (port.text("protocol"), port.int("nodePort").unwrap_or_default());
            if needs_node_port(service) && own.1 != 0 && seen.contains(&own) {
                return Err(ApiError::raw_internal(format!(
                    "duplicate nodePort: {{{} {}}}",
                    own.0, own.1
                )));
            }
            seen.push(own);
        }
        self.allocate(ctx, service, old).await
    }

    async fn after_delete(&self, _ctx: &WriteContext<'_>, service: &Value) {
        let ips = service.strings("spec.clusterIPs");
        let ips = ips.filter_map(|ip| ip.parse().ok()).collect();
        release(&self.client, ips).await;
    }
}
