//! The files that options name: certificates, keys, tokens and configurations, read the way a start reads them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use generic_server::client::egress::{EgressSelector, Route};
use generic_server::directory::Directory;
use generic_server::encryption::Encryption;
use generic_server::pki::{self, Pki, ServingNames};
use generic_server::reload::Reload;
use generic_server::spawn::Tasks;
use kube_apiserver::{Access, Nodes, PluginConfigs};

use super::Found;
use crate::StartError;
use crate::config::{Config, Engine, KeyFiles};
use crate::stages::keys;

/// A certificate that expires within this many days is reported.
const SOON_DAYS: i64 = 30;

pub(super) async fn look(config: &Config, egress: &EgressSelector, found: &mut Found) {
    let pairs = [
        ("--tls-cert-file, --tls-private-key-file", config.serving.as_ref()),
        (
            "--proxy-client-cert-file, --proxy-client-key-file",
            config.proxy_client.as_ref(),
        ),
        ("--etcd-certfile, --etcd-keyfile", etcd_client(config)),
    ];
    for (flags, files) in pairs {
        let Some(files) = files else { continue };
        if found.took(keys::named_key(flags, files)).is_some() {
            validity(flags, &files.certificate, found);
        }
    }
    found.took(keys::sni_certificates(&config.tls.named));
    // Authorities, tokens and signing keys, as a start has them.
    let own = found.took(Pki::in_memory(&ServingNames::default()));
    if let Some(own) = own {
        let directory = Arc::new(Directory::default());
        found.took(Access::new(
            &config.access,
            &own,
            &directory,
            egress,
            &mut Reload::default(),
            // Nothing is started: issuers of tokens are not asked.
            &Tasks::new(),
        ));
    }
    let nodes = Nodes::new(config.kubelet.clone(), Route::Direct, Tasks::new());
    found.took(nodes.map_err(StartError::Option));
    if let Err(fault) = config.audit.check(&Route::Direct) {
        found.fault(fault);
    }
    let manifests = config.features.admission_manifests;
    match PluginConfigs::read(config.plugin_configs.as_deref(), &config.plugins, manifests) {
        Ok((mut configs, warnings)) => {
            warnings.into_iter().for_each(|warning| found.note(warning));
            if let Err(fault) = configs.load_manifests().await {
                found.fault(fault);
            }
        }
        Err(fault) => found.fault(fault),
    }
    if let Some(file) = &config.encryption {
        let tasks = Tasks::new();
        let loaded = Encryption::load(&file.file, false, &tasks).await;
        tasks.stop(Duration::ZERO).await;
        if let Err(error) = loaded {
            found.fault(format!("--encryption-provider-config: {error}"));
        }
    }
    if let Some(directory) = &config.data_dir {
        own_certificates(&directory.join("pki"), found);
    }
}

/// The proxies of the server's own connections; none are asked.
pub(super) fn egress(config: &Config, found: &mut Found) -> EgressSelector {
    let read = |file| kube_apiserver::read_egress(file, &Arc::default(), &Tasks::new());
    let read = config.egress_file.as_deref().map(read);
    match read.transpose() {
        Ok(egress) => egress.unwrap_or_default(),
        Err(why) => {
            found.fault(format!("--egress-selector-config-file: {why}"));
            EgressSelector::default()
        }
    }
}

fn etcd_client(config: &Config) -> Option<&KeyFiles> {
    match &config.storage.engine {
        Engine::Etcd(etcd) => etcd.client.as_ref(),
        Engine::Embedded { .. } => None,
    }
}

/// The server's own, where there are any: a start makes those that are missing.
fn own_certificates(directory: &Path, found: &mut Found) {
    for name in ["ca", "front-proxy-ca", "apiserver", "front-proxy-client", "admin"] {
        let files = KeyFiles {
            certificate: directory.join(format!("{name}.crt")),
            key: directory.join(format!("{name}.key")),
        };
        if !files.certificate.exists() || !files.key.exists() {
            continue;
        }
        let place = files.certificate.display().to_string();
        // A start issues the others again.
        let authority = matches!(name, "ca" | "front-proxy-ca");
        match keys::named_key(&place, &files) {
            Ok(_) => validity(&place, &files.certificate, found),
            Err(error) if authority => found.fault(error.to_string()),
            Err(error) => found.note(format!("{error}; it will be reissued")),
        }
    }
}

/// Whether a certificate that can be read is valid now.
fn validity(what: &str, file: &Path, found: &mut Found) {
    let Some(pem) = found.took(std::fs::read_to_string(file)) else {
        return;
    };
    let Some((from, to)) = pki::validity(&pem) else {
        return;
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let file = file.display();
    if now < from {
        found.fault(format!("{what}: {file} is not valid yet"));
    } else if now > to {
        found.fault(format!("{what}: {file} has expired"));
    } else {
        let days = (to - now) / 86_400;
        if days < SOON_DAYS {
            found.note(format!("{what}: {file} expires in {days} days"));
        }
    }
}
