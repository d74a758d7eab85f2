//! Allocation for services: cluster addresses, node ports, health check ports. The services in the store say what is taken; what
//! is being written right now is held apart. An address also has an IPAddress object, made before the service is and
//! deleted after it; a port of a store that other servers share is entered into a range of all of them.

mod address;
mod families;
#[cfg(test)]
mod late;
mod ledger;
mod patch;
mod ranges;
mod shared;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use generic_server::ApiError;
use generic_server::registry::cache::{Unreadable, ValueError};
use generic_server::registry::from_storage;
use generic_server::registry::strategy::{Finisher, WriteContext, WriteHooks};
use machinery::{FieldError, FieldPath, GroupKind, GroupResource, meta};
use serde_json::Value;
use storage::{Guard, Txn};

use self::address::{Claim, Owner};
use self::families::{family, init_families};
use self::ledger::{Allocation, Held, Ledger, Pending, Search, allocations, ports};
use self::patch::{normalize, patch_allocated};
use self::ranges::Ranges;
use self::shared::{CLAIMS_PER_WRITE, Entered, SharedPorts};
use super::service::{drop_by_type, headless, keeps_addresses, needs_health_check, needs_node_port};
use crate::client::Client;
use crate::deps::Deps;
use crate::errors::Errors;
use crate::json::Json;
use crate::net::Cidr;
use crate::unique::Seen;

pub use shared::keep_node_ports;

/// How often a service looks for other addresses and ports because what it found belongs to others.
const ATTEMPTS: usize = 16;
/// Claims that the write of a service depends on at most: an etcd takes 128 conditions. Services with more node ports than that
/// depend on those of the first.
const MOST_GUARDS: usize = 100;

/// The hooks of services.
#[derive(Debug)]
pub(super) struct Allocator {
    client: Client,
    /// The ranges of the flag. They say which families there are.
    cidrs: Vec<Cidr>,
    ports: RangeInclusive<u16>,
    ledger: tokio::sync::Mutex<Ledger>,
    ranges: parking_lot::Mutex<Ranges>,
    pending: Pending,
    /// How many writes were given up. Each may still be on its way to the store.
    given_up: Arc<AtomicU64>,
    /// Where the store is shared.
    shared: Option<Arc<SharedPorts>>,
}

/// Gives back what a write took unless it is stored, and lets go of what is no longer needed.
#[derive(Debug)]
struct Hold {
    client: Client,
    shared: Option<Arc<SharedPorts>>,
    pending: Pending,
    owner: Owner,
    /// Counts this when the write is given up, where the store is not shared; `None` once it is stored.
    count_given_up: Option<Arc<AtomicU64>>,
    /// Held until this ends.
    held: Option<Held>,
    /// IPAddress objects made and ports entered for this write.
    made: Vec<Allocation>,
    /// The addresses and ports that the write gives up.
    given_up: Vec<Allocation>,
    /// The IPAddress objects and the claims of ports as they were made.
    guards: Vec<Guard>,
}

impl Finisher for Hold {
    fn guards(&self) -> Vec<Guard> {
        self.guards.clone()
    }

    fn commit(mut self: Box<Self>) {
        self.made = std::mem::take(&mut self.given_up);
        self.count_given_up = None;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Before what it held is free: the next search sees one or the other.
        if let Some(count) = self.count_given_up.take() {
            count.fetch_add(1, Ordering::SeqCst);
        }
        // The release must not take this write for one under way.
        self.held = None;
        let gone = std::mem::take(&mut self.made);
        if gone.is_empty() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // Before this returns, so that the next write of this server finds the ports free.
            if let Some(shared) = &self.shared {
                shared.give_up(ports(&gone));
            }
            let (client, shared, pending) = (self.client.clone(), self.shared.clone(), self.pending.clone());
            let owner = self.owner.clone();
            runtime.spawn(async move { release(&client, shared.as_deref(), &owner, &pending, &gone).await });
        }
    }
}

