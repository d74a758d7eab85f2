//! Authorities and the signing key that all replicas of a server have in common. Where they are kept is for the caller to say.
//!
//! Of each authority there may be several: the first signs, all are trusted. A successor is there long before it signs, so that
//! every replica has come to trust it by then, and the one before is trusted until it ends.

use std::path::Path;

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use super::authority::{AUTHORITY_LIFE, Authority, generate_key, public_key};
use super::{PkiError, files};

/// How long before an authority ends its successor is made, and begins to sign.
const SUCCESSOR_BEFORE: Duration = Duration::days(180);
const SIGNS_BEFORE: Duration = Duration::days(90);
/// How long an authority has been valid when one that has ended is dropped for it.
const SETTLED: Duration = Duration::days(30);
/// How old the newest key of service account tokens is when another one is made, and how long that one is accepted before it signs.
const ACCOUNT_KEY_EVERY: Duration = Duration::days(365);
const ACCOUNT_KEY_KNOWN: Duration = Duration::days(7);
/// How many of them are accepted. Tokens of Secrets never expire, so a key is not dropped because it is old.
const ACCOUNT_KEYS: usize = 16;

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Pair {
    certificate: String,
    key: String,
}

/// A key of service account tokens.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct AccountKey {
    key: String,
    /// When it was made, in seconds since the epoch; 0 when that is not known.
    since: i64,
}

/// The keys and authorities that replicas share.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shared {
    ca: Vec<Pair>,
    front_proxy_ca: Vec<Pair>,
    /// The first signs, all are accepted.
    #[serde(default)]
    service_account_keys: Vec<AccountKey>,
    /// The only one, as it was stored before keys were rotated.
    #[serde(default, skip_serializing)]
    service_account_key: Option<String>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the keys.
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// The material of a directory, with missing parts generated: replicas begin with it when none is stored yet.
    ///
    /// # Errors
    /// When files cannot be read, or keys cannot be made.
    pub fn of_directory(directory: &Path) -> Result<Self, PkiError> {
        Self::of_directory_at(OffsetDateTime::now_utc(), directory)
    }

    fn of_directory_at(now: OffsetDateTime, directory: &Path) -> Result<Self, PkiError> {
        let authority = |name: &str, common_name: &str| -> Result<Vec<Pair>, PkiError> {
            let (certificate, key) = files::paths(directory, name);
            let pair = match (files::read(&certificate)?, files::read(&key)?) {
                (Some(certificate), Some(key)) => Pair { certificate, key },
                // As `Pki::open` has it: a key is not replaced, and not without a word.
                (None, Some(key)) => Pair {
                    certificate: Authority::renewed_at(now, now + AUTHORITY_LIFE, common_name, &key)?
                        .certificate,
                    key,
                },
                (Some(_), None) => return Err(files::without_key(certificate, &key)),
                (None, None) => made(now, common_name)?,
            };
            Ok(vec![pair])
        };
        let service_account_key = match files::read(&directory.join("sa.key"))? {
            Some(key) => key,
            None => {
                let public = directory.join("sa.pub");
                if public.exists() {
                    return Err(files::without_key(public, &directory.join("sa.key")));
                }
                generate_key()?
            }
        };
        Ok(Shared {
            ca: authority("ca", "kubernetes")?,
            front_proxy_ca: authority("front-proxy-ca", "front-proxy-ca")?,
            service_account_keys: vec![AccountKey {
                key: service_account_key,
                since: now.unix_timestamp(),
            }],
            service_account_key: None,
        })
    }

    /// Brings authorities and keys up to date: authorities that have ended go, those that will end get a successor, which signs in
    /// time; a key of service account tokens gets one every year. True when something has changed and is to be stored.
    ///
    /// # Errors
    /// When a certificate cannot be read, or none can be made.
    pub fn rotate(&mut self) -> Result<bool, PkiError> {
        self.rotate_at(OffsetDateTime::now_utc())
    }

    fn rotate_at(&mut self, now: OffsetDateTime) -> Result<bool, PkiError> {
        let before = self.clone();
        rotate(now, &mut self.ca, "kubernetes")?;
        rotate(now, &mut self.front_proxy_ca, "front-proxy-ca")?;
        rotate_account_keys(now, &mut self.service_account_keys)?;
        Ok(before != *self)
    }

    /// Writes it into a directory, from which [`Pki::open`](super::Pki::open) takes it. True when something else was there, which is
    /// kept beside under names that end in `.replaced`.
    ///
    /// # Errors
    /// When files cannot be written.
    pub fn write(&self, directory: &Path) -> Result<bool, PkiError> {
        files::make_directory(directory)?;
        let mut replaced = false;
        for (name, pairs) in [("ca", &self.ca), ("front-proxy-ca", &self.front_proxy_ca)] {
            let (certificate, key) = files::paths(directory, name);
            let bundle: String = pairs.iter().map(|pair| line_ended(&pair.certificate)).collect();
            let keys: Vec<&str> = pairs.iter().map(|pair| pair.key.as_str()).collect();
            // The key first: a certificate is only there when its key is.
            replaced |= files::replace(&key, &keys)?;
            files::write(&certificate, bundle.as_bytes())?;
        }
        let keys: Vec<&str> = self
            .service_account_keys
            .iter()
            .map(|one| one.key.as_str())
            .collect();
        let public = keys.iter().map(|key| public_key(key).map(|pem| line_ended(&pem)));
        let public: String = public.collect::<Result<_, _>>()?;
        // The accepted keys are written before the signing keys, so that every signature can be verified.
        files::write(&directory.join("sa.pub"), public.as_bytes())?;
        replaced |= files::replace(&directory.join("sa.key"), &keys)?;
        Ok(replaced)
    }

    /// From what [`Shared::to_json`] gave.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        let mut shared: Shared = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let before = shared
            .service_account_key
            .take()
            .filter(|_| shared.service_account_keys.is_empty());
        shared
            .service_account_keys
            .extend(before.map(|key| AccountKey { key, since: 0 }));
        for pair in shared.ca.iter().chain(&shared.front_proxy_ca) {
            Authority::load(&pair.certificate, &pair.key).map_err(|error| error.to_string())?;
        }
        for one in &shared.service_account_keys {
            public_key(&one.key).map_err(|error| error.to_string())?;
        }
        if shared.ca.is_empty() || shared.front_proxy_ca.is_empty() {
            return Err("an authority is missing".into());
        }
        match shared.service_account_keys.is_empty() {
            true => Err("the key of service account tokens is missing".into()),
            false => Ok(shared),
        }
    }

    /// Its form in a store: with private keys.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

