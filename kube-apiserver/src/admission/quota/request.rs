//! The check of one write against the quotas of its namespace: which of them it is charged to, how much, and whether that fits.
//! Mirrors upstream's `CheckRequest`.

use std::collections::BTreeSet;

use generic_server::ApiError;
use generic_server::admission::{Attributes, Operation};
use machinery::meta;
use machinery::quantity::{Format, Quantity};
use serde_json::Value;

use super::evaluator::Evaluator;
use super::limited::LimitedResources;
use super::scopes::ScopeRequirement;
use crate::admission::forbidden;
use crate::json::Json;
use crate::resources::{Amounts, amounts};

/// The usage that a write adds to one quota.
#[derive(Debug, PartialEq)]
pub(super) struct Charge<'q> {
    pub(super) quota: &'q Value,
    pub(super) delta: Amounts,
}

fn zero() -> Quantity {
    Quantity::from_i64(0, Format::DecimalSI)
}

/// The difference, never below zero.
fn growth(new: &Amounts, old: &Amounts) -> Amounts {
    let grown = new.iter().map(|(name, quantity)| match old.get(name) {
        Some(before) => (name.clone(), quantity.sub(before)),
        None => (name.clone(), quantity.clone()),
    });
    grown.filter(|(_, quantity)| quantity.signum() > 0).collect()
}

/// The quotas that a write is charged to.
///
/// # Errors
/// 403 for an object that is not to be charged: it does not state what a quota counts, nothing covers a limited resource, or the usage of a quota is
/// not known.
pub(super) fn charges<'q>(
    evaluator: &Evaluator,
    attributes: &Attributes<'_>,
    object: &Value,
    quotas: &'q [Value],
    limited: &LimitedResources,
) -> Result<Vec<Charge<'q>>, ApiError> {
    let refuse = |why: String| forbidden(attributes, Some(object), why);
    let usage = evaluator.usage(object);
    let mut covered: BTreeSet<&str> = BTreeSet::new();
    let mut covered_scopes: BTreeSet<String> = BTreeSet::new();
    let mut interesting: Vec<(&Value, Vec<ScopeRequirement>)> = Vec::new();
    for quota in quotas {
        let scopes = ScopeRequirement::of_quota(quota);
        let within = |scope: &&ScopeRequirement| evaluator.within(scope, object);
        covered_scopes.extend(scopes.iter().filter(within).map(|scope| scope.scope.clone()));
        let hard = quota.entries("status.hard").map(|(name, _)| name);
        let counted: Vec<&str> = hard.filter(|name| evaluator.counts(name)).collect();
        if counted.is_empty() || !scopes.iter().all(|scope| evaluator.within(scope, object)) {
            continue;
        }
        let name = meta::name(quota);
        evaluator
            .check_stated(&counted, object)
            .map_err(|why| refuse(format!("failed quota: {name}: {why}")))?;
        let used = quota.dig("status.used");
        if counted.iter().any(|name| used.get(name).is_none()) {
            let names: BTreeSet<&str> = counted.iter().copied().collect();
            let names: Vec<&str> = names.into_iter().collect();
            return Err(refuse(format!(
                "status unknown for quota: {name}, resources: {}",
                names.join(",")
            )));
        }
        covered.extend(counted);
        interesting.push((quota, scopes));
    }
    let negative: Vec<&str> = usage
        .iter()
        .filter(|(_, quantity)| quantity.signum() < 0)
        .map(|(name, _)| name.as_str())
        .collect();
    if !negative.is_empty() {
        let names = negative.join(",");
        return Err(refuse(format!(
            "quota usage is negative for resource(s): {names}"
        )));
    }
    let nonzero = growth(&usage, &Amounts::new());
    let grown = match (attributes.operation, attributes.old) {
        (Operation::Update, Some(old)) => growth(&usage, &evaluator.usage(old)),
        _ => nonzero.clone(),
    };
    let mut charges: Vec<Charge<'q>> = Vec::new();
    for (quota, scopes) in &interesting {
        // An object that moves into a quota's scopes is charged whole.
        let was_within = attributes
            .old
            .is_none_or(|old| scopes.iter().all(|scope| evaluator.within(scope, old)));
        let delta = if was_within { &grown } else { &nonzero };
        if !delta.is_empty() {
            charges.push(Charge {
                quota,
                delta: delta.clone(),
            });
        }
    }
    let nothing_changes = match interesting.is_empty() {
        true => grown.is_empty(),
        false => charges.is_empty(),
    };
    if nothing_changes {
        return Ok(Vec::new());
    }
    check_limited(
        evaluator,
        attributes,
        object,
        &nonzero,
        limited,
        &covered,
        &covered_scopes,
    )?;
    Ok(charges)
}

