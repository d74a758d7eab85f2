//! A [`Pki`] in a directory: which files there are, when they still fit, and how they are written.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use time::{Duration, OffsetDateTime};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::X509Certificate;

use super::authority::{AUTHORITY_LIFE, Authority, Issued, generate_key, public_key};
use super::{Pki, PkiError, ServingNames, certificates};

/// The remaining validity below which a certificate is reissued.
const RENEW_BEFORE: Duration = Duration::days(30);
/// Certificates of an authority that are kept behind the one that holds now.
const KEPT_CERTIFICATES: usize = 4;

pub(super) fn open(directory: &Path, names: &ServingNames) -> Result<Pki, PkiError> {
    open_at(OffsetDateTime::now_utc(), directory, names)
}

fn open_at(now: OffsetDateTime, directory: &Path, names: &ServingNames) -> Result<Pki, PkiError> {
    make_directory(directory)?;
    let ca = authority(now, directory, "ca", "kubernetes")?;
    let front_proxy_ca = authority(now, directory, "front-proxy-ca", "front-proxy-ca")?;
    let wanted = names.all();
    let serving = issued(now, directory, "apiserver", &ca, Some(&wanted), || {
        ca.server_at(now, "kube-apiserver", &wanted)
    })?;
    let front_proxy_client = issued(
        now,
        directory,
        "front-proxy-client",
        &front_proxy_ca,
        None,
        || front_proxy_ca.client_at(now, "front-proxy-client", ""),
    )?;
    let admin = issued(now, directory, "admin", &ca, None, || {
        ca.client_at(now, "kubernetes-admin", "system:masters")
    })?;
    let (service_account_key, service_account_public_keys) = account_keys(directory)?;
    Ok(Pki {
        directory: Some(directory.to_path_buf()),
        ca,
        front_proxy_ca,
        serving,
        front_proxy_client,
        admin,
        service_account_key,
        service_account_public_keys,
    })
}

/// The authority of a directory. Its key is never replaced, since clients trust it. When its certificate does not hold, the key gets
/// another one of the same name, by which all that it has signed still verifies.
fn authority(
    now: OffsetDateTime,
    directory: &Path,
    name: &str,
    common_name: &str,
) -> Result<Authority, PkiError> {
    let (certificate_path, key_path) = paths(directory, name);
    let content = |problem: String| PkiError::Content {
        path: certificate_path.clone(),
        problem,
    };
    let unusable = |error: PkiError| content(format!("is unusable ({error})"));
    let (bundle, key) = match (read(&certificate_path)?, read(&key_path)?) {
        (Some(bundle), Some(key)) => (bundle, key),
        (Some(_), None) => {
            return Err(without_key(certificate_path, &key_path));
        }
        (None, Some(key)) => {
            tracing::warn!(path = %certificate_path.display(), "the certificate of an authority is gone; its key is given a new one");
            let made = Authority::renewed_at(now, now + AUTHORITY_LIFE, common_name, &key)
                .map_err(|error| no_key(&key_path, &error))?;
            write(&certificate_path, made.certificate.as_bytes())?;
            return Ok(made);
        }
        (None, None) => {
            let made = Authority::generate_at(now, common_name)?;
            // The key first: a certificate is only there when its key is.
            write(&key_path, made.key.as_bytes())?;
            write(&certificate_path, made.certificate.as_bytes())?;
            return Ok(made);
        }
    };
    let all = blocks(&bundle);
    let first = *all
        .first()
        .ok_or_else(|| content("holds no certificate".into()))?;
    let state = holds(now, first).map_err(content)?;
    public_key(&key).map_err(|error| no_key(&key_path, &error))?;
    pair_of(first, &key).map_err(|error| content(format!("does not fit its key ({error})")))?;
    if state == Holds::Yes {
        return Authority::load(&bundle, &key).map_err(unusable);
    }
    let others = |but: &str| -> String {
        let of_a_wrong_clock = |pem: &str| is_early(now, pem) && pair_of(pem, &key).is_ok();
        let kept = all.iter().filter(|pem| **pem != but && !of_a_wrong_clock(pem));
        kept.take(KEPT_CERTIFICATES).copied().collect()
    };
    // The clock may have been wrong, or may be: the certificate of before holds again, and only then goes first.
    let earlier = all[1..]
        .iter()
        .find(|pem| holds(now, pem) == Ok(Holds::Yes) && pair_of(pem, &key).is_ok());
    let renewed = match earlier {
        Some(earlier) => format!("{earlier}{}", others(earlier)),
        None => {
            let ends = match state {
                Holds::NotYet => {
                    validity(first).and_then(|(_, to)| OffsetDateTime::from_unix_timestamp(to).ok())
                }
                _ => None,
            };
            let ends = ends.unwrap_or(now + AUTHORITY_LIFE);
            let made = Authority::renewed_at(now, ends, common_name, &key).map_err(unusable)?;
            format!("{}{}", made.certificate, others(""))
        }
    };
    tracing::warn!(
        path = %certificate_path.display(),
        again = earlier.is_some(),
        "the certificate of an authority has ended, ends soon, or is not valid yet by this machine's clock; its key is kept with another certificate"
    );
    write(&certificate_path, renewed.as_bytes())?;
    Authority::load(&renewed, &key).map_err(unusable)
}