fn made(now: OffsetDateTime, common_name: &str) -> Result<Pair, PkiError> {
    let made = Authority::generate_at(now, common_name)?;
    Ok(Pair {
        certificate: made.certificate,
        key: made.key,
    })
}

/// How long a certificate goes on; negative when it has ended.
fn left(now: OffsetDateTime, pair: &Pair) -> Duration {
    let (_, to) = files::validity(&pair.certificate).unwrap_or_default();
    Duration::seconds(to - now.unix_timestamp())
}

/// From when on a certificate is valid, in time before `now`; negative when it is not valid yet.
fn begun(now: OffsetDateTime, pair: &Pair) -> Duration {
    let (from, _) = files::validity(&pair.certificate).unwrap_or_default();
    Duration::seconds(now.unix_timestamp() - from)
}

fn is_valid(now: OffsetDateTime, pair: &Pair) -> bool {
    left(now, pair).is_positive() && !begun(now, pair).is_negative()
}

fn rotate(now: OffsetDateTime, all: &mut Vec<Pair>, common_name: &str) -> Result<(), PkiError> {
    // One of a clock that was ahead goes where the same key has a certificate that is valid.
    let valid: Vec<String> = (all.iter().filter(|pair| is_valid(now, pair)))
        .map(|pair| pair.key.clone())
        .collect();
    all.retain(|pair| !begun(now, pair).is_negative() || !valid.contains(&pair.key));
    // An authority that has ended goes when another one has been trusted for long. Until then it may be the clock that is wrong.
    let is_settled = |pair: &Pair| is_valid(now, pair) && begun(now, pair) > SETTLED;
    if all.iter().any(is_settled) {
        all.retain(|pair| left(now, pair).is_positive());
    }
    if let Some(first) = all.first()
        && all.iter().all(|pair| !left(now, pair).is_positive())
    {
        tracing::warn!(
            "the authorities have ended by this machine's clock; their key is kept with another certificate"
        );
        let renewed = Authority::renewed_at(now, now + AUTHORITY_LIFE, common_name, &first.key)?;
        let key = first.key.clone();
        all.insert(
            0,
            Pair {
                certificate: renewed.certificate,
                key,
            },
        );
    }
    let signs = all.first().map(|pair| left(now, pair));
    if signs.is_none_or(|left| left < SUCCESSOR_BEFORE) && all.len() < 2 {
        all.push(made(now, common_name)?);
    }
    // The other is the one before when the first has signed for long, and ends sooner.
    if let [first, next, ..] = all.as_slice()
        && left(now, first) < SIGNS_BEFORE
        && left(now, next) > left(now, first)
    {
        all.rotate_left(1);
    }
    for pair in all {
        if begun(now, pair).is_negative() {
            // The clock was ahead when it was made.
            let ends = now + left(now, pair);
            pair.certificate = Authority::renewed_at(now, ends, common_name, &pair.key)?.certificate;
        }
    }
    Ok(())
}

