//! POST, and the creating half of PUT and apply.

use machinery::{ApiError, GroupResource, Reason, meta};
use rand::RngExt;
use serde_json::Value;

use super::{Stored, WriteCall, managed, match_namespace, metadata, sent_version, without_version};
use crate::admission::Operation;
use crate::cpu;
use crate::registry::store::Written;
use crate::registry::strategy::{Finisher, WriteContext};

/// How often a generated name that is taken is generated again.
const GENERATE_ATTEMPTS: usize = 8;
/// Letters of generated names: no vowels, so no words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The longest prefix that leaves room for the five random letters.
const MAX_PREFIX: usize = 58;

/// Creates an object. It has been decoded, defaulted and given its managed fields; the rest is everything from
/// mutating admission on.
pub async fn create(call: &WriteCall<'_>, object: Value) -> Result<Stored, ApiError> {
    create_as(call, object, Asked::Create).await
}

/// The operation that the client asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// A new object; it cannot have a resourceVersion.
    Create,
    /// A PUT or an apply of what turned out to be missing: a resourceVersion is passed over.
    Write,
}

pub(super) async fn create_as(
    call: &WriteCall<'_>,
    mut object: Value,
    asked: Asked,
) -> Result<Stored, ApiError> {
    match_namespace(call, &mut object)?;
    call.leave_when_costly().await;
    let given = meta::name(&object).to_string();
    call.admission
        .admit(
            &call.attributes(Operation::Create, &given, None),
            Some(&mut object),
        )
        .await?;
    managed::dedup_owners(call.authorized, &mut object, true);
    cpu::slice().await;
    let generated = meta::name(&object).is_empty() && !meta::generate_name(&object).is_empty();
    if generated {
        for _ in 1..GENERATE_ATTEMPTS {
            match create_named(call, object.clone(), generated, asked).await {
                Err(error) if error.reason() == Reason::AlreadyExists => {}
                done => return done,
            }
        }
    }
    create_named(call, object, generated, asked).await
}

async fn create_named(
    call: &WriteCall<'_>,
    mut object: Value,
    generated: bool,
    asked: Asked,
) -> Result<Stored, ApiError> {
    let store = call.store()?;
    if generated {
        let name = generate(meta::generate_name(&object));
        meta::set(&mut object, "name", name);
    }
    metadata::fill_system_fields(&mut object);
    let finisher = prepare(call, &mut object).await?;
    cpu::slice().await;
    let name = meta::name(&object).to_string();
    call.admission
        .validate(&call.attributes(Operation::Create, &name, None), Some(&object))
        .await?;
    cpu::slice().await;
    let resource = call.resource.gvr.group_resource();
    let prefix = meta::generate_name(&object).to_string();
    call.drop_empty_lists(&mut object);
    if call.dry_run {
        return match store.find(call.namespace, &name).await? {
            Some(existing) => Err(exists(&resource, &name, &prefix, &existing.value())),
            None => call.as_if_stored(object).map(Stored::Value),
        };
    }
    // One that is no number is passed over, as upstream does.
    if asked == Asked::Create && sent_version(&object).is_ok_and(|version| version != 0) {
        return Err(ApiError::new(
            500,
            Reason::Unknown,
            "resourceVersion should not be set on objects to be created",
        ));
    }
    let object = without_version(object);
    let guards = finisher
        .as_ref()
        .map_or_else(Vec::new, |finisher| finisher.guards());
    let stored = call.into_stored(object).await?;
    match store.put_guarded(None, &stored, guards).await? {
        Written::Stored(entry) => {
            if let Some(finisher) = finisher {
                finisher.commit();
            }
            Ok(Stored::Entry(entry))
        }
        Written::Lost(existing) => Err(exists(
            &resource,
            &name,
            &prefix,
            &existing.map(|e| e.value()).unwrap_or_default(),
        )),
    }
}

/// The conflict over a name. With a prefix for names it says that no free name was found, even of a name that the client
/// chose; an object on its way out is named as such.
fn exists(resource: &GroupResource, name: &str, prefix: &str, existing: &Value) -> ApiError {
    let mut error = ApiError::already_exists(resource, name);
    if !prefix.is_empty() {
        let message = format!(
            "{}, the server was not able to generate a unique name for the object",
            error.message()
        );
        error = error.with_message(message).with_retry_after(1);
    }
    if meta::deletion_timestamp(existing).is_some() {
        let message = format!("object is being deleted: {}", error.message());
        return error.with_message(message);
    }
    error
}

/// Upstream's `BeforeCreate`: hooks, strategy, validation, warnings, canonical form.
pub(super) async fn prepare(
    call: &WriteCall<'_>,
    object: &mut Value,
) -> Result<Option<Box<dyn Finisher>>, ApiError> {
    let context = call.context();
    match_namespace(call, object)?;
    call.strategy.prepare_for_create(&context, object);
    let finisher = match call.strategy.hooks() {
        Some(hooks) => hooks.begin_create(&context, object).await?,
        None => None,
    };
    cpu::slice().await;
    let context = WriteContext {
        expression_faults: &call.expression_faults(object).await,
        ..context
    };
    let mut errors = call.faults(object, None).await?;
    errors.extend(metadata::create_errors(call, object));
    errors.extend(call.strategy.validate_create(&context, object));
    errors.extend(call.refusal(&errors, object, None).await?);
    if errors.is_empty() {
        errors = metadata::common_create_errors(call, object);
    }
    if !errors.is_empty() {
        return Err(call.invalid(object, &errors));
    }
    for warning in call.strategy.warnings_on_create(&context, object) {
        call.authorized.context().warn(warning);
    }
    call.canonicalize(object);
    Ok(finisher)
}

fn generate(prefix: &str) -> String {
    let mut end = prefix.len().min(MAX_PREFIX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = String::from(&prefix[..end]);
    let mut rng = rand::rng();
    name.extend((0..5).map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())])));
    name
}