/// Something public whose private key is gone: others trust it, so it is not replaced.
pub(super) fn without_key(path: PathBuf, key: &Path) -> PkiError {
    let problem = format!("has lost its key, `{}`", key.display());
    PkiError::Content { path, problem }
}

fn no_key(path: &Path, error: &PkiError) -> PkiError {
    PkiError::Content {
        path: path.to_path_buf(),
        problem: format!("is no usable private key ({error})"),
    }
}

/// The certificates of a PEM text, each a text of its own.
fn blocks(bundle: &str) -> Vec<&str> {
    const END: &str = "-----END CERTIFICATE-----";
    let pieces = bundle.split_inclusive(END).map(str::trim_start);
    let mut blocks: Vec<&str> = Vec::new();
    let mut at = 0;
    for piece in pieces.filter(|piece| piece.ends_with(END)) {
        // With the line's end, where there is one.
        let from = at + bundle[at..].find(piece).unwrap_or(0);
        at = from + piece.len();
        let end = at + usize::from(bundle[at..].starts_with('\n'));
        blocks.push(&bundle[from..end]);
    }
    blocks
}

fn pair_of(certificate: &str, key: &str) -> Result<Issued, PkiError> {
    let pair = Issued {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
    };
    pair.certified_key().map(|_| pair)
}

fn issued(
    now: OffsetDateTime,
    directory: &Path,
    name: &str,
    by: &Authority,
    names: Option<&[String]>,
    make: impl FnOnce() -> Result<Issued, PkiError>,
) -> Result<Issued, PkiError> {
    let (certificate_path, key_path) = paths(directory, name);
    let there = match (read(&certificate_path)?, read(&key_path)?) {
        // A damaged pair is replaced, too.
        (Some(certificate), Some(key)) => pair_of(&certificate, &key).ok(),
        _ => None,
    };
    if let Some(pair) = &there
        && fits(now, &pair.certificate, by, names)
    {
        return Ok(pair.clone());
    }
    if certificate_path.exists() {
        tracing::info!(path = %certificate_path.display(), "a certificate is reissued");
    }
    let made = make()?;
    let written = write_all(&[
        (&key_path, made.key.as_bytes()),
        (&certificate_path, made.certificate.as_bytes()),
    ]);
    match (written, there) {
        (Ok(()), _) => Ok(made),
        // On a full disk one that is valid for other names is better than none.
        (Err(error), Some(pair)) if error.is_full() && fits(now, &pair.certificate, by, None) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a certificate cannot be written; the one that is there is used until there is room"
            );
            Ok(pair)
        }
        (Err(error), _) => Err(error),
    }
}