fn rotate_account_keys(now: OffsetDateTime, all: &mut Vec<AccountKey>) -> Result<(), PkiError> {
    let now = now.unix_timestamp();
    for one in all.iter_mut() {
        // Not known, or the clock was ahead.
        if one.since == 0 || one.since > now {
            one.since = now;
        }
    }
    let newest = all.iter().map(|one| one.since).max();
    if newest.is_none_or(|since| now - since >= ACCOUNT_KEY_EVERY.whole_seconds()) {
        all.push(AccountKey {
            key: generate_key()?,
            since: now,
        });
    }
    let known = |one: &AccountKey| now - one.since >= ACCOUNT_KEY_KNOWN.whole_seconds();
    let signer = all.iter().enumerate().skip(1).filter(|(_, one)| known(one));
    let signer = signer
        .max_by_key(|(_, one)| one.since)
        .map(|(at, one)| (at, one.since));
    if let (Some((at, since)), Some(first)) = (signer, all.first())
        && since > first.since
    {
        all[..=at].rotate_right(1);
    }
    if let Some((_, accepted)) = all.split_first_mut() {
        accepted.sort_by_key(|one| std::cmp::Reverse(one.since));
    }
    all.truncate(ACCOUNT_KEYS);
    Ok(())
}

fn line_ended(pem: &str) -> String {
    format!("{}\n", pem.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{Pki, ServingNames, certificates};

    fn signs(shared: &Shared) -> &Pair {
        &shared.ca[0]
    }

    #[test]
    fn authorities_overlap() {
        let dir = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::now_utc();
        let mut shared = Shared::of_directory_at(now, dir.path()).unwrap();
        let first = signs(&shared).clone();
        assert!(!shared.rotate_at(now).unwrap());
        for (days, changes, trusted, first_signs) in [
            (3400, false, 1, true),
            (3500, true, 2, true),
            (3501, false, 2, true),
            (3600, true, 2, false),
            (3640, false, 2, false),
            (3651, true, 1, false),
            (6900, false, 1, false),
        ] {
            let before = shared.ca.clone();
            shared.rotate_at(now + Duration::days(days)).unwrap();
            let changed = shared.ca != before;
            assert_eq!(
                (changed, shared.ca.len(), *signs(&shared) == first),
                (changes, trusted, first_signs),
                "after {days} days"
            );
        }
        // No replica ran for years: who trusts the authority still does.
        let last = signs(&shared).clone();
        let late = now + Duration::days(20_000);
        assert!(shared.rotate_at(late).unwrap());
        assert_eq!(signs(&shared).key, last.key);
        assert!(is_valid(late, signs(&shared)));
        for (days, trusted) in [(29, 2), (31, 1)] {
            shared.rotate_at(late + Duration::days(days)).unwrap();
            assert_eq!((shared.ca.len(), shared.front_proxy_ca.len()), (trusted, trusted));
        }
    }

    /// A clock that is past the end of everything, and then put right.
    #[test]
    fn a_clock_that_was_ahead_leaves_the_authorities_as_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::now_utc();
        let mut shared = Shared::of_directory_at(now, dir.path()).unwrap();
        let before = shared.ca.clone();
        for ahead in [4000, 9000, 30_000] {
            let ahead = now + Duration::days(ahead);
            assert!(shared.rotate_at(ahead).unwrap());
            assert_eq!((shared.ca.len(), &signs(&shared).key), (2, &before[0].key));
            assert!(is_valid(ahead, signs(&shared)));
            assert!(!shared.rotate_at(ahead).unwrap(), "once");
            assert!(shared.rotate_at(now).unwrap());
            assert!(shared.ca == before, "the certificate of before goes on");
        }
    }

    #[test]
    fn account_keys_overlap() {
        let dir = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::now_utc();
        let at = |days: i64| now + Duration::days(days);
        let mut shared = Shared::of_directory_at(now, dir.path()).unwrap();
        let first = shared.service_account_keys[0].key.clone();
        // As it was stored before: its age is not known, and counts from now on.
        let mut json = shared.to_json();
        json["serviceAccountKeys"] = serde_json::Value::Null;
        json.as_object_mut().unwrap().remove("serviceAccountKeys");
        json["serviceAccountKey"] = first.as_str().into();
        let mut old = Shared::from_json(json.to_string().as_bytes()).unwrap();
        assert!(old.rotate_at(now).unwrap());
        assert!(old == shared);

        for (days, changes, accepted, first_signs) in [
            (0, false, 1, true),
            (364, false, 1, true),
            (366, true, 2, true),
            (372, false, 2, true),
            (374, true, 2, false),
            (700, false, 2, false),
            (735, true, 3, false),
        ] {
            let changed = shared.rotate_at(at(days)).unwrap();
            let keys = &shared.service_account_keys;
            assert_eq!(
                (changed, keys.len(), keys[0].key == first),
                (changes, accepted, first_signs),
                "after {days} days"
            );
            let replaced = shared.write(dir.path()).unwrap();
            assert!(!replaced, "a key that is rotated is none of another server");
            let pki = Pki::open(dir.path(), &ServingNames::default()).unwrap();
            assert_eq!(pki.service_account_key, keys[0].key);
            let public = pki
                .service_account_public_keys
                .matches("BEGIN PUBLIC KEY")
                .count();
            assert_eq!(public, accepted, "after {days} days");
        }
        for year in 3..40 {
            shared.rotate_at(at(year * 366)).unwrap();
        }
        let keys = &shared.service_account_keys;
        assert_eq!(keys.len(), ACCOUNT_KEYS);
        assert!(keys.iter().all(|one| one.key != first), "the oldest goes");
    }

    #[test]
    fn directories_take_over_shared_keys() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let names = ServingNames::default();
        // One server was there before.
        let before = Pki::open(one.path(), &names).unwrap();
        let shared = Shared::of_directory(one.path()).unwrap();
        let shared = Shared::from_json(shared.to_json().to_string().as_bytes()).unwrap();
        assert!(!shared.write(one.path()).unwrap(), "it is its own");
        assert!(!shared.write(other.path()).unwrap(), "there was nothing");
        for dir in [&one, &other] {
            let pki = Pki::open(dir.path(), &names).unwrap();
            assert_eq!(pki.service_account_key, before.service_account_key);
            assert_eq!(pki.ca.certificate.trim(), before.ca.certificate.trim());
        }
        // The server's own former key is kept beside the new one.
        let third = tempfile::tempdir().unwrap();
        let own = Pki::open(third.path(), &names).unwrap();
        assert!(shared.write(third.path()).unwrap());
        let kept = std::fs::read_to_string(third.path().join("sa.key.replaced")).unwrap();
        assert_eq!(kept, own.service_account_key);

        // With a successor all trust both, and the first signs.
        let mut shared = shared;
        let late = OffsetDateTime::now_utc() + Duration::days(3500);
        shared.rotate_at(late).unwrap();
        shared.write(other.path()).unwrap();
        let pki = Pki::open(other.path(), &names).unwrap();
        assert_eq!(certificates(&pki.ca.certificate).unwrap().len(), 2);
        assert_eq!(pki.ca.key, before.ca.key);
    }

    #[test]
    fn incomplete_material_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::of_directory(dir.path()).unwrap();
        for (field, value) in [
            ("ca", serde_json::json!([])),
            ("ca", serde_json::json!([{"certificate": "x", "key": "y"}])),
            ("serviceAccountKeys", serde_json::json!([])),
            (
                "serviceAccountKeys",
                serde_json::json!([{"key": "nonsense", "since": 1}]),
            ),
            ("frontProxyCa", serde_json::Value::Null),
        ] {
            let mut json = shared.to_json();
            json[field] = value;
            assert!(Shared::from_json(json.to_string().as_bytes()).is_err(), "{field}");
        }
    }
}