/// Refuses what only a quota may allow, when there is none that covers it.
fn check_limited(
    evaluator: &Evaluator,
    attributes: &Attributes<'_>,
    object: &Value,
    usage: &Amounts,
    limited: &LimitedResources,
    covered: &BTreeSet<&str>,
    covered_scopes: &BTreeSet<String>,
) -> Result<(), ApiError> {
    let gvr = attributes.gvr;
    let of_resource = limited
        .list
        .iter()
        .filter(|one| one.api_group == *gvr.group && one.resource == *gvr.resource);
    let mut uncovered: BTreeSet<&str> = BTreeSet::new();
    for one in of_resource {
        let is_limited = |name: &&str| one.match_contains.iter().any(|part| name.contains(part.as_str()));
        let names = usage.keys().map(String::as_str).filter(is_limited);
        uncovered.extend(names.filter(|name| !covered.contains(name)));
    }
    if !uncovered.is_empty() {
        let names: Vec<&str> = uncovered.into_iter().collect();
        let why = format!("insufficient quota to consume: {}", names.join(","));
        return Err(forbidden(attributes, Some(object), why));
    }
    if !evaluator.has_scopes() {
        return Ok(());
    }
    // Upstream looks at the scopes of every entry, whatever resource that is for.
    let scopes = limited.list.iter().flat_map(|one| &one.match_scopes);
    let scopes = scopes.filter(|scope| evaluator.within(scope, object));
    let scopes: Vec<String> = scopes
        .filter(|scope| !covered_scopes.contains(&scope.scope))
        .map(ToString::to_string)
        .collect();
    match scopes.is_empty() {
        true => Ok(()),
        false => Err(ApiError::raw_internal(format!(
            "insufficient quota to match these scopes: [{}]",
            scopes.join(" ")
        ))),
    }
}

/// Whether a charge fits into a quota; gives what is used after it.
pub(super) fn fit(
    attributes: &Attributes<'_>,
    object: &Value,
    quota: &Value,
    delta: &Amounts,
) -> Result<Amounts, ApiError> {
    let hard = amounts(quota.dig("status.hard"));
    let used = amounts(quota.dig("status.used"));
    let requested: Amounts = delta
        .iter()
        .filter(|(name, _)| hard.contains_key(*name))
        .map(|(name, quantity)| (name.clone(), quantity.clone()))
        .collect();
    let zero = zero();
    let mut after = Amounts::new();
    let mut exceeded: Vec<&String> = Vec::new();
    for (name, quantity) in &requested {
        let sum = used.get(name).unwrap_or(&zero).add(quantity);
        if hard.get(name).is_some_and(|limit| sum > *limit) {
            exceeded.push(name);
        }
        after.insert(name.clone(), sum);
    }
    // A status says what is, and is charged even where that is too much.
    if exceeded.is_empty() || attributes.subresource == "status" {
        return Ok(after);
    }
    let show = |from: &Amounts| {
        let items = exceeded
            .iter()
            .map(|name| format!("{name}={}", from.get(*name).unwrap_or(&zero)));
        items.collect::<Vec<_>>().join(",")
    };
    let why = format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        meta::name(quota),
        show(&requested),
        show(&used),
        show(&hard)
    );
    Err(forbidden(attributes, Some(object), why))
}