/// The key that signs service account tokens, and the public keys that are accepted.
fn account_keys(directory: &Path) -> Result<(String, String), PkiError> {
    let path = directory.join("sa.key");
    let file = directory.join("sa.pub");
    let key = match read(&path)? {
        Some(key) => key,
        // A new one would end every token.
        None if file.exists() => {
            return Err(without_key(file, &path));
        }
        None => {
            let key = generate_key()?;
            write(&path, key.as_bytes())?;
            key
        }
    };
    let public = public_key(&key).map_err(|error| no_key(&path, &error))?;
    match read(&file)? {
        // Those that have signed before are there, too.
        Some(all) if all.contains(public.trim_end()) => Ok((key, all)),
        // Without the keys of before their tokens end.
        Some(_) => Err(PkiError::Content {
            path: file,
            problem: format!(
                "does not have the public key of `{}`: with that key alone, tokens of before are refused",
                path.display()
            ),
        }),
        None => {
            write(&file, public.as_bytes())?;
            Ok((key, public))
        }
    }
}

pub(super) fn paths(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
    (
        directory.join(format!("{name}.crt")),
        directory.join(format!("{name}.key")),
    )
}

fn with_parsed<T>(pem: &str, look: impl FnOnce(&X509Certificate<'_>) -> T) -> Result<T, String> {
    let der = certificates(pem).map_err(|e| e.to_string())?;
    let first = der.first().ok_or("holds no certificate")?;
    let (_, parsed) = x509_parser::parse_x509_certificate(first)
        .map_err(|e| format!("holds an unreadable certificate ({e})"))?;
    Ok(look(&parsed))
}

/// When the first certificate of a PEM text expires, in seconds since the epoch; `None` when it cannot be read.
pub fn expires(pem: &str) -> Option<i64> {
    validity(pem).map(|(_, to)| to)
}

/// From when to when the first certificate of a PEM text is valid, in seconds since the epoch; `None` when it cannot be read.
pub fn validity(pem: &str) -> Option<(i64, i64)> {
    with_parsed(pem, |c| {
        let validity = c.validity();
        (validity.not_before.timestamp(), validity.not_after.timestamp())
    })
    .ok()
}

/// Which of some authorities a chain of certificates ends in: by name and key, or by being in the chain itself. All are PEM texts.
pub fn issuer_among<'a>(chain: &str, authorities: &[&'a str]) -> Option<&'a str> {
    let chain = certificates(chain).ok()?;
    let last = chain.last()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(last).ok()?;
    let wanted = parsed
        .iter_extensions()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0.to_vec()),
            _ => None,
        });
    let itself = parsed.subject().as_raw() == parsed.issuer().as_raw();
    let issued = |der: &[u8]| {
        if itself {
            return der == &**last;
        }
        let Ok((_, authority)) = x509_parser::parse_x509_certificate(der) else {
            return false;
        };
        let key = authority
            .iter_extensions()
            .find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
                _ => None,
            });
        let by_key = wanted.is_none() || key.is_none() || wanted == key;
        authority.subject().as_raw() == parsed.issuer().as_raw() && by_key
    };
    let holds = |pem: &str| certificates(pem).is_ok_and(|all| all.iter().any(|der| issued(der)));
    authorities.iter().copied().find(|pem| holds(pem))
}

/// Whether a certificate is valid now and for long enough.
#[derive(Debug, PartialEq, Eq)]
enum Holds {
    /// It begins later: it was made when the clock was ahead.
    NotYet,
    Yes,
    /// It has ended or soon will.
    Ends,
}

fn is_early(now: OffsetDateTime, pem: &str) -> bool {
    validity(pem).is_some_and(|(from, _)| from > now.unix_timestamp())
}