/// Deletes the objects of addresses and takes out ports that a service has given up.
async fn release(
    client: &Client,
    shared: Option<&SharedPorts>,
    owner: &Owner,
    pending: &Pending,
    allocations: &[Allocation],
) {
    for allocation in allocations {
        if let Allocation::Ip(ip) = allocation {
            address::release(client, *ip, owner, pending).await;
        }
    }
    if let Some(shared) = shared {
        shared.release().await;
    }
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
            ranges: parking_lot::Mutex::default(),
            pending: Pending::default(),
            given_up: Arc::default(),
            shared: SharedPorts::of(deps),
        }
    }

    /// Finds what a service still needs; `old` is null on create.
    async fn allocate(
        &self,
        ctx: &WriteContext<'_>,
        service: &mut Value,
        old: &Value,
    ) -> Result<Option<Box<dyn Finisher>>, ApiError> {
        init_families(&self.cidrs, service, old)?;
        let kept = allocations(old);
        let of_old: Seen<Allocation> = kept.iter().copied().collect();
        let owner = Owner {
            namespace: ctx.namespace.to_owned(),
            name: meta::name(service).to_owned(),
        };
        let mut elsewhere: HashSet<Allocation> = HashSet::new();
        for _ in 0..ATTEMPTS {
            let mut draft = service.clone();
            let (ips, new_ports, held, services) = self.search(ctx, &mut draft, &of_old, &elsewhere).await?;
            let mut hold = Hold {
                client: self.client.clone(),
                shared: self.shared.clone(),
                pending: self.pending.clone(),
                owner: owner.clone(),
                count_given_up: self.shared.is_none().then(|| self.given_up.clone()),
                held: Some(held),
                made: Vec::new(),
                given_up: Vec::new(),
                guards: Vec::new(),
            };
            if ctx.dry_run {
                if let Some(shared) = self.shared.as_ref().filter(|_| !new_ports.is_empty()) {
                    let taken = shared.taken().await?;
                    if new_ports.iter().any(|port| taken.contains(port)) {
                        elsewhere.extend(taken.into_iter().map(Allocation::Port));
                        continue;
                    }
                }
                *service = draft;
                return Ok(Some(Box::new(hold)));
            }
            let taken_before = elsewhere.len();
            if let Some(taken) = self.enter(&new_ports, &services, &mut hold).await? {
                elsewhere.extend(taken.into_iter().map(Allocation::Port));
                continue;
            }
            for ip in ips {
                match address::claim(&self.client, ip, &owner, self.shared.is_some()).await? {
                    Claim::Made(guard) => {
                        hold.made.push(Allocation::Ip(ip));
                        hold.guards.extend(guard);
                    }
                    Claim::Kept => {}
                    Claim::Taken => _ = elsewhere.insert(Allocation::Ip(ip)),
                }
            }
            if !hold.made.is_empty() {
                // A service may have been stored since the search whose claim was taken for one without a service.
                let stored = self.stored(hold.made.clone()).await?;
                // Its ports stay entered.
                hold.made
                    .retain(|made| matches!(made, Allocation::Ip(_)) || !stored.contains(made));
                elsewhere.extend(stored);
            }
            if elsewhere.len() > taken_before {
                continue;
            }
            *service = draft;
            let now: Seen<Allocation> = allocations(service).into_iter().collect();
            hold.given_up = kept
                .into_iter()
                .filter(|allocation| !now.has(allocation))
                .collect();
            return Ok(Some(Box::new(hold)));
        }
        Err(ApiError::internal(
            "failed to allocate a serviceIP or a nodePort: other servers were faster",
        ))
    }

    /// Enters ports where the store is shared, for a hold that gives them back. Gives those that are taken when not all of them
    /// are free.
    async fn enter(
        &self,
        ports: &[u16],
        services: &BTreeSet<u16>,
        hold: &mut Hold,
    ) -> Result<Option<BTreeSet<u16>>, ApiError> {
        let Some(shared) = &self.shared else {
            return Ok(None);
        };
        let guarded = shared.guards(self.client.resource(("", "services"))?.store.as_system().engine());
        for some in ports.chunks(CLAIMS_PER_WRITE) {
            match shared.enter(some, services).await? {
                Entered::No(taken) => return Ok(Some(taken)),
                Entered::Yes(claims) => {
                    hold.made.extend(some.iter().map(|port| Allocation::Port(*port)));
                    hold.guards.extend(claims.into_iter().filter(|_| guarded));
                }
            }
        }
        hold.guards.truncate(MOST_GUARDS);
        Ok(None)
    }

    /// One search for what a service needs: new addresses and ports, what holds them, and the ports of all services.
    async fn search(
        &self,
        ctx: &WriteContext<'_>,
        service: &mut Value,
        kept: &Seen<Allocation>,
        elsewhere: &HashSet<Allocation>,
    ) -> Result<(Vec<IpAddr>, Vec<u16>, Held, BTreeSet<u16>), ApiError> {
        let mut held = Held::new(&self.pending);
        let ranges = self.ranges().await?;
        let mut ledger = self.ledger.lock().await;
        // In this order: a write that is no longer pending after this line is in the snapshot, or counted.
        let busy = self.pending.lock().clone();
        let services = self.client.resource(("", "services"))?.store;
        let given_up = self.given_up.load(Ordering::SeqCst);
        if ledger.settled != given_up {
            // A request that ends leaves its write in the queue of an engine in this process, which keeps the order.
            let behind_it = services.as_system().engine().commit(Txn::default()).await;
            let resource = GroupResource::new("", "services");
            behind_it.map_err(|error| from_storage(&error, &resource, "update"))?;
            ledger.settled = given_up;
        }
        let snapshot = services.as_system().fresh().await?;
        ledger.follow(&snapshot.objects);
        let mut search = Search {
            ledger: &mut ledger,
            busy,
            elsewhere,
            held: (!ctx.dry_run).then_some(&mut held),
            ports: Vec::new(),
        };
        let ips = self.addresses(&mut search, &ranges, service, kept)?;
        self.node_ports(&mut search, service, kept)?;
        let ports = search.ports;
        // One that is damaged can only be deleted; one whose key comes has its ports again. A shared range knows them.
        let sealed = |one: &Arc<Unreadable>| matches!(one.error, ValueError::Untransformable(_));
        if self.shared.is_none() && !ports.is_empty() && snapshot.unreadable.values().any(sealed) {
            return Err(ApiError::internal(
                "failed to allocate a nodePort: a service cannot be decrypted, and its ports are unknown",
            ));
        }
        let services = match &self.shared {
            Some(_) if !ports.is_empty() => ledger.ports().collect(),
            _ => BTreeSet::new(),
        };
        Ok((ips, ports, held, services))
    }

    /// Those of these that stored services have.
    async fn stored(&self, mut claimed: Vec<Allocation>) -> Result<Vec<Allocation>, ApiError> {
        let mut ledger = self.ledger.lock().await;
        let services = self.client.resource(("", "services"))?;
        let snapshot = services.store.as_system().fresh().await?;
        ledger.follow(&snapshot.objects);
        claimed.retain(|allocation| ledger.is_taken(*allocation));
        Ok(claimed)
    }

    /// The ranges of all ServiceCIDRs that are ready, as the cache has them; those of the flag where the kind is not served.
    async fn ranges(&self) -> Result<Vec<Cidr>, ApiError> {
        let Ok(cidrs) = self.client.resource(("networking.k8s.io", "servicecidrs")) else {
            return Ok(self.cidrs.clone());
        };
        let cache = cidrs.store.as_system().cache().await?;
        Ok(self.ranges.lock().follow(&cache.snapshot().objects, &self.cidrs))
    }

    fn addresses(
        &self,
        search: &mut Search<'_>,
        ranges: &[Cidr],
        service: &mut Value,
        kept: &Seen<Allocation>,
    ) -> Result<Vec<IpAddr>, ApiError> {
        if service.text("spec.type") == "ExternalName" || headless(service) {
            return Ok(Vec::new());
        }
        let families: Vec<String> = service.strings("spec.ipFamilies").map(str::to_owned).collect();
        let mut ips: Vec<String> = service.strings("spec.clusterIPs").map(str::to_owned).collect();
        let mut new = Vec::new();
        for (index, family_name) in families.iter().enumerate() {
            let mut of_family = ranges.iter().filter(|cidr| family(cidr.first()) == family_name);
            if let Some(text) = ips.get(index) {
                let Ok(ip) = text.parse::<IpAddr>() else { continue };
                if kept.has(&Allocation::Ip(ip)) {
                    continue;
                }
                let why = match of_family.any(|cidr| ranges::has(cidr, ip)) {
                    false => "the provided network does not match the current range",
                    true if !search.take(Allocation::Ip(ip)) => "provided IP is already allocated",
                    true => {
                        new.push(ip);
                        continue;
                    }
                };
                return Err(bad_ip(service, text, why));
            }
            let found = of_family.find_map(|cidr| {
                let (size, band) = ranges::size(cidr);
                search.next(&cidr.to_string(), size, band, |n| Allocation::Ip(cidr.nth(n + 1)))
            });
            let Some(Allocation::Ip(ip)) = found else {
                return Err(ApiError::internal(format!(
                    "failed to allocate a serviceIP for Service {}: range is full",
                    machinery::go::Quoted(meta::name(service))
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
            Allocation::Port(u16::try_from(first + n).unwrap_or(u16::MAX))
        });
        match found {
            Some(Allocation::Port(port)) => Ok(port.into()),
            _ => Err(ApiError::internal("failed to allocate a nodePort: range is full")),
        }
    }

    /// A port that was asked for.
    fn this_port(&self, search: &mut Search<'_>, port: i64, kept: &Seen<Allocation>) -> Result<(), String> {
        let number = u16::try_from(port).ok().filter(|port| self.ports.contains(port));
        let Some(number) = number else {
            // Nothing is taken in a dry run, and upstream does not look at the range then.
            if search.held.is_none() {
                return Ok(());
            }
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                self.ports.start(),
                self.ports.end()
            ));
        };
        if kept.has(&Allocation::Port(number)) || search.take(Allocation::Port(number)) {
            return Ok(());
        }
        Err("provided port is already allocated".into())
    }

    fn node_ports(
        &self,
        search: &mut Search<'_>,
        service: &mut Value,
        kept: &Seen<Allocation>,
    ) -> Result<(), ApiError> {
        let asked = |port: &Value| port.int("nodePort").filter(|port| *port != 0);
        if matches!(service.text("spec.type"), "NodePort" | "LoadBalancer") {
            let mut ports = service.list("spec.ports").to_vec();
            let all = needs_node_port(service);
            // One port number has one node port, for all protocols.
            let mut given: HashMap<i64, i64> = HashMap::new();
            let mut wished: HashMap<i64, i64> = HashMap::new();
            for port in &ports {
                if let (Some(number), Some(asked)) = (port.int("port"), asked(port)) {
                    wished.entry(number).or_insert(asked);
                }
            }
            for (index, entry) in ports.iter_mut().enumerate() {
                let number = entry.int("port").unwrap_or_default();
                let own = asked(entry);
                if own.is_none() && !all {
                    continue;
                }
                let wanted = match given.get(&number) {
                    Some(port) if own.is_none_or(|own| own == *port) => {
                        entry.put("nodePort", *port);
                        continue;
                    }
                    Some(_) => own,
                    None => own.or_else(|| wished.get(&number).copied()),
                };
                let port = match wanted {
                    Some(port) => {
                        if let Err(why) = self.this_port(search, port, kept) {
                            let errors = Errors::collect(|errors| {
                                let path = FieldPath::new("spec");
                                let path = path.child("ports");
                                errors.invalid(&path.index(index).child("nodePort"), port, why);
                            });
                            refused(service, &errors)?;
                        }
                        port
                    }
                    None => self.next_port(search)?,
                };
                entry.put("nodePort", port);
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
    let errors = Errors::collect(|errors| {
        let path = FieldPath::new("spec");
        let text = format!("failed to allocate IP {ip}: {why}");
        errors.invalid_value(&path.child("clusterIPs"), service.dig("spec.clusterIPs"), text);
    });
    ApiError::invalid(&GroupKind::new("", "Service"), meta::name(service), &errors)
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
            &Errors::collect(|errors| keeps_addresses(errors, service, old)),
        )?;
        let mut seen = Seen::default();
        for port in service.list("spec.ports") {
            let own = (port.text("protocol"), port.int("nodePort").unwrap_or_default());
            if seen.again(own) && own.1 != 0 && needs_node_port(service) {
                return Err(ApiError::raw_internal(format!(
                    "duplicate nodePort: {{{} {}}}",
                    own.0, own.1
                )));
            }
        }
        self.allocate(ctx, service, old).await
    }

    async fn after_delete(&self, _ctx: &WriteContext<'_>, service: &Value) {
        let gone = allocations(service);
        if let Some(shared) = &self.shared {
            shared.give_up(ports(&gone));
        }
        let owner = Owner::of(service);
        release(&self.client, self.shared.as_deref(), &owner, &self.pending, &gone).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::groups::check::{kind, with_spec};

    #[track_caller]
    fn check(spec: serde_json::Value, expected: &[&str]) {
        let service = json!({"spec": {"ports": [{"port": 80}]}});
        kind("services").create(&with_spec(service, &spec), expected);
    }

    #[test]
    fn addresses_and_ports_are_of_their_ranges() {
        check(json!({"clusterIP": "10.0.0.9"}), &[]);
        check(
            json!({"clusterIP": "10.1.0.9"}),
            &[
                r#"spec.clusterIPs: Invalid value: ["10.1.0.9"]: failed to allocate IP 10.1.0.9: the provided network does not match the current range"#,
            ],
        );
        let port = |port: i64| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
        check(port(30_000), &[]);
        check(port(32_767), &[]);
        for outside in [29_999, 32_768] {
            let error = format!(
                "spec.ports[0].nodePort: Invalid value: {outside}: provided port is not in the valid range. The range of valid ports is 30000-32767"
            );
            check(port(outside), &[]);
            let services = kind("services");
            let made = services.updated(
                "",
                &json!({"spec": {"ports": [{"port": 80}]}}),
                &json!({"spec": port(outside)}),
            );
            assert_eq!(made.err(), Some(vec![error]));
        }
    }
}
