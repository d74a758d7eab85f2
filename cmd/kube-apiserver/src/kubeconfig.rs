//! `kube-apiserver kubeconfig`: a kubeconfig for a user, with a client certificate of the server's own authority. It needs the data
//! directory, and no server that runs.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Parser;
use generic_server::pki::{self, Authority};
use machinery::codec::yaml;
use machinery::time::{GoDuration, Timestamp};
use serde_json::json;

use crate::options::{data_directory, duration};
use crate::{StartError, users};

/// The group that may do everything, whatever RBAC says.
const MASTERS: &str = "system:masters";
/// The address of a server that has not run yet.
const LOCAL: &str = "https://127.0.0.1:6443";

/// Writes a kubeconfig for a user, with a certificate of the server's own authority.
#[derive(Debug, Parser)]
#[command(name = "kubeconfig", bin_name = "kube-apiserver kubeconfig")]
pub struct KubeconfigCommand {
    /// The name of the user.
    #[arg(long, value_name = "NAME")]
    user: String,
    /// A group of the user; repeated for more. What its members may do is for RBAC to say.
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// Puts the user into system:masters, which may do everything and cannot be restricted.
    #[arg(long)]
    system_masters: bool,
    /// How long the certificate is valid. It cannot be revoked.
    #[arg(long, default_value = "24h", value_parser = duration, value_name = "DURATION")]
    expires_in: Duration,
    /// The URL of the server; by default that in the administrator's kubeconfig.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The data directory of the server.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The new file, which only its owner can read; by default standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl KubeconfigCommand {
    /// Makes the kubeconfig. Returns it, or where it was written.
    ///
    /// # Errors
    /// When the directory has no authority, what is asked for cannot be certified, or the file cannot be written.
    pub fn run(self) -> Result<String, StartError> {
        let groups = self.groups().map_err(StartError::Option)?;
        let directory = data_directory(self.data_dir.as_ref()).map_err(StartError::Option)?;
        let (authority, ends) = authority(&directory)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let until = now.saturating_add(self.expires_in).as_secs();
        let until = i64::try_from(until).unwrap_or(i64::MAX);
        if until > ends {
            return Err(StartError::Option(format!(
                "--expires-in: the authority in {} ends at {}, before the certificate would",
                directory.join("pki").display(),
                Timestamp::from_unix(ends).to_rfc3339()
            )));
        }
        let issued = authority.member(&self.user, &groups, self.expires_in)?;
        let server = match &self.server {
            Some(server) => server.clone(),
            None => known_server(&directory.join("admin.kubeconfig")).unwrap_or_else(|| LOCAL.into()),
        };
        let encoded = |pem: &str| BASE64_STANDARD.encode(pem);
        let credentials = json!({
            "client-certificate-data": encoded(&issued.certificate),
            "client-key-data": encoded(&issued.key),
        });
        let text = users::document(&server, &authority.certificate, &self.user, &credentials);
        let Some(out) = &self.out else {
            return Ok(text);
        };
        write(out, &text).map_err(StartError::Option)?;
        let life = GoDuration(i64::try_from(self.expires_in.as_nanos()).unwrap_or(i64::MAX));
        Ok(format!(
            "wrote {}: {} at {server}, valid for {life}",
            out.display(),
            self.user
        ))
    }

    /// The groups that are asked for.
    fn groups(&self) -> Result<Vec<String>, String> {
        if self.user.is_empty() {
            return Err("--user: it is empty: name the user".into());
        }
        if self.expires_in.is_zero() {
            return Err("--expires-in: it is 0: name a duration such as 24h".into());
        }
        if self.group.iter().any(String::is_empty) {
            return Err("--group: it is empty: name a group, or leave the flag out".into());
        }
        if self.group.iter().any(|group| group == MASTERS) {
            return Err(format!(
                "--group={MASTERS}: its members may do everything, and RBAC cannot restrict them: ask for it with --system-masters"
            ));
        }
        let masters = self.system_masters.then(|| MASTERS.to_string());
        let mut groups: Vec<String> = self.group.iter().cloned().chain(masters).collect();
        groups.sort();
        groups.dedup();
        Ok(groups)
    }
}

/// The authority of a data directory, and when it ends.
fn authority(directory: &Path) -> Result<(Authority, i64), StartError> {
    let read = |name: &str| {
        let file = directory.join("pki").join(name);
        std::fs::read_to_string(&file).map_err(|error| {
            let why = match error.kind() {
                std::io::ErrorKind::NotFound => {
                    "has no authority of its own: a server makes one at its first start, unless it runs with --client-ca-file, whose owner issues certificates then".to_string()
                }
                _ => format!("cannot be used: {}: {error}", file.display()),
            };
            StartError::Option(format!("--data-dir: {} {why}", directory.display()))
        })
    };
    let (certificate, key) = (read("ca.crt")?, read("ca.key")?);
    let authority = Authority::load(&certificate, &key)?;
    Ok((authority, pki::expires(&certificate).unwrap_or(i64::MAX)))
}

/// The address in a kubeconfig, if there is one.
fn known_server(kubeconfig: &Path) -> Option<String> {
    let decoded = yaml::decode(&std::fs::read(kubeconfig).ok()?).ok()?;
    let server = decoded.value.pointer("/clusters/0/cluster/server")?.as_str()?;
    Some(server.to_string())
}

fn write(out: &Path, text: &str) -> Result<(), String> {
    let mut file = std::fs::File::options();
    file.write(true).create_new(true).mode(0o600);
    file.open(out)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                format!(
                    "--out: {} is there already: remove it, or name another file",
                    out.display()
                )
            }
            _ => format!("--out: cannot write {}: {error}", out.display()),
        })
}

#[cfg(test)]
mod tests;