fn holds(now: OffsetDateTime, pem: &str) -> Result<Holds, String> {
    let limit = (now + RENEW_BEFORE).unix_timestamp();
    with_parsed(pem, |c| {
        let validity = c.validity();
        if validity.not_after.timestamp() <= limit {
            Holds::Ends
        } else if validity.not_before.timestamp() > now.unix_timestamp() {
            Holds::NotYet
        } else {
            Holds::Yes
        }
    })
}

/// Whether a certificate is valid for long enough, of this authority and for exactly these names.
fn fits(now: OffsetDateTime, pem: &str, by: &Authority, names: Option<&[String]>) -> bool {
    let authority_key = with_parsed(&by.certificate, |c| {
        c.iter_extensions().find_map(|e| match e.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        })
    });
    let Ok(Some(authority_key)) = authority_key else {
        return false;
    };
    let same = with_parsed(pem, |c| {
        let signed_by = c.iter_extensions().any(|e| match e.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                id.key_identifier.as_ref().is_some_and(|id| id.0 == authority_key)
            }
            _ => false,
        });
        signed_by && names.is_none_or(|names| alternative_names(c) == names)
    });
    matches!((holds(now, pem), same), (Ok(Holds::Yes), Ok(true)))
}

fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    if let Ok(Some(extension)) = certificate.subject_alternative_name() {
        for name in &extension.value.general_names {
            match name {
                GeneralName::DNSName(dns) => names.push((*dns).to_string()),
                GeneralName::IPAddress(bytes) => {
                    if let Ok(v4) = <[u8; 4]>::try_from(*bytes) {
                        names.push(IpAddr::from(v4).to_string());
                    } else if let Ok(v6) = <[u8; 16]>::try_from(*bytes) {
                        names.push(IpAddr::from(v6).to_string());
                    }
                }
                _ => {}
            }
        }
    }
    names.sort();
    names
}

pub(super) fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

/// Writes a file that only the owner may read, all or nothing. One that is there with this content is left as it is.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<(), PkiError> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    write_all(&[(path, content)])
}

/// Writes files that belong together: none of them while there is no room for all.
fn write_all(files: &[(&Path, &[u8])]) -> Result<(), PkiError> {
    let mut staged = Vec::with_capacity(files.len());
    for (path, content) in files {
        match stage(path, content) {
            Ok(fresh) => staged.push(fresh),
            Err(error) => {
                // They hold keys that are of no use. The next attempt overwrites them, too.
                staged.iter().for_each(|fresh| drop(fs::remove_file(fresh)));
                return Err(error);
            }
        }
    }
    for (fresh, (path, _)) in staged.iter().zip(files) {
        fs::rename(fresh, path).map_err(failed("write", path))?;
    }
    // They are all in one directory.
    match files.first().and_then(|(path, _)| path.parent()) {
        Some(directory) => sync_directory(directory),
        None => Ok(()),
    }
}

/// Makes the names in a directory durable: a key that others trust must not be gone after a loss of power.
fn sync_directory(directory: &Path) -> Result<(), PkiError> {
    let synced = fs::File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(failed("sync", directory))
}

/// Writes a file under another name, durably. What cannot be written leaves nothing behind.
fn stage(path: &Path, content: &[u8]) -> Result<PathBuf, PkiError> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let fresh = path.with_file_name(name);
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options
        .open(&fresh)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()));
    if let Err(error) = written {
        // The next attempt overwrites it, too.
        let _ = fs::remove_file(&fresh);
        return Err(failed("write", path)(error));
    }
    Ok(fresh)
}

pub(super) fn make_directory(path: &Path) -> Result<(), PkiError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(failed("create", path))
}

/// Writes the first of some keys, and keeps what was there beside it when it is none of them. True when it is none of them.
pub(super) fn replace(path: &Path, keys: &[&str]) -> Result<bool, PkiError> {
    let content = keys.first().copied().unwrap_or_default();
    let before = read(path)?.filter(|before| !keys.contains(&before.as_str()));
    if let Some(before) = &before {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".replaced");
        write(&path.with_file_name(name), before.as_bytes())?;
    }
    write(path, content.as_bytes())?;
    Ok(before.is_some())
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> PkiError + 'a {
    move |source| PkiError::File {
        action,
        path: path.to_path_buf(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(extra: &str) -> ServingNames {
        ServingNames {
            extra: vec![extra.into()],
            service_ips: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            domain: String::new(),
        }
    }

    #[test]
    fn kept_and_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pki");
        let first = open(&path, &names("a.example")).unwrap();
        let again = open(&path, &names("a.example")).unwrap();
        assert_eq!(first.serving.certificate, again.serving.certificate);
        assert_eq!(first.ca.certificate, again.ca.certificate);
        assert_eq!(first.service_account_key, again.service_account_key);

        let renamed = open(&path, &names("b.example")).unwrap();
        assert_ne!(first.serving.certificate, renamed.serving.certificate);
        assert_eq!(first.admin.certificate, renamed.admin.certificate);

        for name in ["ca.crt", "ca.key"] {
            fs::remove_file(path.join(name)).unwrap();
        }
        let other = open(&path, &names("b.example")).unwrap();
        assert_ne!(
            other.admin.certificate, renamed.admin.certificate,
            "of the old authority"
        );
        assert_eq!(
            other.front_proxy_client.certificate,
            renamed.front_proxy_client.certificate
        );

        // A pair that does not fit (a crash between two files) is replaced.
        fs::copy(path.join("sa.key"), path.join("admin.key")).unwrap();
        let repaired = open(&path, &names("b.example")).unwrap();
        repaired.admin.certified_key().unwrap();
    }

    /// The seconds from and to which what is in a directory is valid, but for keys: every certificate, by name.
    fn validities(pki: &Pki) -> [(i64, i64); 5] {
        [
            &pki.ca.certificate,
            &pki.front_proxy_ca.certificate,
            &pki.serving.certificate,
            &pki.front_proxy_client.certificate,
            &pki.admin.certificate,
        ]
        .map(|pem| validity(pem).unwrap())
    }

    #[test]
    fn clocks_that_were_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let names = names("a.example");
        let now = OffsetDateTime::now_utc();
        let at = |days: i64| now + Duration::days(days);

        // 400 days ahead, and then corrected: everything is valid again, and what was signed still is of the same authority.
        let ahead = open_at(at(400), dir.path(), &names).unwrap();
        let corrected = open_at(now, dir.path(), &names).unwrap();
        for (from, to) in validities(&corrected) {
            assert!(from <= now.unix_timestamp() && to > at(300).unix_timestamp());
        }
        assert_eq!(ahead.ca.key, corrected.ca.key);
        assert_ne!(ahead.ca.certificate, corrected.ca.certificate);
        assert!(fits(at(400), &ahead.admin.certificate, &corrected.ca, None));
        assert_eq!(ahead.service_account_key, corrected.service_account_key);

        // Back by less than a day: nothing is recreated, and all of it is valid.
        let hours = now - Duration::hours(23);
        let back = open_at(hours, dir.path(), &names).unwrap();
        assert_eq!(back.admin.certificate, corrected.admin.certificate);
        for (from, _) in validities(&back) {
            assert!(from <= hours.unix_timestamp());
        }

        // Back by years: an authority that is not valid yet is kept, and not replaced by one that others do not know.
        let past = open_at(at(-4000), dir.path(), &names).unwrap();
        assert_eq!(past.ca.key, corrected.ca.key);
        let again = open_at(now, dir.path(), &names).unwrap();
        for (from, to) in validities(&again) {
            assert!(from <= now.unix_timestamp() && to > now.unix_timestamp());
        }
        assert_eq!(again.ca.key, corrected.ca.key);
    }

    /// Trust in an authority outlives a clock that is past its end: the key is kept, and the certificate of before when time is right.
    #[test]
    fn a_clock_past_the_end_of_an_authority_does_not_replace_it() {
        let dir = tempfile::tempdir().unwrap();
        let names = names("a.example");
        let now = OffsetDateTime::now_utc();
        let before = open_at(now, dir.path(), &names).unwrap();
        let trusted = Authority::load(&before.ca.certificate, &before.ca.key).unwrap();
        for days in [3640, 4000, 20_000] {
            let ahead = now + Duration::days(days);
            let jumped = open_at(ahead, dir.path(), &names).unwrap();
            assert_eq!(jumped.ca.key, before.ca.key);
            assert_eq!(jumped.front_proxy_ca.key, before.front_proxy_ca.key);
            assert!(
                jumped.ca.certificate.ends_with(&before.ca.certificate),
                "both are there"
            );
            for (from, to) in validities(&jumped) {
                assert!(from <= ahead.unix_timestamp() && to > ahead.unix_timestamp());
            }
            // Who has only the certificate of before verifies what is signed now.
            assert!(fits(ahead, &jumped.serving.certificate, &trusted, None));
            let again = open_at(ahead, dir.path(), &names).unwrap();
            assert_eq!(again.ca.certificate, jumped.ca.certificate, "once");

            let right = open_at(now, dir.path(), &names).unwrap();
            assert_eq!(right.ca.certificate, before.ca.certificate);
            assert_eq!(right.service_account_key, before.service_account_key);
            for (from, to) in validities(&right) {
                assert!(from <= now.unix_timestamp() && to > now.unix_timestamp());
            }
        }
    }

    #[test]
    fn a_key_is_not_overwritten_and_one_that_is_lost_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let names = names("a.example");
        let before = open(dir.path(), &names).unwrap();
        for (name, its) in [("ca", &before.ca), ("front-proxy-ca", &before.front_proxy_ca)] {
            let (certificate, key) = paths(dir.path(), name);
            fs::remove_file(&certificate).unwrap();
            let after = open(dir.path(), &names).unwrap();
            assert_eq!(fs::read_to_string(&key).unwrap(), its.key);
            assert_eq!(
                after.admin.certificate, before.admin.certificate,
                "it still verifies"
            );
        }
        for (public, key) in [
            ("ca.crt", "ca.key"),
            ("front-proxy-ca.crt", "front-proxy-ca.key"),
            ("sa.pub", "sa.key"),
        ] {
            let (public, key) = (dir.path().join(public), dir.path().join(key));
            let kept = fs::read(&key).unwrap();
            fs::remove_file(&key).unwrap();
            for refused in [
                open(dir.path(), &names).map(drop).unwrap_err(),
                super::super::Shared::of_directory(dir.path())
                    .map(drop)
                    .unwrap_err(),
            ] {
                let text = refused.to_string();
                let named = text.contains(&format!("{}` has lost its key", public.display()));
                assert!(named && text.contains(&format!("{}`", key.display())), "{text}");
            }
            assert!(!key.exists());
            fs::write(&key, kept).unwrap();
        }
        open(dir.path(), &names).unwrap();
    }

    #[test]
    fn a_broken_key_is_named_and_a_strange_one_refused() {
        let dir = tempfile::tempdir().unwrap();
        let names = names("a.example");
        open(dir.path(), &names).unwrap();
        let key = fs::read(dir.path().join("ca.key")).unwrap();
        fs::write(dir.path().join("ca.key"), "nonsense").unwrap();
        let text = open(dir.path(), &names).map(drop).unwrap_err().to_string();
        assert!(text.contains("ca.key` is no usable private key"), "{text}");
        fs::write(dir.path().join("ca.key"), key).unwrap();

        let public = fs::read(dir.path().join("sa.pub")).unwrap();
        fs::write(dir.path().join("sa.key"), generate_key().unwrap()).unwrap();
        let text = open(dir.path(), &names).map(drop).unwrap_err().to_string();
        assert!(text.contains("sa.pub` does not have the public key of"), "{text}");
        assert_eq!(fs::read(dir.path().join("sa.pub")).unwrap(), public);
        // Asked for, the tokens of before end.
        fs::remove_file(dir.path().join("sa.pub")).unwrap();
        open(dir.path(), &names).unwrap();
    }

    /// What is there and valid is used while there is no room for another; what is missing is named.
    #[cfg(target_os = "linux")]
    #[test]
    fn certificates_on_a_full_disk() {
        let dir = tempfile::tempdir().unwrap();
        let before = open(dir.path(), &names("a.example")).unwrap();
        let (certificate, key) = paths(dir.path(), "apiserver");
        let full = || {
            let fresh = dir.path().join("apiserver.crt.new");
            std::os::unix::fs::symlink("/dev/full", fresh).unwrap();
        };
        full();
        let same = open(dir.path(), &names("a.example")).unwrap();
        assert_eq!(same.serving.certificate, before.serving.certificate);
        // For other names it would be made again.
        let kept = open(dir.path(), &names("b.example")).unwrap();
        assert_eq!(kept.serving.certificate, before.serving.certificate);
        assert_eq!(
            fs::read_to_string(&certificate).unwrap(),
            before.serving.certificate
        );
        assert_eq!(fs::read_to_string(&key).unwrap(), before.serving.key);
        assert!(!dir.path().join("apiserver.key.new").exists());
        let roomy = open(dir.path(), &names("b.example")).unwrap();
        assert_ne!(roomy.serving.certificate, before.serving.certificate);

        full();
        fs::remove_file(&certificate).unwrap();
        let error = open(dir.path(), &names("b.example")).unwrap_err();
        assert!(error.is_full(), "{error:?}");
        assert!(error.to_string().contains("apiserver.crt"), "{error}");
    }

    #[test]
    fn bundles_are_taken_apart() {
        let [one, other] = ["a", "b"].map(|name| Authority::generate(name).unwrap().certificate);
        let bundle = format!("{one}{other}");
        assert_eq!(blocks(&bundle), [&*one, &*other]);
        let spaced = format!("# first\n\n{one}\n\n{}", other.trim_end());
        assert_eq!(blocks(&spaced).len(), 2);
        assert!(blocks(&spaced)[1].starts_with("-----BEGIN"));
        assert!(blocks("nonsense").is_empty());
    }

    #[test]
    fn issuers_are_found() {
        let [one, other] = ["kubernetes", "kubernetes"].map(|name| Authority::generate(name).unwrap());
        let both = [one.certificate.as_str(), other.certificate.as_str()];
        for authority in [&one, &other] {
            let issued = authority.server("kube-apiserver", &["a.example".into()]).unwrap();
            assert_eq!(
                issuer_among(&issued.certificate, &both),
                Some(&*authority.certificate)
            );
            let chain = format!("{}{}", issued.certificate, authority.certificate);
            assert_eq!(issuer_among(&chain, &both), Some(&*authority.certificate));
        }
        let stranger = Authority::generate("another").unwrap();
        let issued = stranger.server("kube-apiserver", &["a.example".into()]).unwrap();
        assert_eq!(issuer_among(&issued.certificate, &both), None);
        assert_eq!(issuer_among("nonsense", &both), None);
    }

    #[cfg(unix)]
    #[test]
    fn for_the_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let pki = open(dir.path(), &names("a.example")).unwrap();
        pki.write_kubeconfig(&dir.path().join("admin.kubeconfig"), "https://127.0.0.1:1")
            .unwrap();
        for entry in fs::read_dir(dir.path()).unwrap() {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", entry.path().display());
        }
    }

    #[test]
    fn broken_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path(), &names("a.example")).unwrap();
        fs::write(dir.path().join("sa.key"), "nonsense").unwrap();
        let error = open(dir.path(), &names("a.example")).unwrap_err().to_string();
        assert!(error.contains("sa.key") && error.contains("remove it"), "{error}");
        fs::write(dir.path().join("ca.crt"), "nonsense").unwrap();
        let error = open(dir.path(), &names("a.example")).unwrap_err().to_string();
        assert!(error.contains("ca.crt` holds no certificate"), "{error}");
    }
}
